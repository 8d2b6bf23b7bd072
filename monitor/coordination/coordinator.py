"""Coordinator: leads rollback rounds, chooses cuts, and keeps low-watermarks.

A state machine without I/O or clock: `step` takes events, which are what workers say and what happened to them
(`monitor.coordination.events`), and gives effects, which its driver carries out (`monitor.coordination.effects`). The start
of a job, its restart and a failure are one thing, a *round*: gather what everybody can be restored to, decide, restore.

A failure in any phase begins a new round with a higher number, on top of the last decision (section 3.6 of *Falkirk
Wheel*, with F*'(p)). While a decision is on its way to the journal nobody can know whether it counts, so a failure then
waits for it, and the new round begins when everybody has been sent the decision.

`check` says what is true of it between two steps (`monitor.coordination.invariants`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from monitor.coordination.cuts import Cuts, cut_event
from monitor.coordination.effects import Answered, Effect, Fail, Finished, Send
from monitor.coordination.events import Asked, Began, Event, Expected, FromWorker, Hurried, Restarting, Stored, Ticked
from monitor.coordination.handshake import another_program, refusal
from monitor.coordination.intervals import Intervals
from monitor.coordination.invariants import INVARIANTS
from monitor.coordination.records import (
    KeptDecision,
    KeptEvent,
    KeptFinished,
    KeptLayout,
    KeptRounds,
    KeptWatermarks,
    Record,
    SavedJob,
    Value,
)
from monitor.coordination.savepoint import Savepoint
from monitor.coordination.standstill import Standstill, stuck_event
from monitor.coordination.state import JobState
from monitor.coordination.supervision import (
    Busy,
    Fence,
    Happened,
    Lost,
    Note,
    Noted,
    ProgramFailed,
    Respawn,
    Saving,
    Stopping,
)
from monitor.coordination.timeline import Timeline, gap_event
from monitor.coordination.workers import JobPhase, Presence, WorkerStatus
from monitor.explain.exposure import Danger, Fate
from monitor.explain.rollback import NoAccount, RollbackAccount
from monitor.explain.verdict import OVER
from monitor.explain.what_if import OpenQuestions
from recovery.epoch_ends import KnownEnds
from recovery.errors import NoSolutionError, ReportError
from recovery.incomplete import merged
from recovery.layout import Layout
from recovery.metadata import NEVER, Bound
from recovery.place import Place
from recovery.protocol import (
    LIVE,
    Begun,
    Completed,
    Cost,
    CurrentMemory,
    Cut,
    Decision,
    Drain,
    Drained,
    Durable,
    Flushed,
    Join,
    Mate,
    Observed,
    ReadUntil,
    Refused,
    Released,
    Restored,
    Settled,
    ToMonitor,
    Unanswered,
    Watermarks,
)
from timely.story import Story, check

ROUNDS = 1000
"""Round numbers reserved at a time, so that a round need not wait for a write."""

LAG_SECONDS = 0.1
"""Longest delay of a write of W without anybody waiting for it, in seconds."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Deadlines and limits, in seconds unless another unit is named."""

    copies: int = 1
    """Processes of each worker: one at work, the others follow it."""
    awaited: tuple[Place, ...] = ()
    """Places with a process already, so expected to join by themselves.

    That is so after the death of an earlier monitor, or because the driver has started them. All others are asked
    for by `Respawn` at once.
    """
    join_seconds: float = 60.0
    """Limit from the start of a process, or of the monitor, to its Join.

    Also from a Decision to catch up with to the next Join.
    """
    pause_seconds: float = 15.0
    restore_seconds: float = 120.0
    heartbeat_seconds: float = 10.0
    """Longest silence of a running worker before it counts as failed."""
    attempts: int = 5
    """Failures at one place before the job fails, without a risen low-watermark."""
    accept: tuple[str, ...] = ()
    """Operators accepted with other functions than those that wrote the store."""
    stuck_seconds: float = math.inf
    """Longest time without completion in a running job before it is examined."""
    instead: str = ""
    """End of the replaced monitor of this run, in words; empty for the first one."""


