"""Recovery agent of a worker: cuts, reports, garbage collection and rollbacks.

It makes cuts, reports them once they are durable, frees what low-watermarks allow, and carries out decisions.

A state machine without I/O or clock: `step` takes events (`recovery.agent.events`), and gives effects
(`recovery.agent.effects`). Here is the machine alone, which takes each event to its part: `reports`, `cuts`, `collection` and
`rounds`, which share the worker's `state`, and `backpressure`.
It owns the pure worker, and shares its turns: its driver (`runtime.recovery.driver`) runs the worker between the effects `Run`
and `Halt`. Sections 4.2 and 4.4 of Isard and Abadi, *Falkirk Wheel*, and docs/theory.md say what it does and why.

`check` says what is true of it between two steps (`recovery.agent.invariants`).
"""

from __future__ import annotations

from collections.abc import Iterable

from recovery.agent.effects import Effect, Fail, Halt, Saved
from recovery.agent.events import (
    Connected,
    EpochsEnded,
    Event,
    FromMonitor,
    Held,
    MateBegan,
    MateEnded,
    PieceDue,
    Received,
    Stood,
    Stored,
    TurnEnded,
)
from recovery.agent.invariants import INVARIANTS
from recovery.agent.parts import AgentParts
from recovery.agent.state import WorkerPhase
from recovery.checkpoint.records import current, key_of, newer, record_of
from recovery.layout import Layout
from recovery.metadata import NEVER
from recovery.place import Place
from recovery.protocol import (
    AskCost,
    AskMemory,
    CurrentMemory,
    Cut,
    Decision,
    Drain,
    ReadUntil,
    Refused,
    Released,
    ToMonitor,
    ToWorker,
    Unanswered,
    Watermarks,
)
from recovery.rollback.queues import cost
from recovery.store.journal import Journal
from recovery.store.segments import Section, SegmentMeta
from timely.dataflow.plan import Plan
from timely.errors import FalkirkError
from timely.story import Story, check

_WITHIN_A_TURN = (Received, PieceDue, EpochsEnded)
"""Events followed by `TurnEnded`: one write serves all of a turn."""

_OFTEN = (TurnEnded, PieceDue)
"""Frequent events, recorded in the story only if more follows than `Saved`."""


