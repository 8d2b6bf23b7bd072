"""The coordinator: leads rounds of rollback, chooses checkpoints, and keeps the low-watermarks.

A state machine without I/O or clock: it is told what workers say and what happened to them, with the time, and `take`
gives what is to be done. The start of a job, its restart and a failure are one thing, a *round*: gather what everybody
can be restored to, decide, restore (`monitor.coordination.phase`).

A failure in any phase begins a new round with a higher number, on top of the last decision (section 3.6 of *Falkirk
Wheel*, with F*'(p)). While a decision is on its way to the journal nobody can know whether it counts, so a failure then
waits for it, and the new round begins when everybody has been sent the decision.
"""

from __future__ import annotations

from collections.abc import Iterable

from monitor.coordination.commit import GroupCommit
from monitor.coordination.cuts import Cuts, cut_event
from monitor.coordination.effects import (
    Answered,
    Effect,
    Fail,
    Fence,
    Finished,
    Note,
    Respawn,
    Send,
    Settings,
    TimelineEvent,
)
from monitor.coordination.handshake import refusal
from monitor.coordination.intervals import Intervals
from monitor.coordination.options import Options
from monitor.coordination.phase import JobPhase
from monitor.coordination.records import KeptDecision, KeptEvent, KeptFinished, KeptLayout, SavedJob, Value
from monitor.coordination.round_numbers import RoundNumbers
from monitor.coordination.watermarks import Changes, LowWatermarks
from monitor.coordination.workers import Presence, WorkerStatus, WorkerTable
from monitor.explain.what_if import OpenQuestions
from recovery.errors import NoSolutionError, ReportError
from recovery.layout import Layout
from recovery.metadata import Bound
from recovery.protocol import (
    LIVE,
    Completed,
    Cut,
    Decision,
    Drain,
    Drained,
    Durable,
    Held,
    Join,
    Refused,
    Released,
    Restored,
    Supposed,
    ToMonitor,
    Unanswered,
    Watermarks,
)


