"""Rounds of rollback on a worker: drain, report memory, carry out."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.agent.collection import Collection
from recovery.agent.cuts import WorkerCuts
from recovery.agent.effects import Halt, Rewind, SendFrame
from recovery.agent.reports import Reports
from recovery.agent.state import AGENT, AgentState, WorkerPhase
from recovery.epoch_ends import EpochEnds, KnownEnds, decode_ends, encode_ends
from recovery.metadata import Bound, union
from recovery.place import Place
from recovery.protocol import Decision, Drain, Drained, InMemory, Restored
from recovery.rollback.carry_out import carry_out
from recovery.rollback.orders import RollbackPlanner
from recovery.rollback.queues import undone
from timely.data.messages import Frame, Incomplete
from timely.errors import FalkirkError
from timely.time import FINITE, visible
from timely.worker import restoring


class Rounds:
    """Rounds of rollback on a worker, and frames with a part for recovery."""

    def __init__(self, own: AgentState, reports: Reports, cuts: WorkerCuts, collection: Collection) -> None:
        self._own = own
        self._reports = reports
        self._cuts = cuts
        self._collection = collection
        self.early: list[Frame] = []
        """Frames of a generation not begun here."""
        self._peers: tuple[Place, ...] = ()
        self._ended: dict[Place, int] = {}
        """Newest round with an end marker received, by the place of its sender."""

    # ------------------------------------------------------------------------------------------ frames

    def on_frame(self, frame: Frame) -> None:
        """Take a frame of another worker."""
        own = self._own
        if frame.ends:
            sender = Place(frame.sender, frame.copy)
            self._ended[sender] = max(self._ended.get(sender, 0), frame.ends)
            self.report_drained()
        elif frame.generation > own.worker.generation or not own.alive:
            self.early.append(frame)
        elif frame.recovery:
            self._hear_ends(frame)
        elif frame.generation == own.worker.generation:
            own.worker.receive(frame)

    def tell_ends(self, ends: tuple[EpochEnds, ...]) -> None:
        """Send ends of epochs to all processes before progress shows these epochs over."""
        own = self._own
        for each in ends:
            own.known_ends.hear(each)
        shared = [each for each in ends if not each.local_only]
        for place in own.others if shared else ():
            frame = Frame(own.index, own.worker.generation, recovery=encode_ends(shared), copy=own.place.copy)
            own.effects.append(SendFrame(place, frame))

    def _hear_ends(self, frame: Frame) -> None:
        if frame.generation == self._own.worker.generation:
            for each in decode_ends(frame.recovery):
                self._own.known_ends.hear(each)

    # ------------------------------------------------------------------------------------------ draining

    def pause(self, message: Drain) -> None:
        """Stop, and send end markers to the other processes."""
        own = self._own
        if message.round <= own.round:
            return
        own.round = message.round
        if not own.alive:
            self._reports.join()  # nothing to drain: what the store holds is all there is
            return
        own.phase = WorkerPhase.DRAINING
        own.effects.append(Halt())
        self._cuts.finish()  # nothing may change before it is done
        self._peers = tuple(place for place in message.alive if place != own.place)
        # What the others are told of progress must hold: what waits here may still cause something.
        for worker, frame in own.worker.take_frames(quiet=restoring.quiet(own.worker)).items():
            own.effects.append(SendFrame(Place(worker), frame))
        for place in self._peers:
            frame = Frame(own.index, own.worker.generation, ends=own.round, copy=own.place.copy)
            own.effects.append(SendFrame(place, frame))
        self.report_drained()

    def report_drained(self) -> None:
        """Report `Drained` once all links are empty and no write is in flight."""
        own = self._own
        if own.phase != WorkerPhase.DRAINING or self._reports.waits_for_store():
            return
        if any(self._ended.get(place, 0) < own.round for place in self._peers):
            return
        own.phase = WorkerPhase.DRAINED
        memory = self.memory()
        own.completion.before = [each.upto for each in memory]
        own.report(Drained(own.place, own.round, memory, own.known_ends.all()))

    def memory(self) -> tuple[InMemory, ...]:
        """In-memory option of each processor, as reported while drained."""
        own = self._own
        return tuple(
            InMemory(
                upto := own.completion.at(p),
                self._acted_on(p, upto),
                own.recorder.delivered_bounds(p),
                own.recorder.sent_bounds(p),
                own.recorder.since[p],
                own.recorder.kept_bounds(p),
            )
            for p in range(len(own.layout.processors))
        )

    def _acted_on(self, p: int, upto: Bound) -> Bound:
        """N̄(p, ⊤): all times acted on as complete at local processor `p`.

        Work that waits here does not lower it.
        """
        return union(upto, self._own.recorder.notified_bound(p))

    # ------------------------------------------------------------------------------------------ the decision

    def decide(self, decision: Decision) -> None:
        """Carry out a decision, or note one that this process has to catch up with."""
        own = self._own
        mine = decision.bounds[own.index]
        if decision.generation <= own.checkpoints.generation:
            return
        self._cuts.drop()
        if decision.catch_up and not own.alive:
            own.checkpoints.apply(decision.generation, mine)
            self._reports.gather(self._reports.joining(alive=False, paused=False))
            return
        if own.alive and own.index in decision.failed:
            raise FalkirkError(
                f"{own.place} was taken for lost, and generation {decision.generation} was decided without its memory: "
                "another process has taken its place. What is in the store is safe"
            )
        parts = own.worker, own.recorder, own.checkpoints, own.attributes, own.operator_memory
        # Before anything is collected: what W released may have to be published again.
        orders = RollbackPlanner(own.plan, own.layout, *parts, remembers=own.alive).orders(decision)
        redone = undone(own.recorder, mine, own.worked)
        self._tell_gaps(decision)
        for worker, bounds in enumerate(decision.watermarks):
            self._collection.raise_low(tuple((p, worker, bound) for p, bound in enumerate(bounds)))
        self._shut_gates(mine)
        frames = carry_out(orders, *parts)
        own_only = [each for each in own.known_ends.all() if each.local_only]  # none without memory
        own.known_ends = KnownEnds((*decision.ends, *own_only))
        own.known_ends.decided(decision.bounds)
        for p, bound in enumerate(mine):
            if bound is not None:
                own.completion.before[p] = bound
        own.completion.reported = None
        own.worker.awaited.add(AGENT)  # until the first turn of this generation: what was complete before stays so
        own.alive = True
        own.phase = WorkerPhase.RUNNING
        own.round = max(own.round, decision.generation)
        restored = orders.restored.values()
        ahead, pieces = sum(each.loaded is not None for each in restored), sum(each.pieces for each in restored)
        self._reports.gather(Restored(own.place, decision.generation, orders.resent, redone, ahead, pieces))
        for p, bound in enumerate(own.low[own.index]):
            self._collection.let_go(p, bound)
        own.perform()
        own.effects.append(Rewind(orders.sources))
        own.effects += [SendFrame(Place(worker), frame) for worker, frame in frames.items()]
        early, self.early = self.early, []
        for frame in early:
            self.on_frame(frame)

    def _tell_gaps(self, decision: Decision) -> None:
        """Tell sinks of their incomplete epochs, before anything of these is committed."""
        own = self._own
        for gap in decision.gaps:
            node = own.plan.processors[gap.processor].node
            if node.sink is not None:
                last = None if gap.end > FINITE else gap.end - 1
                own.worker.effects.append(Incomplete(node.index, visible((gap.begin,))[0], last))

    def _shut_gates(self, mine: Sequence[Bound | None]) -> None:
        """Set gates to the durable bounds of the groups before them, after a decision."""
        own = self._own
        for edge in own.layout.edges:
            bound = mine[edge.source]
            if edge.target in own.worker.gates and bound is not None:
                own.worker.gates[edge.target] = own.checkpoints.within(edge.source, bound)