class Coordinator(JobState):
    """State machine of the coordinator.

    See the module. Time is in seconds, from any start, and must not go back.

    Args:
        layout: of the program that is run now.
        saved: what the monitor's own journal holds; None or empty for a new job.
        settings: see there.
        now: the time.
    """

    def __init__(self, layout: Layout, saved: SavedJob | None, settings: Settings, now: float) -> None:
        saved = saved or SavedJob()
        self._wrong = another_program(saved.layout, layout, settings.accept)
        if self._wrong is not None:
            saved = SavedJob()
        super().__init__(layout, saved, settings.copies, settings.awaited, now)
        self.settings = settings
        self._saved = saved
        """Journal's content at the beginning."""
        self.story = Story()
        self._intervals = Intervals(layout)
        self._questions = OpenQuestions()
        self.standstill = Standstill(layout, self.options.topology, settings.stuck_seconds, now)
        self._timeline = Timeline(saved.events)
        self.judge = self._timeline.judge
        """Verdict on the job, by its timeline so far."""
        self._last_words = False
        """True if the reason for the job's end is still to be journaled."""
        self._effects: list[Effect] = []
        self._now = now
        self._trouble_since = now
        self._again = False
        self._deciding: set[Place] = set()
        self._account = NoAccount()
        """Account of the present rollback, until all have caught up."""
        self._expected: Mapping[int, tuple[Danger, Fate]] = {}
        """Expected cost and fate of the death of each worker."""
        self._words: dict[Place, str] = {}
        """Last note of the process at each place."""
        self._output: dict[Place, str] = {}
        """Last lines printed by the lost process of each place."""
        self._savepoint: Savepoint | None = None
        """Savepoint under way; the job stops there."""
        self._limited = False
        """True if sources may stand still for a savepoint."""
        self._behind: list[list[Bound]] | None = None
        self._ran_here = bool(settings.instead)
        """True if the job has run before in this run, so that a round is no start."""
        self._ran_before = saved.decision is not None
        """True if the job has run before, in this monitor or an earlier one.

        Then something failed, or it was stopped.
        """

    def step(self, now: float, *events: Event) -> list[Effect]:
        """Process simultaneous events in order; return effects to carry out in order."""
        self._now = now
        try:
            for event in events:
                self._take(event)
            if self.phase is not JobPhase.RUNNING:
                text = "the job has not gone on as it was meanwhile: ask again when it runs"
                self._effects += self._questions.give_up(text)
            write = self.commit.take(now) if self.phase is not JobPhase.OVER or self._last_words else None
            if write is not None:
                self._effects.append(write)
        except Exception as error:
            self.story.tell(now, events, self._effects)
            error.add_note(str(self.story))
            raise
        effects, self._effects = self._effects, []
        if effects or not all(isinstance(event, Ticked) for event in events):
            self.story.tell(now, events, effects)
        return effects

    def check(self) -> None:
        """Check the invariants between two steps; raise InvariantBroken."""
        if self.phase is not JobPhase.OVER:
            check(self, INVARIANTS, self.story)

    def _take(self, event: Event) -> None:
        match event:
            case Asked(number, failed):
                self._on_asked(number, failed)
            case Stored(ticket):
                for record in self.commit.stored(ticket):
                    self._on_stored(record)
            case _ if self.phase is JobPhase.OVER:
                pass
            case FromWorker(message, incarnation):
                self._on_message(message, incarnation)
            case Ticked():
                self._on_ticked()
            case Lost(place, incarnation, reason, output):
                self._on_lost(place, incarnation, reason, output)
            case ProgramFailed(place, text, processor, trace):
                self._note("error", {**place.fields, "text": text, "processor": processor, "trace": trace}, -math.inf)
            case Stopping(by):
                self._note("stopped", {"by": by}, -math.inf)
            case Saving(by, seconds):
                self._on_saving(by, seconds)
            case Busy():
                if event.place.at_work:
                    self.standstill.busy(event, self._now)
            case Expected(by_worker):
                self._expected = by_worker
            case Happened(kind, data):
                self._note(kind, data, self._now + LAG_SECONDS)
                if kind == "takeover":
                    self._account.taken_over(data["worker"])
            case Noted(place, text):
                self._words[place] = text
                self._event("note", {**place.fields, "text": text})
            case Began():
                self._on_began()
            case Hurried():
                self.cuts.hurry()
                self._cut()
            case Restarting(place, reason):
                status = self.workers[place]
                if status.presence is Presence.ALIVE and self.phase is JobPhase.RUNNING:
                    self._effects.append(Fence(status.place, status.incarnation, reason))
                    self._lose([(status, reason)])

    # ------------------------------------------------------------------------------------------ the driver's side

    def _on_began(self) -> None:
        if self._wrong is not None:
            self._fail(self._wrong)
            return
        if self._saved.finished:
            self.phase = JobPhase.OVER
            self._effects.append(Finished())
            return
        for status in self.workers:
            status.must("join", self._now + self.settings.join_seconds)
            if status.presence is Presence.ABSENT:
                self._effects.append(Respawn(status.place))
        self._tell_of_the_start()
        if self.layout != self._saved.layout:
            self.commit.add(KeptLayout(self.layout))
        self.commit.add(KeptRounds(self.round + ROUNDS))

    def _tell_of_the_start(self) -> None:
        """Record the start of a run, and the end of the one before if unrecorded.

        A monitor that takes the place of another records that instead.
        """
        if self.settings.instead:
            self._note("monitor", {"text": self.settings.instead})
            return
        if self._saved.events and self.judge.verdict(True, self._now).state not in OVER:
            self._note("killed", {"last": self.judge.last})
        self._note("began", {"workers": self.layout.workers})

    def _on_message(self, message: ToMonitor, incarnation: int | None) -> None:
        if message.place not in self.workers:
            copies = f", with {self.settings.copies} processes each" if message.place.copy else ""
            text = f"there is no {message.place}: the job has {self.layout.workers}{copies}"
            self._effects.append(Send(message.place, Refused(text)))
            return
        status = self.workers[message.place]
        if isinstance(message, Join):
            self._on_join(status, message)
        elif status.counts(incarnation):
            status.last_message = self._now
            try:
                self._handle(status, message)
            except ReportError as error:
                self._suspect([(status, f"its {type(message).__name__} cannot be: {error}")])

    def _handle(self, status: WorkerStatus, message: ToMonitor) -> None:
        if isinstance(message, Drained):
            self._on_drained(status, message)
        elif isinstance(message, Restored):
            self._on_restored(status, message)
        elif not status.place.at_work:
            pass  # what completes, is durable and is released is what processes at work say
        elif isinstance(message, Completed):
            self._on_completed(status, message)
        elif isinstance(message, Durable):
            self._on_durable(status, message)
        elif isinstance(message, Flushed):
            if message.generation == self.generation and self.phase is not JobPhase.DECIDING:
                self.options.flushed(status.worker, message.xis)
                self._raise_watermarks()
        elif isinstance(message, Mate):
            self.options.mate(status.worker, message.there)
            self._event("standby", {"worker": status.worker, "there": message.there})
            self._raise_watermarks()
        elif isinstance(message, Released):
            self._on_released(status)
        elif isinstance(message, Begun | Settled):
            self._on_savepoint(status, message)
        elif isinstance(message, Observed):
            self.standstill.observed(message, self._now)
        elif isinstance(message, CurrentMemory | Cost | Unanswered) and message.generation == self.generation:
            self._effects += self._questions.hear(message)

    def _on_lost(self, place: Place, incarnation: int, reason: str, output: str = "") -> None:
        if place not in self.workers or self.workers[place].has_lost(incarnation):
            return  # none of the job, or an earlier process, which is accounted for
        status = self.workers[place]
        status.incarnation, self._output[place] = incarnation, output
        self._lose([(status, reason)])

    def _on_ticked(self) -> None:
        silence = self.settings.heartbeat_seconds if self.phase is JobPhase.RUNNING else None
        overdue = [(status, why) for status in self.workers if (why := status.overdue(self._now, silence)) is not None]
        if overdue:
            self._suspect(overdue)
        self._effects += self._questions.tick(self._now)
        if self._savepoint is not None and self._now >= self._savepoint.due and not self._savepoint.over:
            self._give_savepoint_up(self._savepoint)
        self._watch()
        self._cut()

    def _watch(self) -> None:
        """Report a standstill of the job once, and its end."""
        if self.phase is not JobPhase.RUNNING:
            return
        before = self.standstill.halt
        halt, question = self.standstill.look(self._now)
        if question is not None:
            self._effects += [Send(status.place, question) for status in self.workers.at_work()]
        self.standstill.halt = halt
        if halt is None and before is not None:
            self._note("moves", {"seconds": round(self._now - before.since, 1)}, self._now + LAG_SECONDS)
        elif halt is not None and (
            before is None or (before.processor, before.worker) != (halt.processor, halt.worker)
        ):
            self._note("stuck", stuck_event(self.layout, halt, self._now), self._now + LAG_SECONDS)

    def _on_asked(self, number: int, failed: tuple[tuple[int, int], ...]) -> None:
        if self.phase is JobPhase.RUNNING:
            self._effects += self._questions.ask(number, self.options, failed, self._now)
        else:
            self._effects.append(
                Answered(number, f"the job is not running now ({self.phase.value}): ask again when it is")
            )

    def _on_stored(self, record: Record) -> None:
        """Continue after a record became durable."""
        match record:
            case _ if self.phase is JobPhase.OVER:
                pass
            case KeptRounds(last):
                self.reserved = last
                self._assemble()
            case KeptDecision():
                self._decided(record)
            case KeptWatermarks(risen):
                self._announce(risen)
            case KeptFinished():
                self._finish()
            case KeptEvent("error"):
                self._effects.append(Fail(record.data["text"]))
            case KeptEvent("stopped"):
                self._effects.append(Fail(f"stopped by {record.data['by']}"))

    # ------------------------------------------------------------------------------------------ joining

    def _on_join(self, status: WorkerStatus, join: Join) -> None:
        known = status.incarnation
        if status.has_lost(join.incarnation):
            return  # it was given up, and its replacement is on the way
        if status.presence in (Presence.JOINED, Presence.ALIVE) and join.incarnation == known:
            self._suspect([(status, "it joined twice")])
            return
        with_memory = join.alive and join.generation > 0
        if with_memory and status.presence is not Presence.AWAITED:
            self._effects.append(Fence(status.place, join.incarnation, "it was given up"))
            if status.presence is Presence.ABSENT:
                status.incarnation = join.incarnation
            return
        if status.presence in (Presence.BEHIND, Presence.JOINED, Presence.ALIVE) and join.incarnation > known:
            self._lose([(status, "another process took its place")], respawn=False)
            if self.phase is JobPhase.OVER:
                return
        status.incarnation = join.incarnation
        refused = refusal(join, self.layout, self.decision)
        if refused is not None:
            self._effects.append(Send(status.place, Refused(refused)))
            self._fail(refused)
            return
        behind = join.generation < self.generation
        if status.place.at_work:
            if behind and not with_memory:
                self._catch_up(status)
                return
            if not self._takes_options(status, join):
                return
        status.due = None
        if with_memory:
            self._limited = True
            status.presence = Presence.ALIVE
            status.paused = join.paused
            status.restored = not behind
            if behind and self.decision is not None:
                if status.place.at_work:
                    self.options.cut_worker(status.worker, self.decision.bounds[status.worker])
                self._decide_for(status)
        else:
            status.presence = Presence.JOINED
            if status.place.at_work:
                self._account.joined(status.worker, self._now)
        self._assemble()
        self._decide()

    def _takes_options(self, status: WorkerStatus, join: Join) -> bool:
        """Take the options of a process with a journal; False if they cannot be."""
        try:
            wrong = self.options.join(status.worker, join.durable, join.held, join.mate)
        except ReportError as error:
            self._suspect([(status, f"what it offers cannot be: {error}")])
            return False
        if wrong is not None:
            self._fail(wrong)
        return wrong is None

    def _assemble(self) -> None:
        """Resume if all workers run, or begin a round, once all processes are known."""
        if (
            self.phase is not JobPhase.ASSEMBLING
            or self.reserved == self.round
            or any(status.presence is Presence.AWAITED for status in self.workers)
        ):
            return
        if all(status.restored and not status.paused for status in self.workers if status.takes_part):
            self._note("resumed", {"generation": self.generation})
            self._run()
            low = Watermarks(self._all_watermarks())
            for status in self.workers.alive():
                self._effects.append(Send(status.place, low))
            return
        self._begin()

    # ------------------------------------------------------------------------------------------ failures

    def _suspect(self, losses: list[tuple[WorkerStatus, str]]) -> None:
        """Fence and replace processes suspected of having failed."""
        for status, reason in losses:
            there = -1 if status.presence is Presence.ABSENT else status.incarnation
            self._effects.append(Fence(status.place, there, reason))
        self._lose(losses)

    def _lose(self, losses: list[tuple[WorkerStatus, str]], respawn: bool = True) -> None:
        if self.phase is JobPhase.CLOSING:
            return  # each had said that it is done for good
        rolls_back = any(status.place.at_work for status, _ in losses)
        drains = any(status.takes_part for status, _ in losses)
        if self.phase is JobPhase.RUNNING and rolls_back:
            self._trouble_since = self._now
            self._account = RollbackAccount(self.layout, self.options.upto, self._now, self._expected)
        for status, reason in losses:
            status.failures += 1
            words, output = self._words.pop(status.place, ""), self._output.pop(status.place, "")
            if status.place.at_work:
                self._account.failed(status.worker, reason, words, self._now, output)
            self._note(
                "failure",
                {**status.place.fields, "incarnation": status.incarnation, "reason": reason, "output": output},
            )
            if status.failures >= self.settings.attempts:
                self._fail(
                    f"{status.place} has failed {status.failures} times, and nothing more became durable meanwhile; "
                    f"at last: {reason}",
                    lost=True,
                )
                return
            status.leave()
            status.must("join", self._now + self.settings.join_seconds)
            self._deciding.discard(status.place)
            if respawn:
                self._effects.append(Respawn(status.place))
        if self.phase is JobPhase.ASSEMBLING:
            self._assemble()
        elif self.phase is JobPhase.GATHERING:
            if drains:  # the others wait for its end marker
                self._begin()
        elif not rolls_back:
            self._go_on()  # nobody rests on a copy
        elif self.phase is JobPhase.DECIDING:
            self._again = True
        else:
            self._begin()

    def _fail(self, reason: str, lost: bool = False) -> None:
        self._note("failed", {"reason": reason}, -math.inf)
        self._last_words = self._wrong is None  # the journal of another program is none of ours
        self._effects.append(Fail(reason, lost))
        self.phase = JobPhase.OVER

    # ------------------------------------------------------------------------------------------ rounds

    def _begin(self) -> None:
        """Begin a round, with all memory reports of earlier rounds void.

        The living may have sent since.
        """
        self.phase = JobPhase.GATHERING
        if self._ran_here and not isinstance(self._account, RollbackAccount):
            self._account = RollbackAccount(self.layout, self.options.upto, self._trouble_since)
        self._account.began()
        number = self._next_round()
        alive = self.workers.alive()
        who = tuple(status.place for status in alive)
        copies: list[Value] = [list(place) for place in who if not place.at_work]
        facts: dict[str, Value] = {"round": number, "alive": [place.worker for place in who if place.at_work]}
        self._event("round", {**facts, "copies": copies} if copies else facts)
        for status in alive:
            status.memory = None
            limit = self.settings.pause_seconds + (0 if status.restored else self.settings.restore_seconds)
            status.must("drain its links", self._now + limit)
            self._effects.append(Send(status.place, Drain(number, who)))
        self._decide()

    def _next_round(self) -> int:
        assert self.round < self.reserved, "no number is reserved"
        self.round += 1
        if self.reserved - self.round < ROUNDS // 2:
            self.commit.add(KeptRounds(self.round + ROUNDS))
        return self.round

    def _on_drained(self, status: WorkerStatus, message: Drained) -> None:
        if self.phase is JobPhase.GATHERING and message.round == self.round and status.memory is None:
            self.options.memory(status.worker, message.memory, message.ends)
            status.memory, status.ends = message.memory, message.ends
            status.due = None
            if status.place.at_work:
                self._account.drained(status.worker, self._now)
            self._decide()

    def _decide(self) -> None:
        """Solve and journal a decision, once all have reported their options.

        A copy with memory is waited for as well: it must have all that is under way.
        """
        if self.phase is not JobPhase.GATHERING or not self.workers.are(Presence.ALIVE, Presence.JOINED):
            return
        alive = self.workers.alive()
        if any(status.memory is None for status in alive):
            return
        memory = {
            status.worker: status.memory
            for status in alive
            if status.place.at_work and status.memory is not None  # that of copies counts once they take over
        }
        known = KnownEnds(each for status in alive for each in status.ends)
        try:
            bounds = self.options.decide(memory, known=known)
        except NoSolutionError as error:
            self._fail(str(error))
            return
        failed = tuple(status.worker for status in self.workers.at_work() if status.presence is Presence.JOINED)
        held = self.options.held(bounds, self.decision.held if self.decision is not None else ())
        known.decided(bounds)
        ends = tuple(each for each in known.all() if not each.local_only)
        current = self.options.current_epoch(memory)
        before = () if self.decision is None else self.decision.gaps
        gaps = merged((*before, *self.options.gaps(bounds, memory)))
        decision = KeptDecision(self.round, self.generation, bounds, failed, held, ends, current, gaps)
        self.phase = JobPhase.DECIDING
        self._again = False
        self._account.gathered(memory, self._now)
        self._deciding = {status.place for status in self.workers if status.takes_part}
        self.commit.add(decision)

    def _decided(self, decision: KeptDecision) -> None:
        """Send the decision, now durable and so binding, whatever has happened meanwhile."""
        known = () if self.decision is None or not self._ran_here else self.decision.gaps
        self.decision = decision
        self.generation = decision.generation
        self._expected = {}
        self.options.cut(decision.bounds)
        self._account.decided(decision.generation, decision.bounds, decision.failed, self._now)
        rolled_back = sum(bound is not LIVE for bounds in decision.bounds for bound in bounds)
        self._note(
            "decided",
            {"generation": self.generation, "failed": list(decision.failed), "rolled_back": rolled_back},
        )
        for gap in decision.gaps:
            if gap not in known:
                self._note("gap", gap_event(self.layout, gap))
        for status in self.workers:
            if status.place in self._deciding:
                status.presence = Presence.ALIVE
                self._decide_for(status)
            elif status.place.at_work and status.presence is Presence.JOINED:
                self._catch_up(status)  # it was lost after it was decided what it restores
        self.phase = JobPhase.RESTORING
        if self._again:
            self._begin()

    def _decide_for(self, status: WorkerStatus) -> None:
        status.restored = status.released = False
        status.memory = None
        status.must("restore what was decided", self._now + self.settings.restore_seconds)
        self._effects.append(Send(status.place, self._last_decision(catch_up=False)))

    def _catch_up(self, status: WorkerStatus) -> None:
        status.presence = Presence.BEHIND
        status.must("note the last decision and join again", self._now + self.settings.join_seconds)
        self._effects.append(Send(status.place, self._last_decision(catch_up=True)))

    def _last_decision(self, catch_up: bool) -> Decision:
        decision = self.decision
        assert decision is not None
        parts = decision.generation, decision.bounds, decision.failed
        more = decision.held, decision.ends, decision.current
        return Decision(*parts, self.low_watermarks, catch_up, *more, gaps=decision.gaps)

    def _on_restored(self, status: WorkerStatus, message: Restored) -> None:
        if message.generation != self.generation or status.restored:
            return
        status.restored = True
        if status.place.at_work:
            self._account.restored(message, self._now)
        if self.phase is not JobPhase.GATHERING:  # otherwise it has been told to pause, and that deadline stays
            status.due = None
        self._go_on()

    def _go_on(self) -> None:
        """Run the job once all participants have restored the decision."""
        if self.phase is JobPhase.RESTORING and all(each.restored for each in self.workers if each.takes_part):
            seconds = self._now - self._trouble_since
            start = not self._ran_here
            facts: dict[str, Value] = {"generation": self.generation, "seconds": seconds, "start": start}
            if (rollback := self._account.finish(self._now)) is not None:
                facts["rollback"] = rollback
            self._note("restored", facts)
            self._run()

    def _run(self) -> None:
        self.phase = JobPhase.RUNNING
        self._ran_here = True
        self.standstill.begin(self._now)
        for status in self.workers:
            status.last_message = self._now
        self._behind = last = self.options.last_cuts()
        beyond = self.options.beyond_cuts(self.decision.returned()) if self.decision is not None else ()
        saved = self.options.saved_cuts()
        self.cuts = Cuts(self.layout.groups, last, self._now, saved, early=self._ran_before, beyond=beyond)
        self._ran_before = True
        self._intervals = Intervals(self.layout)
        self._raise_watermarks()
        self._close()
        self._limit()

    def take_caught_up(self) -> dict[str, Value] | None:
        """End of a rollback's account, once: all have completed what they had before."""
        if self.phase is not JobPhase.RUNNING:
            return None
        found = self._account.caught_up(self.options.upto, self._now)
        if found is not None:
            self._account = NoAccount()
        return found

    # ------------------------------------------------------------------------------------------ checkpoints

    def _on_completed(self, status: WorkerStatus, message: Completed) -> None:
        if message.generation == self.generation and self.phase is not JobPhase.DECIDING:
            self.options.complete(status.worker, message.upto)
            self.standstill.completed(status.worker, message.upto, self._now)
            if self.options.ended or (self._behind is not None and self.options.reached(self._behind)):
                # What keeps nothing is now as far as the checkpoints that were there already. There may be no further one.
                self._behind = None
                self._raise_watermarks()
            self._cut()

    def _cut(self) -> None:
        if self.phase is not JobPhase.RUNNING:
            return
        for group, at, workers in self.cuts.due(self.options.minimum(), self._now):
            self._event("cut", cut_event(group, at))
            self._intervals.announced(group, at, self._now)
            for worker in workers:
                self._effects.append(Send(Place(worker), Cut(self.generation, group, at)))

    def _on_durable(self, status: WorkerStatus, message: Durable) -> None:
        if message.generation != self.generation or self.phase is JobPhase.DECIDING:
            return
        self.options.durable(status.worker, message.group, message.at, message.xis, message.held)
        began = self.cuts.durable(message.group, status.worker, message.at)
        cut = cut_event(message.group, message.at)
        phases = {"waited": message.waited, "made": message.made, "written": message.written}
        written: dict[str, Value] = {"bytes": message.size} if message.size else {}
        if not message.held:
            self._event("durable", {"worker": status.worker, **cut, **phases, **written})
        if began is not None:
            self._event("checkpoint", {**cut, "seconds": self._now - began})
            note = self._intervals.durable(message, self._now - began, self._now)
            if note is not None:
                self._event("slow", {**cut, "worker": status.worker, "seconds": self._now - began, **phases})
                self._effects.append(Note(note))
        # Nobody waits for W to hold a commit that is its own low-watermark; written down each time, it would take the disk
        # from the next commit.
        independent = self.layout.groups[message.group].independent and message.at[0] != NEVER
        self._raise_watermarks(by=self._now + LAG_SECONDS if independent else -math.inf)
        self._cut()

    def _raise_watermarks(self, by: float = -math.inf) -> None:
        if self.phase is not JobPhase.RUNNING:
            return  # not all that W rests on need be known
        if self.options.raise_watermarks():
            self.commit.add(KeptWatermarks(self.options.watermarks), by)
        risen = self.options.raise_memory()
        if risen:  # it is not journaled: a new monitor finds it again
            workers = self.layout.workers
            low = Watermarks((), tuple((flat // workers, flat % workers, bound) for flat, bound in risen))
            for status in self.workers.alive():
                self._effects.append(Send(status.place, low))

    def _announce(self, risen: tuple[tuple[Bound, ...], ...]) -> None:
        before, self.low_watermarks = self.low_watermarks, risen
        changed = tuple((p, w, bound) for p, w, bound in self._all_watermarks() if before[w][p] != bound)
        self._event("watermarks", {"risen": len(changed)})
        for safe in self._intervals.contained(self.low_watermarks, self._now):
            interval: dict[str, Value] = {} if safe.since_last is None else {"interval": safe.since_last}
            self._event("safe", {**cut_event(safe.group, safe.at), "seconds": safe.seconds, **interval})
        for status in self.workers:
            status.failures = 0
        for status in self.workers.alive():
            self._effects.append(Send(status.place, Watermarks(changed)))

    def _all_watermarks(self) -> tuple[tuple[int, int, Bound], ...]:
        return tuple((p, w, bound) for w, bounds in enumerate(self.low_watermarks) for p, bound in enumerate(bounds))

    # ------------------------------------------------------------------------------------------ savepoints

    def _on_saving(self, by: str, seconds: float) -> None:
        if self._savepoint is None and self.phase is not JobPhase.CLOSING:
            self._savepoint = Savepoint(by, self._now, self._now + seconds)
            self._note("saving", {"by": by}, self._now + LAG_SECONDS)
            self._limit()

    def _limit(self) -> None:
        """Order workers to read up to the savepoint only, or on if there is none."""
        if self.phase is not JobPhase.RUNNING or not (self._savepoint is not None or self._limited):
            return
        if self._savepoint is not None:
            self._savepoint.hold(self.cuts.furthest())
        order = ReadUntil(self.generation, NEVER) if self._savepoint is None else self._savepoint.order(self.generation)
        self._limited = self._savepoint is not None
        self.cuts.until = NEVER if order.epoch is None else order.epoch
        for status in self.workers.at_work():
            self._effects.append(Send(status.place, order))

    def _on_savepoint(self, status: WorkerStatus, message: Begun | Settled) -> None:
        savepoint, workers = self._savepoint, self.layout.workers
        if not 0 <= message.epoch <= NEVER:
            raise ReportError(f"epoch {message.epoch} of a savepoint")
        if savepoint is None or message.generation != self.generation or self.phase is not JobPhase.RUNNING:
            return
        if isinstance(message, Begun):
            if savepoint.begun(status.worker, message.epoch, workers, self.cuts.furthest()):
                self._limit()
        elif savepoint.settled(status.worker, message.epoch, workers):
            savepoint.over = True
            self._note("stopped", savepoint.end(), -math.inf)

    def _give_savepoint_up(self, savepoint: Savepoint) -> None:
        why = savepoint.missing(self.layout, self.options, self._now)
        self._savepoint = None
        self._limit()
        self._note("unsaved", {"by": savepoint.by, "why": why}, self._now + LAG_SECONDS)
        self._effects.append(Note(f"{why}. The job goes on"))

    # ------------------------------------------------------------------------------------------ the end

    def _on_released(self, status: WorkerStatus) -> None:
        """Accept a worker's release in this generation; close the job after the last.

        A worker reports it again after each generation. It reports it once to a new monitor, right after it has
        joined; the other workers may not have joined yet.

        To a new monitor it says so once, right after it has joined; the others may not be there yet.
        """
        if not status.restored:
            return
        for info, bound in zip(self.layout.processors, self.low_watermarks[status.worker]):
            if bound != info.everything:
                raise ReportError(f"operator {info.name!r} is not at its end: what is safe ends at {bound}")
        status.released = True
        self._close()

    def _close(self) -> None:
        if self.phase is JobPhase.RUNNING and all(status.released for status in self.workers.at_work()):
            self.phase = JobPhase.CLOSING
            self.commit.add(KeptFinished())
            self._keep("finished", {})

    def _finish(self) -> None:
        self._event("finished", {})
        self._effects.append(Finished())
        self.phase = JobPhase.OVER

    # ------------------------------------------------------------------------------------------ the timeline

    def _event(self, kind: str, data: dict[str, Value]) -> None:
        """Emit an event."""
        self._effects.append(self._timeline.event(kind, data, self._now))

    def _note(self, kind: str, data: dict[str, Value], by: float = math.inf) -> None:
        """Emit an event and journal it, by `by` at the latest.

        A restart must not lose it, if anything is written after it.
        """
        self._event(kind, data)
        self._keep(kind, data, by)

    def _keep(self, kind: str, data: dict[str, Value], by: float = math.inf) -> None:
        self.commit.add(self._timeline.kept(kind, data, self._now), by)
