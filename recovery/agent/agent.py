"""Recovery agent of a worker: cuts, reports, garbage collection and rollbacks.

It makes cuts, reports them once they are durable, frees what low-watermarks allow, and carries out decisions.

A state machine without I/O or clock: `step` takes events (`recovery.agent.events`), and gives effects
(`recovery.agent.effects`).
It owns the pure worker, and shares its turns: its driver (`runtime.recovery_driver`) runs the worker while the agent is
`running`. Sections 4.2 and 4.4 of Isard and Abadi, *Falkirk Wheel*, and docs/theory.md say what it does and why.

`check` says what is true of it between two steps (`recovery.agent.invariants`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from msgspec.structs import replace

from recovery.agent.completion import Completion
from recovery.agent.effects import (
    Acknowledge,
    AskPositions,
    Delete,
    Effect,
    Fail,
    Perform,
    Put,
    Report,
    Rewind,
    SendFrame,
)
from recovery.agent.events import (
    Connected,
    EpochsEnded,
    Event,
    GenerationBegun,
    Heard,
    PieceDue,
    PositionsFound,
    Received,
    Stored,
    TurnEnded,
)
from recovery.agent.invariants import INVARIANTS
from recovery.checkpoint.attributes import Attributes
from recovery.checkpoint.checkpoints import Checkpoints, Draft, Positions
from recovery.checkpoint.operator_memory import OperatorMemory
from recovery.checkpoint.records import key_of, record_of
from recovery.epoch_ends import EpochEnds, KnownEnds, decode_ends, encode_ends
from recovery.layout import Layout
from recovery.metadata import NEVER, Bound, at_cut, to_frontier, union, within
from recovery.policy.chosen import policy_of
from recovery.protocol import (
    AskCost,
    AskMemory,
    Completed,
    CurrentMemory,
    Cut,
    Decision,
    Drain,
    Drained,
    Durable,
    InMemory,
    Join,
    Refused,
    Released,
    Restored,
    ToMonitor,
    ToWorker,
    Unanswered,
    Watermarks,
)
from recovery.recorder import WorkerRecorder
from recovery.rollback.carry_out import carry_out
from recovery.rollback.orders import RollbackPlanner
from recovery.rollback.queues import cost, undone
from recovery.store.journal import Journal
from recovery.store.segments import Section, SegmentMeta
from timely.data.messages import Frame
from timely.dataflow.plan import Plan
from timely.errors import FalkirkError
from timely.operators.ends import StagedEnd
from timely.state.interface import State
from timely.story import Story, check
from timely.worker import restoring
from timely.worker.worker import Worker

HEARTBEAT_SECONDS = 0.5
"""Longest time between two progress reports of a worker, in seconds."""

ITERATION_SECONDS = 0.1
"""Time between reports of completed iterations by a worker busy in a loop."""

REPORT_SECONDS = 0.02
"""Shortest time between reports of a quiet worker that has come further."""


_WITHIN_A_TURN = (Received, GenerationBegun, PieceDue, PositionsFound, EpochsEnded)
"""Events followed by `TurnEnded`: one write serves all of a turn."""

_OFTEN = (TurnEnded, PieceDue)
"""Frequent events, recorded in the story only if effects follow."""


class WorkerPhase(Enum):
    """Phase of a worker in the rounds of rollback."""

    JOINING = "waits for the first decision"
    RUNNING = "runs"
    DRAINING = "empties its links"
    DRAINED = "waits for the decision"
    RELEASED = "is done for good"


def staged_nodes(layout: Layout, plan: Plan) -> frozenset[int]:
    """Sinks and captures with output staged until the low-watermark, by node."""
    return frozenset(
        plan.processors[p].node.index for p, info in enumerate(layout.processors) if info.role in ("sink", "capture")
    )


class Agent:
    """State machine of recovery on worker `index`.

    Args:
        incarnation: tells this process from earlier ones of the same worker.
        journal: fenced, and read by its caller (`recovery.store.reading.take_over`).
        segments: what earlier incarnations wrote, all that is needed, in order; none for a new worker.

    Raises FalkirkError when `segments` are of another program.
    """

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        index: int,
        incarnation: int,
        journal: Journal,
        segments: Iterable[tuple[SegmentMeta, list[Section]]] = (),
    ) -> None:
        self.layout = layout
        self.index = index
        self.incarnation = incarnation
        self.recorder = WorkerRecorder(layout, index)
        self.worker = Worker(plan, index, self.recorder, staged=staged_nodes(layout, plan))
        self.worker.awaited = {-1}
        for runtime, processor in zip(self.worker.runtimes, plan.processors):
            if policy_of(processor.node).by_time:
                runtime.take_spans_back()
        self.checkpoints = Checkpoints(layout, self.recorder, journal)
        self.journal = journal
        self.completion = Completion(plan, layout, self.worker)
        self.story = Story()
        self.phase = WorkerPhase.JOINING
        self.round = 0
        """Newest round received from the monitor."""
        self.alive = False
        """True since the first decision carried out: the process has memory."""
        self.eager = tuple(number for number, group in enumerate(layout.groups) if group.eager)
        """Groups cut by this worker on its own."""
        self._gates: list[list[int]] = [[] for _ in layout.groups]
        """Closing gates downstream of each group."""
        for edge in layout.edges:
            if edge.target in self.worker.gates:
                self._gates[layout.processors[edge.source].group].append(edge.target)
        self.low: list[list[Bound]] = [[info.nothing for info in layout.processors] for _ in range(layout.workers)]
        """Low-watermarks W of all processors: `low[worker][processor]`."""
        self.refused: str | None = None
        self.due: list[Cut] = []
        """Cuts requested and not begun."""
        self.draft: Draft | None = None
        """Cut in the making."""
        self.gathered: list[ToMonitor] = []
        """Reports waiting for the next segment to be durable."""
        self.sealed: list[ToMonitor] = []
        """Reports waiting for the segment now being written."""
        self.noted = 0
        """Newest decision in the store, so known to this worker's next process."""
        self.early: list[Frame] = []
        """Frames of a generation not begun here."""
        self.known_ends = KnownEnds()
        """Ends of epochs cut by a clock, on any worker."""
        self._plan = plan
        self._effects: list[Effect] = []
        self._now = float("-inf")
        self._reported_at = float("-inf")
        self._weighs_at = self._weighed_at = float("-inf")
        self._peers: tuple[int, ...] = ()
        self._ended: dict[int, int] = {}
        """Newest round with an end marker received, by worker."""
        self._asked: dict[int, float] = {}
        self._made: dict[int, float] = {}
        """Times of each group's requested and last made cut."""
        self._acknowledged = dict.fromkeys((node.index for node in plan.graph.of_kind("source")), 0)
        self._begun = False
        self._joins_when_noted = False
        self._worked = 0.0
        self._kept_here: dict[tuple[int, int], list[tuple[int, int]]] = {}
        """Channels within this worker, by group and depth of the receiver.

        The receiver lives as long as the sender, so messages that it has completed need not be kept.
        """
        for edge in layout.edges:
            if edge.kept:
                target = layout.processors[edge.target]
                self._kept_here.setdefault((target.group, target.depth), []).append((edge.edge, index))
        self._attributes = Attributes(layout, self.worker, self.recorder)
        self._operator_memory = OperatorMemory(layout, self.worker)
        self.recorder.beside = self._operator_memory.watched()
        self._busy_seconds = ITERATION_SECONDS if self.completion.within_epochs else HEARTBEAT_SECONDS
        self._load(segments)

    def _load(self, segments: Iterable[tuple[SegmentMeta, list[Section]]]) -> None:
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
            self.journal.recovered(meta, sections, [key if key in live else None for key in keys])
        self.journal.resume()
        self.noted = self.checkpoints.generation
        if not current:
            self.checkpoints.open()

    def step(self, now: float, *events: Event) -> list[Effect]:
        """Process simultaneous events in order; return effects to carry out in order."""
        self._now = now
        try:
            for event in events:
                self._take(event)
            if not isinstance(events[-1], _WITHIN_A_TURN):
                self._write()
        except Exception as error:
            if not isinstance(error, FalkirkError):
                self.story.tell(now, events, self._effects)
                error.add_note(str(self.story))
            raise
        effects, self._effects = self._effects, []
        if effects or not isinstance(events[-1], _OFTEN):
            self.story.tell(now, events, effects)
        return effects

    def check(self) -> None:
        """Check the invariants between two steps; raise InvariantBroken."""
        check(self, INVARIANTS, self.story)

    def _take(self, event: Event) -> None:
        match event:
            case TurnEnded(quiet, worked):
                self._worked = worked
                self._on_turn(quiet)
            case Heard(message):
                self._on_heard(message)
                self._acknowledge()
            case Received(frame):
                self._on_frame(frame)
            case PieceDue(rows):
                self.checkpoints.piece_rows = rows
                self._make_piece()
            case PositionsFound(positions):
                self.draft = self._begin_cut(positions)
                self._make_piece()
                if not self.saving:
                    self._write()
            case Stored(name):
                self._on_stored(name)
            case GenerationBegun():
                self._begun = False
                restoring.resume(self.worker)
            case EpochsEnded(ends):
                self._tell_ends(ends)
            case Connected():
                self._join()

    # ------------------------------------------------------------------------------------------ for the driver to read

    @property
    def running(self) -> bool:
        """True if sources may be read and the worker run."""
        return self.phase == WorkerPhase.RUNNING and not self.worker.awaited

    @property
    def begins(self) -> bool:
        """True if `running` in a new generation that the engine has not begun.

        `GenerationBegun` must come before the worker is run.
        """
        return self._begun

    @property
    def done(self) -> bool:
        """True if everything is complete, persisted and released, and the monitor knows."""
        return self.phase == WorkerPhase.RELEASED

    @property
    def saving(self) -> bool:
        """True if a piece of a cut can be made now: `PieceDue` should come soon."""
        return self.draft is not None or bool(self.due)

    @property
    def cut_every(self) -> float | None:
        """Seconds between cuts wanted for the pending ones; None if unspecified."""
        numbers = [cut.group for cut in self.due] + ([self.draft.group] if self.draft is not None else [])
        return min((every for n in numbers if (every := self.layout.groups[n].seconds) is not None), default=None)

    @property
    def cutting(self) -> bool:
        """True if a cut is being made, or is on its way to the store."""
        return self.draft is not None or bool(self.due) or self.waits_for_store()

    @property
    def unwritten(self) -> int:
        """Bytes of made cuts, and of made parts of cuts, not yet durable."""
        made = sum(saved.size for _, saved, _ in self.draft.states) if self.draft is not None else 0
        return made + self.journal.unwritten

    def waits_for_store(self) -> bool:
        """True if something is on its way to the store, or waits for it."""
        return bool(self.gathered) or self.journal.in_flight is not None

    def concerns(self, frame: Frame) -> bool:
        """True if a frame must come as `Received`, not straight to the engine.

        All others are the engine's own, of this generation.
        """
        return bool(frame.ends or frame.told) or frame.generation != self.worker.generation or not self.alive

    # ------------------------------------------------------------------------------------------ joining

    def _join(self) -> None:
        """Announce this worker to a monitor once its newest decision is durable.

        The monitor rests later rounds on it: the next process of this worker must not be found not to know it.
        """
        if self.checkpoints.generation > self.noted:
            self._joins_when_noted = self.alive  # without memory, what it has to say then is that it joins
            return
        paused = self.phase in (WorkerPhase.DRAINING, WorkerPhase.DRAINED)
        self._report(self._joining(self.alive, paused))
        self._reported_at = float("-inf")  # it has not heard how far this worker is; what was complete stays so
        if self.phase == WorkerPhase.RELEASED:
            self._report(Released(self.index))

    def _joining(self, alive: bool, paused: bool) -> Join:
        generation, durable = self.checkpoints.generation, self.checkpoints.durable()
        return Join(self.index, self.incarnation, generation, alive, self.layout, durable, paused)

    def _report(self, message: ToMonitor) -> None:
        self._effects.append(Report(message))

    # ------------------------------------------------------------------------------------------ what the monitor says

    def _on_heard(self, message: ToWorker) -> None:
        match message:
            case Cut():
                if message.generation == self.worker.generation and self.phase == WorkerPhase.RUNNING:
                    self.due.append(message)
                    self._asked.setdefault(message.group, self._now)
            case Watermarks():
                self._raise(message.changed)
                self._perform()
            case Drain():
                self._pause(message)
            case Decision():
                self._decide(message)
            case Refused():
                self.refused = message.reason
                self._effects.append(Fail(message.reason))
            case AskMemory() | AskCost():
                if self.running:
                    self._report(self._answer(message))

    def _answer(self, question: AskMemory | AskCost) -> ToMonitor:
        """Answer to a diagnostic question; an error in it fails the question only."""
        generation = self.worker.generation
        try:
            if isinstance(question, AskMemory):
                return CurrentMemory(self.index, generation, question.question, self._memory(), self.known_ends.all())
            return cost(question, self.layout, self.recorder, self.index, generation, self._worked)
        except Exception as error:
            return Unanswered(self.index, generation, question.question, f"{type(error).__name__}: {error}")

    def _raise(self, changed: tuple[tuple[int, int, Bound], ...]) -> None:
        for p, worker, bound in changed:
            if within(bound, self.low[worker][p]):
                continue
            self.low[worker][p] = bound
            self.known_ends.collect((worker, p), bound[0])
            for edge in self.layout.edges:
                if edge.target == p:
                    if edge.resends:
                        self.checkpoints.collect_log(edge.edge, worker, bound)
                    if edge.kept:
                        self.recorder.shipments.forget((edge.edge, worker), bound)
            if worker == self.index:
                self._let_go(p, bound)

    def _let_go(self, p: int, bound: Bound) -> None:
        """Apply a raised low-watermark of local processor `p`: collect and release."""
        self.checkpoints.collect(p, bound)
        self.recorder.collect(p, bound)
        if self.alive:
            operator = self.worker.runtimes[p].operator
            # What is replayed begins with the state as it was saved last.
            base = self.checkpoints.base(p, bound) if p in self._operator_memory.of else bound
            operator.on_watermark(to_frontier(base))
            if isinstance(operator, StagedEnd):
                self.checkpoints.published.rise(p, bound)

    def _perform(self) -> None:
        """Emit operators' effects before writing the segment that records them as done.

        Above all they release output.
        """
        if self.worker.effects:
            self._effects.append(Perform(self.worker.take_effects()))

    def _acknowledge(self) -> None:
        for node in self._acknowledged:
            self._acknowledge_before(node, self.low[self.index][self._plan.of_node[node]][0])

    def _acknowledge_before(self, node: int, epoch: int) -> None:
        if epoch > self._acknowledged[node]:
            self._acknowledged[node] = epoch
            self._effects.append(Acknowledge(node, epoch))

    def _tell_ends(self, ends: tuple[EpochEnds, ...]) -> None:
        """Send ends of epochs to all workers before progress shows these epochs over."""
        for each in ends:
            self.known_ends.hear(each)
        told = [each for each in ends if not each.alone]
        for worker in range(self.layout.workers) if told else ():
            if worker != self.index:
                frame = Frame(self.index, self.worker.generation, told=encode_ends(told))
                self._effects.append(SendFrame(worker, frame))

    def _hear_ends(self, frame: Frame) -> None:
        if frame.generation == self.worker.generation:
            for each in decode_ends(frame.told):
                self.known_ends.hear(each)

    # ------------------------------------------------------------------------------------------ rounds

    def _pause(self, message: Drain) -> None:
        if message.round <= self.round:
            return
        self.round = message.round
        if not self.alive:
            self._join()  # nothing to drain: what the store holds is all there is
            return
        self.phase = WorkerPhase.DRAINING
        self.due.clear()
        self._finish_draft()  # nothing may change before it is done
        self._peers = tuple(worker for worker in message.alive if worker != self.index)
        # What the others are told of progress must hold: what waits here may still cause something.
        for worker, frame in self.worker.take_frames(quiet=restoring.quiet(self.worker)).items():
            self._effects.append(SendFrame(worker, frame))
        for worker in self._peers:
            self._effects.append(SendFrame(worker, Frame(self.index, self.worker.generation, ends=self.round)))
        self._report_drained()

    def _on_frame(self, frame: Frame) -> None:
        if frame.ends:
            self._ended[frame.sender] = max(self._ended.get(frame.sender, 0), frame.ends)
            self._report_drained()
        elif frame.generation > self.worker.generation or not self.alive:
            self.early.append(frame)
        elif frame.told:
            self._hear_ends(frame)
        elif frame.generation == self.worker.generation:
            self.worker.receive(frame)

    def _report_drained(self) -> None:
        """Report `Drained` once all links are empty and no write is in flight."""
        if self.phase != WorkerPhase.DRAINING or self.waits_for_store():
            return
        if any(self._ended.get(worker, 0) < self.round for worker in self._peers):
            return
        self.phase = WorkerPhase.DRAINED
        memory = self._memory()
        self.completion.before = [each.upto for each in memory]
        self._report(Drained(self.index, self.round, memory, self.known_ends.all()))

    def _memory(self) -> tuple[InMemory, ...]:
        """In-memory option of each processor, as reported while drained."""
        return tuple(
            InMemory(
                upto := self.completion.at(p),
                self._acted_on(p, upto),
                self.recorder.delivered_bounds(p),
                self.recorder.sent_bounds(p),
                self.recorder.since[p],
                self.recorder.kept_bounds(p),
            )
            for p in range(len(self.layout.processors))
        )

    def _acted_on(self, p: int, upto: Bound) -> Bound:
        """N̄(p, ⊤): all times acted on as complete at local processor `p`.

        Work that waits here does not lower it.
        """
        return union(upto, self.recorder.notified_bound(p))

    def _decide(self, decision: Decision) -> None:
        mine = decision.bounds[self.index]
        if decision.generation <= self.checkpoints.generation:
            return
        self.due.clear()
        self._asked.clear()
        if decision.catch_up and not self.alive:
            self.checkpoints.apply(decision.generation, mine)
            self.gathered.append(self._joining(alive=False, paused=False))
            return
        if self.alive and self.index in decision.failed:
            raise FalkirkError(
                f"worker {self.index} was taken for lost, and generation {decision.generation} was decided without its memory: "
                "another process has taken its place. What is in the store is safe"
            )
        parts = self.worker, self.recorder, self.checkpoints, self._attributes, self._operator_memory
        # Before anything is collected: what W released may have to be published again.
        orders = RollbackPlanner(self._plan, self.layout, *parts, remembers=self.alive).orders(decision)
        redone = undone(self.recorder, mine, self._worked)
        for worker, bounds in enumerate(decision.watermarks):
            self._raise(tuple((p, worker, bound) for p, bound in enumerate(bounds)))
        self._shut_gates(mine)
        frames = carry_out(orders, *parts)
        mine_alone = [each for each in self.known_ends.all() if each.alone]  # none without memory
        self.known_ends = KnownEnds((*decision.ends, *mine_alone))
        self.known_ends.decided(decision.bounds)
        for p, bound in enumerate(mine):
            if bound is not None:
                self.completion.before[p] = bound
        self.completion.reported = None
        self._begun = True
        self.alive = True
        self.phase = WorkerPhase.RUNNING
        self.round = max(self.round, decision.generation)
        self.gathered.append(Restored(self.index, decision.generation, orders.resent, redone))
        for p, bound in enumerate(self.low[self.index]):
            self._let_go(p, bound)
        self._perform()
        self._effects.append(Rewind(orders.sources))
        self._effects += [SendFrame(worker, frame) for worker, frame in frames.items()]
        early, self.early = self.early, []
        for frame in early:
            self._on_frame(frame)

    def _shut_gates(self, mine: Sequence[Bound | None]) -> None:
        """Set gates to the durable bounds of the groups before them, after a decision."""
        for edge in self.layout.edges:
            bound = mine[edge.source]
            if edge.target in self.worker.gates and bound is not None:
                self.worker.gates[edge.target] = self.checkpoints.within(edge.source, bound)

    # ------------------------------------------------------------------------------------------ running

    def _on_turn(self, quiet: bool) -> None:
        """After a turn: report completion, cut eager groups, detect the end."""
        if self.phase == WorkerPhase.RUNNING and not self.worker.awaited:
            if quiet and (self.eager or self._now - self._reported_at >= REPORT_SECONDS):
                self._report_completed()
                self._commit()
            elif self._now - self._reported_at >= self._busy_seconds:
                self._report_completed(busy=True)  # for long: alive, and perhaps further in a loop
            if self._now >= self._weighs_at:
                self._weighs_at = self._now + self.recorder.shipments.weigh_within(self._now - self._weighed_at)
                self._weighed_at = self._now
            if self._all_released():
                self.phase = WorkerPhase.RELEASED
                self._report(Released(self.index))
        self._report_drained()

    def _report_completed(self, busy: bool = False) -> None:
        upto = self.completion.of_groups(busy)
        if upto != self.completion.reported:
            for (group, depth), channels in self._kept_here.items():
                complete = at_cut(upto[group], depth)
                for channel in channels:
                    self.recorder.shipments.forget(channel, complete)
        if upto != self.completion.reported or self._now - self._reported_at >= HEARTBEAT_SECONDS:
            self.completion.reported = upto
            self._reported_at = self._now
            self._report(Completed(self.index, self.worker.generation, upto))

    def _all_released(self) -> bool:
        return (
            self.worker.done
            and not self.worker.effects
            and not self.cutting
            and all(bound[0] == NEVER for bounds in self.low for bound in bounds)
        )

    # ------------------------------------------------------------------------------------------ cuts

    def _commit(self) -> None:
        """Cut eager groups at their completed bounds, in one segment.

        If a segment is being written, the cuts wait for the next one.
        """
        if self.eager and not self.cutting:
            assert self.completion.reported is not None
            for number in self.eager:
                at = self.completion.reported[number]
                if at > self.checkpoints.last_cut(number):
                    self.due.append(Cut(self.worker.generation, number, at))
            self._make_piece()

    def _make_piece(self) -> None:
        """Make the next piece of the pending cuts.

        Cuts without pieces, and those of eager groups, are made whole.
        """
        while self.draft is not None or self.due:
            if self.draft is None:
                sources = self.checkpoints.sources(self.due[0].group, self.due[0].at)
                if sources:
                    self._effects.append(AskPositions(sources))
                    return
                self.draft = self._begin_cut({})
            eager = self.draft.group in self.eager
            while not self.checkpoints.advance(self.draft):
                if not eager:
                    return
            self._end_cut(self.draft)

    def _begin_cut(self, positions: Positions) -> Draft:
        cut = self.due.pop(0)
        self._attributes.check(cut.group, cut.at)
        draft = self.checkpoints.cut(cut.group, cut.at, self._state, positions)
        draft.began, draft.waited = self._now, self._now - self._asked.pop(cut.group, self._now)
        return draft

    def _end_cut(self, draft: Draft) -> None:
        self.draft = None
        taken = draft.waited, self._now - draft.began
        self._made[draft.group] = self._now
        message = Durable(self.index, self.worker.generation, draft.group, draft.at, tuple(draft.xis), *taken)
        self.gathered.append(message)

    def _finish_draft(self) -> None:
        """Finish the cut in the making at once."""
        if self.draft is not None:
            while not self.checkpoints.advance(self.draft):
                pass
            self._end_cut(self.draft)

    def _state(self, p: int) -> State | None:
        return self.worker.runtimes[p].operator.state

    # ------------------------------------------------------------------------------------------ the store

    def _write(self) -> None:
        """Write the next segment, if there is a reason and none is in flight."""
        if self.journal.in_flight is not None or not (self.journal.restless or self.gathered):
            return
        self.checkpoints.carry()
        if self.journal.due:
            self.checkpoints.published.save()
        segment = self.journal.seal()
        if segment is not None:
            self.sealed, self.gathered = self.gathered, []
            self._effects.append(Put(*segment))
        else:  # what they tell of was durable before
            gathered, self.gathered = self.gathered, []
            self._report_stored(gathered)

    def _on_stored(self, name: str) -> None:
        self._effects += map(Delete, self.journal.stored(name))
        self.checkpoints.forget_decisions()
        for report in self.sealed:
            if isinstance(report, Durable):
                self._release(report.group, report.at)
        sealed, self.sealed = self.sealed, []
        self._report_stored(sealed)
        self._report_drained()

    def _report_stored(self, reports: list[ToMonitor]) -> None:
        """Send reports with a durable segment."""
        for report in reports:
            if isinstance(report, Durable):
                report = replace(report, written=self._now - self._made.get(report.group, self._now))
            self._report(report)
            if isinstance(report, Restored | Join):
                self.noted = report.generation
        if self._joins_when_noted:
            self._joins_when_noted = False
            self._join()

    def _release(self, group: int, at: Bound) -> None:
        """Open the gates behind a group with a durable cut.

        If nothing can take that back, publish its outputs, and acknowledge its input, without waiting for the monitor.
        """
        for gate in self._gates[group]:
            self.worker.open(gate, at)
        if self.layout.groups[group].alone:
            for p in self.layout.members(group):
                operator = self.worker.runtimes[p].operator
                if isinstance(operator, StagedEnd):
                    operator.on_watermark(to_frontier(at))
                    self.checkpoints.published.rise(p, at)
            self._perform()
            for node in self._acknowledged:
                if self.layout.processors[self._plan.of_node[node]].group == group:
                    self._acknowledge_before(node, at[0])