class Agent(AgentParts):
    """State machine of recovery in the process at `place`.

    Args:
        incarnation: tells this process from earlier ones at the same place.
        journal: fenced, and read by its caller (`recovery.store.reading.take_over`).
        segments: what earlier incarnations wrote, all that is needed, in order; none for a new worker.
        most: bytes that may wait for the monitor while it is away before sources pause; half as many that were sent are kept.
        patience: seconds without a message of the monitor after which it counts as away.
        copies: processes of each worker.
        held: segments that the mate whose place this process takes had in memory only.

    Raises FalkirkError when `segments` are of another program.
    """

    def __init__(
        self,
        plan: Plan,
        layout: Layout,
        place: Place,
        incarnation: int,
        journal: Journal,
        segments: Iterable[tuple[SegmentMeta, list[Section]]] = (),
        most: int = 256 << 20,
        patience: float = 10.0,
        copies: int = 1,
        held: Iterable[tuple[SegmentMeta, list[Section]]] = (),
    ) -> None:
        super().__init__(plan, layout, place, incarnation, journal, most, patience, copies)
        self.story = Story()
        self.refused: str | None = None
        self._weighs_at = self._weighed_at = float("-inf")
        self._records = 0
        """Records handled up to the last turn."""
        self._load(segments, held)

    def _load(
        self,
        segments: Iterable[tuple[SegmentMeta, list[Section]]],
        held: Iterable[tuple[SegmentMeta, list[Section]]],
    ) -> None:
        read = [(meta, sections, [record_of(section.head) for section in sections]) for meta, sections in segments]
        stored = [
            (meta.number, key_of(record), (record, section))
            for meta, sections, records in read
            for record, section in zip(records, sections)
        ]
        in_memory = [
            (meta.number, key_of(record), (record, section))
            for meta, sections in held
            for section in sections
            for record in (record_of(section.head),)
        ]
        on_disk, beside = newer(current(stored), current(in_memory))
        self.checkpoints.load([(record, section.payload) for record, section in (*on_disk, *beside)])
        live, replaced = self.checkpoints.live_keys(), {key_of(record) for record, _ in beside}
        for meta, sections, records in read:
            keys = [key_of(record) for record in records]
            known = [key if key in live and key not in replaced else None for key in keys]
            self.journal.recovered(meta, sections, known)
        self.journal.resume()
        self.journal.waits = True
        for record, section in beside:
            if key_of(record) in live:
                self.journal.add(key_of(record), section)
        self.journal.waits = False
        self.noted = self.checkpoints.generation
        if not on_disk:
            self.checkpoints.open()

    def step(self, now: float, *events: Event) -> list[Effect]:
        """Process simultaneous events in order; return effects to carry out in order."""
        self.now = now
        try:
            for event in events:
                self._take(event)
            if not isinstance(events[-1], _WITHIN_A_TURN):
                self.reports.write()
        except Exception as error:
            if not isinstance(error, FalkirkError):
                self.story.tell(now, events, self.effects)
                error.add_note(str(self.story))
            raise
        effects, self.effects = self.effects, []
        if not isinstance(events[-1], _OFTEN) or any(not isinstance(effect, Saved) for effect in effects):
            self.story.tell(now, events, effects)
        return effects

    def check(self) -> None:
        """Check the invariants between two steps; raise InvariantBroken."""
        check(self, INVARIANTS, self.story)

    def _take(self, event: Event) -> None:
        match event:
            case TurnEnded(quiet, worked):
                if self.recorder.records != self._records:
                    self._records = self.recorder.records
                    self.worked += worked
                self._on_turn(quiet)
            case FromMonitor(message):
                self.backpressure.received()
                self._on_message(message)
                self.collection.acknowledge()
            case Received(frame):
                self.rounds.on_frame(frame)
            case PieceDue(rows, positions):
                self.checkpoints.piece_rows = rows
                self.cuts.make_piece(positions)
                if (
                    positions and not self.cuts.pending
                ):  # begun and ended in one piece, as commits are: they wait for nothing
                    self.reports.write()
            case Stored(name):
                for cut in self.reports.stored(name):
                    self.collection.release(cut.group, cut.at)
                self.reports.send_sealed()
                self.rounds.report_drained()
            case EpochsEnded(ends):
                self.rounds.tell_ends(ends)
            case Held(name):
                self.reports.held(name)
                self.rounds.report_drained()
            case MateBegan():
                self.reports.holding.begin()
            case MateEnded():
                self.reports.holding.end()
                self.rounds.report_drained()
            case Stood(epoch):
                self.savepoint.stood(epoch)
            case Connected():
                self.backpressure.received()
                self.reports.join()

    def _on_message(self, message: ToWorker) -> None:
        match message:
            case Cut():
                self.cuts.ask(message)
            case ReadUntil():
                self.savepoint.order(message)
            case Watermarks():
                self.collection.raise_low(message.changed)
                self.collection.raise_memory(message.memory)
                self.perform()
            case Drain():
                self.rounds.pause(message)
            case Decision():
                self.rounds.decide(message)
            case Refused():
                self.refused = message.reason
                self.effects.append(Fail(message.reason))
            case AskMemory() | AskCost():
                if self.running:
                    self.report(self._answer(message))

    def _answer(self, question: AskMemory | AskCost) -> ToMonitor:
        """Answer to a diagnostic question; an error in it fails the question only."""
        generation = self.worker.generation
        try:
            if isinstance(question, AskMemory):
                memory = self.rounds.memory()
                return CurrentMemory(self.place, generation, question.question, memory, self.known_ends.all())
            return cost(question, self.layout, self.recorder, self.place, generation, self.worked)
        except Exception as error:
            return Unanswered(self.place, generation, question.question, f"{type(error).__name__}: {error}")

    def _on_turn(self, quiet: bool) -> None:
        """After a turn: report completion, cut eager groups, detect the end."""
        if self.running:
            if self.reports.completed(quiet):
                self.cuts.commit()
            if self.now >= self._weighs_at:
                self._weighs_at = self.now + self.recorder.shipments.weigh_within(self.now - self._weighed_at)
                self._weighed_at = self.now
            if self._all_released():
                self.phase = WorkerPhase.RELEASED
                self.effects.append(Halt(done=True))
                self.report(Released(self.place))
            self.savepoint.look()
            self.backpressure.look()
        self.rounds.report_drained()

    def _all_released(self) -> bool:
        return (
            self.worker.done
            and not self.worker.effects
            and not self.cuts.pending
            and not self.reports.waits_for_store()
            and all(bound[0] == NEVER for bounds in self.low for bound in bounds)
        )