class Coordinator:
    """See the module. Time is in seconds, from any start, and must not go back.

    Call `hear` for all messages that have arrived before `tick`, so that nobody is taken for silent who is not.

    Args:
        now: the time.
        saved: what the monitor's own journal holds; None or empty for a new job.
        settings: see there.
    """

    def __init__(self, now: float, saved: SavedJob | None, settings: Settings) -> None:
        saved = saved or SavedJob()
        self.settings = settings
        self.phase = JobPhase.ASSEMBLING
        self.decision = saved.decision
        self.generation = saved.decision.generation if saved.decision else 0
        self.seats = WorkerTable(settings.workers, settings.awaited, now)
        self._commit = GroupCommit()
        self._effects: list[Effect] = []
        self._questions = OpenQuestions(lambda effect: self._effects.append(effect))
        self._now = now
        self._trouble_since = now
        self._again = False
        self._deciding: set[int] = set()
        self._behind: list[list[Bound]] | None = None
        if saved.finished:
            self.phase = JobPhase.OVER
            self._effects.append(Finished())
            return
        self._saved: SavedJob | None = saved
        """Until the first worker has told the layout, in which what does not matter may have changed."""
        self.layout = saved.layout
        for seat in self.seats:
            seat.must("join", now + settings.join_seconds)
            if seat.presence is Presence.ABSENT:
                self._effects.append(Respawn(seat.worker))
        self._rounds = RoundNumbers(saved, self._commit, self._assemble)

    # ------------------------------------------------------------------------------------------ the driver's side

    def hear(self, message: ToMonitor, now: float, incarnation: int | None = None) -> None:
        """A message of a worker; `incarnation` of the process that sent it, where the driver knows."""
        self._now = now
        if self.phase is JobPhase.OVER:
            return
        if message.worker not in self.seats:
            text = f"there is no worker {message.worker}: the job has {self.settings.workers}"
            self._effects.append(Send(message.worker, Refused(text)))
            return
        seat = self.seats[message.worker]
        if isinstance(message, Join):
            self._on_join(seat, message)
        elif seat.presence is Presence.ALIVE and incarnation in (None, seat.incarnation):
            seat.heard = now
            try:
                self._handle(seat, message)
            except ReportError as error:
                self._suspect([(seat, f"its {type(message).__name__} cannot be: {error}")])

    def _handle(self, seat: WorkerStatus, message: ToMonitor) -> None:
        if isinstance(message, Completed):
            self._on_completed(seat, message)
        elif isinstance(message, Durable):
            self._on_durable(seat, message)
        elif isinstance(message, Drained):
            self._on_drained(seat, message)
        elif isinstance(message, Restored):
            self._on_restored(seat, message)
        elif isinstance(message, Released):
            self._on_released(seat)
        elif isinstance(message, Held | Supposed | Unanswered) and message.generation == self.generation:
            self._questions.hear(message)

    def lost(self, worker: int, incarnation: int, now: float, reason: str) -> None:
        """The process is gone, or so it seems; nothing that it still says must reach `hear`."""
        self._now = now
        if self.phase is JobPhase.OVER or worker not in self.seats:
            return
        seat = self.seats[worker]
        if incarnation < seat.incarnation or (incarnation == seat.incarnation and seat.presence is Presence.ABSENT):
            return  # an earlier process, which is accounted for
        seat.incarnation = incarnation
        self._lose([(seat, reason)])

    def broke(self, worker: int, text: str, now: float) -> None:
        """The program has failed on a worker. The job ends when that is noted."""
        self._now = now
        if self.phase is not JobPhase.OVER:
            self._event("error", {"worker": worker, "text": text})
            kept = KeptEvent("error", now, {"worker": worker, "text": text})
            self._commit.add(kept, lambda: self._effects.append(Fail(text)))

    def tick(self, now: float) -> None:
        """Time has passed. Call it several times in the shortest interval that matters."""
        self._now = now
        if self.phase in (JobPhase.OVER, JobPhase.CLOSING):
            return
        silence = self.settings.heartbeat_seconds if self.phase is JobPhase.RUNNING else None
        overdue = [(seat, why) for seat in self.seats if (why := seat.overdue(now, silence)) is not None]
        if overdue:
            self._suspect(overdue)
        self._questions.tick(now)
        self._cut()

    def ask(self, number: int, failed: Iterable[tuple[int, int]], now: float) -> None:
        """Ask what follows if the processors `failed`, as (processor, worker), lost their memory now."""
        if self.phase is JobPhase.RUNNING:
            self._questions.ask(number, self._available, failed, now)
        else:
            self._effects.append(
                Answered(number, f"the job is not running now ({self.phase.value}): ask again when it is")
            )

    def stored(self, ticket: int, now: float | None = None) -> None:
        """The write of this `Persist` is durable."""
        self._now = self._now if now is None else now
        for then in self._commit.stored(ticket):
            if self.phase is not JobPhase.OVER:
                then()

    def take(self) -> list[Effect]:
        """Take the effects to carry out, in this order; each is given once."""
        if self.phase is not JobPhase.RUNNING:
            self._questions.give_up("the job has not gone on as it was meanwhile: ask again when it runs")
        write = self._commit.take() if self.phase is not JobPhase.OVER else None
        if write is not None:
            self._effects.append(write)
        effects, self._effects = self._effects, []
        return effects

    @property
    def available(self) -> Options | None:
        """The options of every processor; None until the first worker has joined."""
        found: Options | None = getattr(self, "_available", None)
        return found

    @property
    def low_watermarks(self) -> tuple[tuple[Bound, ...], ...]:
        """W as far as it is durable, `[worker][processor]`. There must be a layout."""
        return self._watermarks.durable

    # ------------------------------------------------------------------------------------------ joining

    def _on_join(self, seat: WorkerStatus, join: Join) -> None:
        known = seat.incarnation
        if join.incarnation < known or (join.incarnation == known and seat.presence is Presence.ABSENT):
            return  # it was given up, and its replacement is on the way
        if seat.presence in (Presence.JOINED, Presence.ALIVE) and join.incarnation == known:
            self._suspect([(seat, "it joined twice")])
            return
        with_memory = join.alive and join.generation > 0
        if with_memory and seat.presence is not Presence.AWAITED:
            self._effects.append(Fence(seat.worker, join.incarnation, "it was given up"))
            if seat.presence is Presence.ABSENT:
                seat.incarnation = join.incarnation
            return
        if seat.presence in (Presence.BEHIND, Presence.JOINED, Presence.ALIVE) and join.incarnation > known:
            seat.incarnation = join.incarnation
            self._lose([(seat, "another process took its place")], respawn=False)
            if self.phase is JobPhase.OVER:
                return
        seat.incarnation = join.incarnation
        refused = refusal(join, self.settings.workers, self.layout, self.decision)
        if refused is not None:
            self._effects.append(Send(seat.worker, Refused(refused)))
            self._fail(refused)
            return
        if self._saved is not None:
            self._use(join.layout, self._saved)
            self._saved = None
        behind = join.generation < self.generation
        if behind and not with_memory:
            self._catch_up(seat)
            return
        available = self._available
        try:
            wrong = available.join(seat.worker, join.durable)
        except ReportError as error:
            self._suspect([(seat, f"what it offers cannot be: {error}")])
            return
        if wrong is not None:
            self._fail(wrong)
            return
        seat.due = None
        if not with_memory:
            seat.presence = Presence.JOINED
        else:
            seat.presence = Presence.ALIVE
            seat.paused = join.paused or behind
            seat.restored = not behind
            if behind and self.decision is not None:
                available.cut_worker(seat.worker, self.decision.bounds[seat.worker])
                self._decide_for(seat)
        self._assemble()
        self._decide()

    def _use(self, layout: Layout, saved: SavedJob) -> None:
        decided = saved.decision.bounds if saved.decision else None
        if layout != saved.layout:
            self._commit.add(KeptLayout(layout))
        self.layout = layout
        self._available = Options(layout, saved.watermarks, decided)
        self._watermarks = LowWatermarks(self._available, self._commit, self._announce)
        self._cuts = Cuts(layout.groups, self._available.last_cuts(), self._now)
        self._intervals = Intervals(layout)

    def _assemble(self) -> None:
        """Once it is known who is there: go on as before if all are, otherwise begin a round."""
        if (
            self.phase is not JobPhase.ASSEMBLING
            or not self._rounds.ready
            or any(seat.presence is Presence.AWAITED for seat in self.seats)
        ):
            return
        if self.seats.are(Presence.ALIVE) and all(seat.restored and not seat.paused for seat in self.seats):
            self._note("resumed", {"generation": self.generation})
            self._run()
            for seat in self.seats:
                self._effects.append(Send(seat.worker, Watermarks(self._watermarks.all())))
            return
        self._begin()

    # ------------------------------------------------------------------------------------------ failures

    def _suspect(self, losses: list[tuple[WorkerStatus, str]]) -> None:
        """Workers that may still be there, and must not be."""
        for seat, reason in losses:
            there = -1 if seat.presence is Presence.ABSENT else seat.incarnation
            self._effects.append(Fence(seat.worker, there, reason))
        self._lose(losses)

    def _lose(self, losses: list[tuple[WorkerStatus, str]], respawn: bool = True) -> None:
        if self.phase is JobPhase.CLOSING:
            return  # each had said that it is done for good
        if self.phase is JobPhase.RUNNING:
            self._trouble_since = self._now
        for seat, reason in losses:
            seat.failures += 1
            self._note("failure", {"worker": seat.worker, "incarnation": seat.incarnation, "reason": reason})
            if seat.failures >= self.settings.attempts:
                self._fail(
                    f"worker {seat.worker} has failed {seat.failures} times, and nothing more became durable meanwhile; "
                    f"at last: {reason}",
                    lost=True,
                )
                return
            seat.leave()
            seat.must("join", self._now + self.settings.join_seconds)
            self._deciding.discard(seat.worker)
            if respawn:
                self._effects.append(Respawn(seat.worker))
        if self.phase is JobPhase.ASSEMBLING:
            self._assemble()
        elif self.phase is JobPhase.DECIDING:
            self._again = True
        else:
            self._begin()

    def _fail(self, reason: str, lost: bool = False) -> None:
        self._note("failed", {"reason": reason})
        self._effects.append(Fail(reason, lost))
        self.phase = JobPhase.OVER

    # ------------------------------------------------------------------------------------------ rounds

    def _begin(self) -> None:
        """Begin a round: all that was gathered in an earlier one from the living is void, for they may have sent since."""
        self.phase = JobPhase.GATHERING
        number = self._rounds.next()
        alive = self.seats.alive()
        who = tuple(seat.worker for seat in alive)
        self._event("round", {"round": number, "alive": list(who)})
        for seat in alive:
            seat.memory = None
            seat.released = False
            limit = self.settings.pause_seconds + (0 if seat.restored else self.settings.restore_seconds)
            seat.must("drain its links", self._now + limit)
            self._effects.append(Send(seat.worker, Drain(number, who)))
        self._decide()

    def _on_drained(self, seat: WorkerStatus, message: Drained) -> None:
        if self.phase is JobPhase.GATHERING and message.round == self._rounds.last and seat.memory is None:
            self._available.memory(seat.worker, message.memory)
            seat.memory = message.memory
            seat.due = None
            self._decide()

    def _decide(self) -> None:
        """Solve, and journal the outcome, once all workers have said what they can be restored to."""
        if self.phase is not JobPhase.GATHERING or not self.seats.are(Presence.ALIVE, Presence.JOINED):
            return
        memory = {seat.worker: seat.memory for seat in self.seats.alive() if seat.memory is not None}
        if len(memory) < len(self.seats.alive()):
            return
        try:
            bounds = self._available.decide(memory)
        except NoSolutionError as error:
            self._fail(str(error))
            return
        failed = tuple(seat.worker for seat in self.seats if seat.presence is Presence.JOINED)
        decision = KeptDecision(self._rounds.last, self.generation, bounds, failed)
        self.phase = JobPhase.DECIDING
        self._again = False
        self._deciding = {seat.worker for seat in self.seats}
        self._commit.add(decision, lambda: self._decided(decision))

    def _decided(self, decision: KeptDecision) -> None:
        """The decision is durable, and so it counts, whatever has happened meanwhile."""
        self.decision = decision
        self.generation = decision.generation
        self._available.cut(decision.bounds)
        rolled_back = sum(bound is not LIVE for bounds in decision.bounds for bound in bounds)
        self._note(
            "decided",
            {"generation": self.generation, "failed": list(decision.failed), "rolled_back": rolled_back},
        )
        for seat in self.seats:
            if seat.worker in self._deciding:
                seat.presence = Presence.ALIVE
                self._decide_for(seat)
            elif seat.presence is Presence.JOINED:  # for one who was lost after it was decided what he restores
                self._catch_up(seat)
        self.phase = JobPhase.RESTORING
        if self._again:
            self._begin()

    def _decide_for(self, seat: WorkerStatus) -> None:
        seat.restored = seat.released = False
        seat.memory = None
        seat.must("restore what was decided", self._now + self.settings.restore_seconds)
        self._effects.append(Send(seat.worker, self._last_decision(catch_up=False)))

    def _catch_up(self, seat: WorkerStatus) -> None:
        seat.presence = Presence.BEHIND
        seat.must("note the last decision and join again", self._now + self.settings.join_seconds)
        self._effects.append(Send(seat.worker, self._last_decision(catch_up=True)))

    def _last_decision(self, catch_up: bool) -> Decision:
        decision = self.decision
        assert decision is not None
        return Decision(decision.generation, decision.bounds, decision.failed, self._watermarks.durable, catch_up)

    def _on_restored(self, seat: WorkerStatus, message: Restored) -> None:
        if message.generation != self.generation or seat.restored:
            return
        seat.restored = True
        if self.phase is not JobPhase.GATHERING:  # otherwise it has been told to pause, and that deadline stays
            seat.due = None
        if self.phase is JobPhase.RESTORING and all(each.restored for each in self.seats):
            seconds = self._now - self._trouble_since
            self._note("restored", {"generation": self.generation, "seconds": seconds})
            self._run()

    def _run(self) -> None:
        self.phase = JobPhase.RUNNING
        for seat in self.seats:
            seat.heard = self._now
        self._behind = last = self._available.last_cuts()
        self._cuts = Cuts(self._available.layout.groups, last, self._now)
        self._intervals = Intervals(self._available.layout)
        self._raise_watermarks()
        self._close()

    # ------------------------------------------------------------------------------------------ checkpoints

    def _on_completed(self, seat: WorkerStatus, message: Completed) -> None:
        if message.generation == self.generation and self.phase is not JobPhase.DECIDING:
            self._available.complete(seat.worker, message.upto)
            if self._behind is not None and self._available.reached(self._behind):
                # What keeps nothing is now as far as the checkpoints that were there already. There may be no further one.
                self._behind = None
                self._raise_watermarks()
            self._cut()

    def _cut(self) -> None:
        if self.phase is not JobPhase.RUNNING:
            return
        for group, at, workers in self._cuts.due(self._available.minimum(), self._now):
            self._event("cut", cut_event(group, at))
            self._intervals.announced(group, at, self._now)
            for worker in workers:
                self._effects.append(Send(worker, Cut(self.generation, group, at)))

    def _on_durable(self, seat: WorkerStatus, message: Durable) -> None:
        if message.generation != self.generation or self.phase is JobPhase.DECIDING:
            return
        self._available.durable(seat.worker, message.group, message.at, message.xis)
        began = self._cuts.durable(message.group, seat.worker, message.at)
        cut = cut_event(message.group, message.at)
        self._event("durable", {"worker": seat.worker, **cut, "bytes": message.bytes, "writing": message.seconds})
        if began is not None:
            self._event("checkpoint", {**cut, "seconds": self._now - began})
            note = self._intervals.durable(message.group, seat.worker, self._now - began, self._now)
            if note is not None:
                self._event("slow", {**cut, "worker": seat.worker, "seconds": self._now - began})
                self._effects.append(Note(note))
        self._raise_watermarks()
        self._cut()

    def _raise_watermarks(self) -> None:
        if self.phase is JobPhase.RUNNING:  # until then, not all that W rests on need be known
            self._watermarks.update()

    def _announce(self, changed: Changes) -> None:
        self._event("watermarks", {"risen": len(changed)})
        for safe in self._intervals.contained(self._watermarks.durable, self._now):
            interval: dict[str, Value] = {} if safe.since_last is None else {"interval": safe.since_last}
            self._event("safe", {**cut_event(safe.group, safe.at), "seconds": safe.seconds, **interval})
        for seat in self.seats:
            seat.failures = 0
        for seat in self.seats.alive():
            self._effects.append(Send(seat.worker, Watermarks(changed)))

    # ------------------------------------------------------------------------------------------ the end

    def _on_released(self, seat: WorkerStatus) -> None:
        """Only what is said in this generation counts: a worker says it again after each.

        To a new monitor it says so once, right after it has joined; the others may not be there yet.
        """
        if self.phase not in (JobPhase.ASSEMBLING, JobPhase.RESTORING, JobPhase.RUNNING) or not seat.restored:
            return
        for info, bound in zip(self._available.layout.processors, self._watermarks.durable[seat.worker]):
            if bound != info.everything:
                raise ReportError(f"operator {info.name!r} is not at its end: what is safe ends at {bound}")
        seat.released = True
        self._close()

    def _close(self) -> None:
        if self.phase is JobPhase.RUNNING and all(seat.released for seat in self.seats):
            self.phase = JobPhase.CLOSING
            self._commit.add(KeptFinished(), self._finish)

    def _finish(self) -> None:
        self._event("finished", {})
        self._effects.append(Finished())
        self.phase = JobPhase.OVER

    # ------------------------------------------------------------------------------------------ the timeline

    def _event(self, kind: str, data: dict[str, Value]) -> None:
        self._effects.append(TimelineEvent(kind, self._now, data))

    def _note(self, kind: str, data: dict[str, Value]) -> None:
        """An event that a restart must not lose, if anything is written after it."""
        self._event(kind, data)
        self._commit.add_some_time(KeptEvent(kind, self._now, data))
