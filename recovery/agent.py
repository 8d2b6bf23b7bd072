"""The worker's half of recovery: a state machine between the engine, the journal and the monitor. No I/O.

It makes cuts when the monitor asks, reports them once they are durable, collects what low-watermarks free, and carries
out rollbacks (Isard and Abadi, *Falkirk Wheel*, sections 4.2 and 4.4, and docs/recovery.md). Its driver
(`runtime.recovery_driver`) feeds it messages, frames and acknowledgements of the store, and takes what it wants sent and
stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from recovery.checkpoint.attributes import Attributes
from recovery.checkpoint.checkpoints import Checkpoints, Draft, Positions
from recovery.checkpoint.operator_memory import Beside
from recovery.checkpoint.records import SourcePosition, key_of, record_of
from recovery.groups import GroupProgress
from recovery.layout import Layout
from recovery.metadata import NEVER, Bound, at_cut, at_epoch, cut_within, nothing, to_frontier
from recovery.protocol import (
    AskMemory,
    Completed,
    Cut,
    Decision,
    Drain,
    Drained,
    Durable,
    Held,
    InMemory,
    Join,
    Refused,
    Released,
    Restored,
    Suppose,
    ToMonitor,
    ToWorker,
    Unanswered,
    Watermarks,
)
from recovery.recorder import WorkerRecorder
from recovery.rollback.cost import suppose
from recovery.rollback.orders import RollbackPlanner
from recovery.store.interface import Buffer
from recovery.store.journal import Journal
from recovery.store.segments import Section, SegmentMeta
from timely.data.messages import Frame
from timely.dataflow.plan import Plan
from timely.errors import FalkirkError
from timely.operators.ends import StagedEnd
from timely.progress.tracker import frontier_at
from timely.state.interface import State
from timely.time import Time
from timely.worker import restoring
from timely.worker.worker import Worker

HEARTBEAT_SECONDS = 0.5
"""A worker says at least so often that it is alive."""

ITERATION_SECONDS = 0.1
"""A worker that is busy in a loop says so often how many iterations are over."""


class WorkerPhase(Enum):
    """The phase of a worker in the rounds of rollback."""

    JOINING = "waits for the first decision"
    RUNNING = "runs"
    DRAINING = "empties its links"
    DRAINED = "waits for the decision"
    RELEASED = "is done for good"


def staged_nodes(layout: Layout, plan: Plan) -> frozenset[int]:
    """The sinks and captures whose output waits for the low-watermark, by node."""
    return frozenset(
        plan.processors[p].node.index for p, info in enumerate(layout.processors) if info.role in ("sink", "capture")
    )


class Agent:
    """Recovery on worker `index`: owns the pure worker, tells the driver when it may run.

    Args:
        positions: where the partitions of a source, by processor, go on after all epochs before a given one.
        incarnation: tells this process from earlier ones of the same worker.
    """

    def __init__(
        self, plan: Plan, layout: Layout, index: int, incarnation: int, journal: Journal, positions: Positions
    ) -> None:
        self.layout = layout
        self.index = index
        self.incarnation = incarnation
        self.recorder = WorkerRecorder(layout, index)
        self.worker = Worker(plan, index, self.recorder, staged=staged_nodes(layout, plan))
        self.worker.awaited = {-1}
        self.checkpoints = Checkpoints(layout, self.recorder, journal)
        self.journal = journal
        self.phase = WorkerPhase.JOINING
        self.round = 0
        self.alive = False
        self.messages: list[ToMonitor] = []
        self.frames: list[tuple[int, Frame]] = []
        self.rewound: dict[int, tuple[int | None, tuple[SourcePosition, ...] | None]] = {}
        """Sources, by node, that must go on at an epoch (None: ended), with positions where they are not known here."""
        self.low: list[list[Bound]] = [[info.nothing for info in layout.processors] for _ in range(layout.workers)]
        """W of every processor: `low[worker][processor]`."""
        self.refused: str | None = None
        self.worked = 0.0
        """Seconds that this worker has worked, as its driver says."""
        self._positions = positions
        self._plan = plan
        self._peers: tuple[int, ...] = ()
        self._ended: dict[int, int] = {}
        self._early: list[Frame] = []
        self._settled = [info.nothing for info in layout.processors]
        """The times that were complete before this generation, and stay so whatever its progress says."""
        self._completed: tuple[Bound, ...] | None = None
        self._reported_at = float("-inf")
        self._stored_at = [info.nothing for info in layout.processors]
        """Of what lies before this, memory knows state and events only: positions, requests and D̄ are in the store."""
        self._due: list[Cut] = []
        self._draft: Draft | None = None
        self._begun = False
        self._waiting: list[ToMonitor] = []
        self._sealed: list[ToMonitor] = []
        self._attributes = Attributes(layout, self.worker, self.recorder)
        self._beside = Beside(layout, self.worker)
        self.recorder.beside = self._beside.watched()
        self._groups = [GroupProgress(plan, layout, number) for number in range(len(layout.groups))]
        self._busy_seconds = ITERATION_SECONDS if any(group.depth > 1 for group in self._groups) else HEARTBEAT_SECONDS

    # Beginning

    def open(self, segments: Iterable[tuple[SegmentMeta, list[Section]]]) -> None:
        """Take over what earlier incarnations wrote, all segments that are needed, in order; none for a new worker.

        Raises FalkirkError when they are of another program.
        """
        read = [(meta, sections, [record_of(section.head) for section in sections]) for meta, sections in segments]
        last = {key_of(record): meta.number for meta, _, records in read for record in records}
        current = [
            (record, section.payload)
            for meta, sections, records in read
            for record, section in zip(records, sections)
            if last[key_of(record)] == meta.number
        ]
        self.checkpoints.load(current)
        live = self.checkpoints.live_keys()
        for meta, sections, records in read:
            keys = [key_of(record) for record in records]
            self.journal.recovered(
                meta, sections, [key if key in live and last[key] == meta.number else None for key in keys]
            )
        self.journal.resume()
        if not current:
            self.checkpoints.open()
        self.join()

    def join(self) -> None:
        """Tell the monitor, a new one perhaps, that this worker is there."""
        paused = self.phase in (WorkerPhase.DRAINING, WorkerPhase.DRAINED)
        self.messages.append(
            Join(
                self.index,
                self.incarnation,
                self.checkpoints.generation,
                self.alive,
                self.layout,
                self.checkpoints.durable(),
                paused,
            )
        )
        self._reported_at = float("-inf")  # it has not heard how far this worker is; what was complete stays so
        if self.phase == WorkerPhase.RELEASED:
            self.messages.append(Released(self.index))

    @property
    def running(self) -> bool:
        """True if sources may be read and the worker run."""
        return self.phase == WorkerPhase.RUNNING and not self.worker.awaited

    @property
    def done(self) -> bool:
        """True if everything is complete, persisted and released, and the monitor knows."""
        return self.phase == WorkerPhase.RELEASED

    def resume(self) -> None:
        """To be called before the worker is run: a generation may just have begun."""
        if self._begun:
            self._begun = False
            restoring.resume(self.worker)

    # What the monitor says

    def hear(self, message: ToWorker) -> None:
        """A message of the monitor."""
        match message:
            case Cut():
                if message.generation == self.worker.generation and self.phase == WorkerPhase.RUNNING:
                    self._due.append(message)
            case Watermarks():
                self._raise(message.changed)
            case Drain():
                self._pause(message)
            case Decision():
                self._decide(message)
            case Refused():
                self.refused = message.reason
            case AskMemory() | Suppose():
                if self.running:
                    self.messages.append(self._answer(message))

    def _answer(self, question: AskMemory | Suppose) -> ToMonitor:
        """The answer to a question of somebody who looks at the job; nothing but the question may fail by it."""
        generation = self.worker.generation
        try:
            if isinstance(question, AskMemory):
                return Held(self.index, generation, question.question, self._memory())
            return suppose(question, self.layout, self.recorder, self.index, generation, self.worked)
        except Exception as error:
            return Unanswered(self.index, generation, question.question, f"{type(error).__name__}: {error}")

    def _raise(self, changed: tuple[tuple[int, int, Bound], ...]) -> None:
        for p, worker, bound in changed:
            if bound <= self.low[worker][p]:
                continue
            self.low[worker][p] = bound
            for edge in self.layout.edges:
                if edge.resends and edge.target == p and (edge.spread or worker == self.index):
                    self.checkpoints.collect_log(edge.edge, worker, bound)
            if worker == self.index:
                self._let_go(p, bound)

    def _let_go(self, p: int, bound: Bound) -> None:
        """Processor `p` of this worker never goes below `bound`: collect, release."""
        self.checkpoints.collect(p, bound)
        self.recorder.collect(p, bound)
        if self.alive:
            operator = self.worker.runtimes[p].operator
            # What is replayed begins with the state as it was saved last.
            base = self.checkpoints.base(p, bound) if p in self._beside.of else bound
            operator.on_watermark(to_frontier(base))
            if isinstance(operator, StagedEnd):
                self.checkpoints.published.rise(p, bound)

    def source_low(self, node: int) -> int:
        """The epochs of a source before this one will never be read again."""
        return self.low[self.index][self._plan.of_node[node]][0]

    # Rounds

    def _pause(self, message: Drain) -> None:
        if message.round <= self.round:
            return
        self.round = message.round
        if not self.alive:
            self.join()  # nothing to drain: what the store holds is all there is
            return
        self.phase = WorkerPhase.DRAINING
        self._due.clear()
        self.save(at_once=True)  # what was begun; nothing may change before it is done
        self._peers = tuple(worker for worker in message.alive if worker != self.index)
        # What the others are told of progress must hold: what waits here may still cause something.
        for worker, frame in self.worker.take_frames(quiet=restoring.quiet(self.worker)).items():
            self.frames.append((worker, frame))
        for worker in self._peers:
            self.frames.append((worker, Frame(self.index, self.worker.generation, ends=self.round)))
        self._settle()

    def receive(self, frame: Frame) -> None:
        """A frame of another worker."""
        if frame.ends:
            self._ended[frame.sender] = max(self._ended.get(frame.sender, 0), frame.ends)
            self._settle()
        elif frame.generation > self.worker.generation or not self.alive:
            self._early.append(frame)
        elif frame.generation == self.worker.generation:
            self.worker.receive(frame)

    def _settle(self) -> None:
        """Answer the monitor when all links are empty and nothing is being stored."""
        if self.phase != WorkerPhase.DRAINING or self.waits_for_store() or self.journal.gathered:
            return
        if any(self._ended.get(worker, 0) < self.round for worker in self._peers):
            return
        self.phase = WorkerPhase.DRAINED
        memory = self._memory()
        self._settled = [held.upto for held in memory]
        self.messages.append(Drained(self.index, self.round, memory))

    def _memory(self) -> tuple[InMemory, ...]:
        """The memory of each processor."""
        return tuple(
            InMemory(
                upto := self._upto(p),
                self._acted_on(p, upto),
                self.recorder.delivered_bounds(p),
                self.recorder.sent_bounds(p),
                self._stored_at[p],
            )
            for p in range(len(self.layout.processors))
        )

    def _acted_on(self, p: int, upto: Bound) -> Bound:
        """N̄(p, ⊤): all that was taken for complete at a processor of this worker. Work that waits here does not lower it."""
        return max(upto, self.recorder.notified_bound(p))

    def _upto(self, p: int) -> Bound:
        """The completed bound of a processor of this worker."""
        if self.worker.awaited:
            return self._settled[p]
        info = self.layout.processors[p]
        depth, near = info.depth, self._groups[info.group].near
        local = restoring.look(self.worker)
        runtime, tracker = self.worker.runtimes[p], self.worker.tracker
        reach = tuple(
            (place, summary)
            for place, summaries in self._plan.arrivals[runtime.processor.nodes[0].index].items()
            for summary in summaries
        )
        times = list(frontier_at(tracker, reach))
        if runtime.processor.place is not None:
            times += tracker.leaving(runtime.processor.place)
        least = at_epoch(NEVER, depth)
        for time in times:
            least = min(least, time)
        for op, time in local:
            within = min(near.get(op, 1), depth)
            least = min(least, at_cut(cut_within(time, within), depth))
        for event in runtime.ctx.pending:
            least = min(least, event)
        least = max(least, self._settled[p])
        # Work that waits here lowers all alike, and may lead nowhere near: what was said to be complete is, all the same.
        return least if self._completed is None else max(least, at_cut(self._completed[info.group], depth))

    def _decide(self, decision: Decision) -> None:
        mine = decision.bounds[self.index]
        if decision.generation <= self.checkpoints.generation:
            return
        self._due.clear()
        if decision.catch_up and not self.alive:
            self.checkpoints.apply(decision.generation, mine)
            self._waiting.append(self._joining(decision.generation))
            return
        remembers = self.alive and self.index not in decision.failed
        rollback = RollbackPlanner(
            *(self._plan, self.layout, self.worker, self.recorder, self.checkpoints),
            *(self._attributes, self._beside),
            remembers,
            self._stored_at,
        )
        # Before anything is collected: what W released may have to be published again.
        orders = rollback.orders(decision)
        for worker, bounds in enumerate(decision.watermarks):
            self._raise(tuple((p, worker, bound) for p, bound in enumerate(bounds)))
        self.checkpoints.apply(decision.generation, mine)
        for worker, frame in restoring.rewind(self.worker, orders).items():
            self.frames.append((worker, frame))
        self._attributes.look()
        self.checkpoints.forget_payloads()
        self.rewound.update(rollback.rewound)
        for p, bound in enumerate(mine):
            if bound is not None:
                self._settled[p] = bound
                self._stored_at[p] = min(self._stored_at[p], bound) if remembers else bound
        self._begun = True
        self.alive = True
        self.phase = WorkerPhase.RUNNING
        self.round = max(self.round, decision.generation)
        self._completed = None
        self._waiting.append(Restored(self.index, decision.generation))
        for p, bound in enumerate(self.low[self.index]):
            self._let_go(p, bound)
        early, self._early = self._early, []
        for frame in early:
            self.receive(frame)

    def _joining(self, generation: int) -> Join:
        return Join(self.index, self.incarnation, generation, False, self.layout, self.checkpoints.durable(), False)

    # Running

    def turn(self, quiet: bool, now: float, every: float = 0.02) -> None:
        """After each turn of the worker, and after `save`: say how far it is. `every`: seconds between two reports."""
        if self.phase == WorkerPhase.RUNNING and not self.worker.awaited:
            if quiet and now - self._reported_at >= every:
                self._report(now)
            elif now - self._reported_at >= self._busy_seconds:
                self._report(now, busy=True)  # for long: alive, and perhaps further in a loop
            if self._all_released():
                self.phase = WorkerPhase.RELEASED
                self.messages.append(Released(self.index))
        self._settle()

    @property
    def saving(self) -> bool:
        """True if a piece of a cut can be made now: then the next turn should come soon."""
        return self.running and (self._draft is not None or bool(self._due))

    @property
    def cut_every(self) -> float | None:
        """Number of seconds should be between two cuts of those that are due; None if nobody said."""
        numbers = [cut.group for cut in self._due] + ([self._draft.group] if self._draft is not None else [])
        return min((every for n in numbers if (every := self.layout.groups[n].seconds) is not None), default=None)

    @property
    def cutting(self) -> bool:
        """True if a cut is being made, or is on its way to the store."""
        return self._draft is not None or bool(self._due) or self.waits_for_store()

    @property
    def unwritten(self) -> int:
        """Bytes of cuts that are made and not durable yet, as far as they are made."""
        made = sum(saved.size for _, saved, _ in self._draft.states) if self._draft is not None else 0
        return made + self.journal.unwritten

    def save(self, at_once: bool = False) -> None:
        """Make the next piece of the cuts that are due, or all of them. To be called when the worker has had its turn."""
        while self._draft is not None or self._due:
            if self._draft is None:
                cut = self._due.pop(0)
                self._attributes.check(cut.group, cut.at)
                self._draft = self.checkpoints.cut(cut.group, cut.at, self._state, self._positions)
            if self.checkpoints.advance(self._draft):
                done, self._draft = self._draft, None
                self._waiting.append(Durable(self.index, self.worker.generation, done.group, done.at, tuple(done.xis)))
            elif not at_once:
                return

    def _state(self, p: int) -> State | None:
        return self.worker.runtimes[p].operator.state

    def _report(self, now: float, busy: bool = False) -> None:
        """`busy`: work waits here. Groups that are cut between epochs then stay at what was said before."""
        local = restoring.look(self.worker)
        upto = tuple(
            self._complete(group, local) if not busy or group.depth > 1 else nothing(group.depth)
            for group in self._groups
        )
        if self._completed is not None:
            upto = tuple(map(max, upto, self._completed))
        if upto != self._completed or now - self._reported_at >= HEARTBEAT_SECONDS:
            self._completed = upto
            self._reported_at = now
            self.messages.append(Completed(self.index, self.worker.generation, upto))

    def _complete(self, group: GroupProgress, local: list[tuple[int, Time]]) -> Bound:
        """The last cut of a group before everything that can still come to it; `local` is work that waits here."""
        leaving = self.worker.tracker.leaving
        least = at_epoch(NEVER, group.depth)
        for place, summary in group.places:
            for time in leaving(place):
                least = min(least, cut_within(time if summary is None else summary(time), group.depth))
        for op, time in local:
            if (near := group.near.get(op)) is not None:
                least = min(least, at_cut(cut_within(time, near), group.depth))
        return least

    def _all_released(self) -> bool:
        return (
            self.worker.done
            and not self.worker.effects
            and not self._waiting
            and not self._sealed
            and self._draft is None
            and not self._due
            and all(bound[0] == NEVER for bounds in self.low for bound in bounds)
        )

    # The store

    def seal(self) -> tuple[str, Sequence[Buffer]] | None:
        """The next segment to store, if there is a reason and none is under way."""
        if self.journal.in_flight is not None or not (self.journal.restless or self._waiting):
            return None
        self.checkpoints.carry()
        if self.journal.due:
            self.checkpoints.published.save()
        sealed = self.journal.seal()
        if sealed is not None:
            self._sealed, self._waiting = self._waiting, []
        elif not self.journal.gathered:  # what they tell of was durable before
            self.messages += self._waiting
            self._waiting = []
        return sealed

    def stored(self, name: str) -> list[str]:
        """A segment is durable; the names of segments that may be deleted."""
        deletable = self.journal.stored(name)
        self.checkpoints.forget_decisions()
        self.messages += self._sealed
        self._sealed = []
        self._settle()
        return deletable

    def waits_for_store(self) -> bool:
        """True if something is on its way to the store, or waits for it."""
        return bool(self._waiting or self._sealed or self.journal.in_flight is not None)

    def check(self) -> None:
        """Raise what the monitor refused."""
        if self.refused is not None:
            raise FalkirkError(self.refused)
