"""Simulated jobs in more trouble than `falkirk simulate` has for users: nonsense, questions, refusals, silence, absence.

Of these a job knows that they can be: a worker whose reports contradict themselves, one that is told things twice, a function
of the program that fails, a store that has lost something, a monitor that is away for long, one who asks what a
failure would cost. Whatever is refused, the job goes on or is started again, and its output is right in the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from falkirk.simulate.disk import SimulatedDisk, Writer
from falkirk.simulate.monitor_process import SimulatedMonitor
from falkirk.simulate.process import Process
from falkirk.simulate.world import World
from libraries.columns.verbs.dataflow import Dataflow
from monitor.coordination import coordinator
from monitor.coordination.events import Asked, FromWorker
from monitor.coordination.supervision import Lost, ProgramFailed
from monitor.coordination.workers import JobPhase
from recovery.checkpoint import checkpoints, pace, processor_checkpoints
from recovery.metadata import Xi
from recovery.place import Place
from recovery.policy import LogHistory
from recovery.protocol import (
    AskCost,
    Completed,
    Cut,
    Decision,
    Drain,
    Drained,
    Durable,
    Join,
    Released,
    Restored,
    ToMonitor,
    ToWorker,
    decode_to_monitor,
    decode_to_worker,
)
from tests.falkirk.simulate.programs import Holds, words
from timely.errors import FalkirkError
from timely.operators.base import Context, Operator
from timely.time import Time

UNTIL = 3.0
"""Nothing new happens after so many seconds of the simulation."""


class _Slow(Operator):
    """Has each record looked at by a job, and remembers all that it has seen in an attribute."""

    repeats_over = "time"

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        for word in batch:
            ctx.start(lambda word=word: (word, len(word)))

    def on_result(self, ctx: Context, time: Time, result: Any) -> None:
        self._seen[result[0]] = self._seen.get(result[0], 0) + 1
        self._last = result  # an attribute that a new operator has not
        ctx.send([result])


def histories() -> Dataflow:
    """Full histories of jobs, and of capabilities beside state."""
    flow = Dataflow("histories")
    source = words(flow)
    slow = source.exchange(by=lambda word: word).unary("slow", _Slow, holds=True).policy(LogHistory(every=2))
    slow.key_by(lambda found: found[1]).count(name="count").records().capture("out")
    holds = source.exchange(by=lambda word: 0).unary("holds", Holds, holds=True).policy(LogHistory(every=1))
    holds.capture("later")
    source.unary("unread", _Slow, holds=True).policy(LogHistory(every=1))
    return flow


@contextmanager
def small_histories() -> Iterator[None]:
    """A snapshot takes the place of a history, and a whole one of increments, sooner than in production.

    And fewer numbers of rounds are reserved at a time.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator, "ROUNDS", 20)
        patch.setattr(checkpoints, "MOST_EVENTS", 8)
        patch.setattr(processor_checkpoints, "SMALL", 500)
        yield


@contextmanager
def large_states() -> Iterator[None]:
    """Every state is as large as one that is saved anew over many cuts, in pieces, and little is kept in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processor_checkpoints, "SMALL", -1)
        patch.setattr(processor_checkpoints, "SCAN_PIECES", 1)
        patch.setattr(checkpoints, "RETAINED", 1_000)
        patch.setattr(pace, "PIECE_ROWS", 1)
        yield


def stall(disk: SimulatedDisk, writer: Writer, seconds: float) -> None:
    """Everything that this writer has begun takes so much longer."""
    for operation in disk._waiting.values():
        if operation.writer == writer and not operation.late:
            operation.applied_at += seconds
            operation.acknowledged_at += seconds
    disk._moments = sorted(
        (operation.acknowledged_at if operation.applied else operation.applied_at, ticket)
        for ticket, operation in disk._waiting.items()
    )


class TroubledWorld(World):
    """A simulated job with the usual faults, and those of the module besides; `met` counts them."""

    def __init__(self, build: Callable[[], Dataflow], workers: int, seed: int) -> None:
        self.met: Counter[str] = Counter()
        self._chance = Random(f"trouble {seed}")
        self._nonsense, self._asks, self._breaks, self._twice, self._unnoticed, self._undecided = (
            self._chance.choice((0.0, 0.3, 1.0)) * most for most in (0.1, 0.02, 0.002, 0.1, 0.5, 0.5)
        )
        self._silences, self._strangers = 0.001, 0.1
        self._decides = False
        self._ends = self._chance.choice((0, 1, 2))
        """So often the monitor is lost once the job is nearly, or wholly, done."""
        self._joins: dict[int, Join] = {}
        self._late: list[tuple[Process, ToWorker]] = []
        self._refused = False
        self._liars: set[int] = set()
        """The incarnations that have reported nonsense, and are given up for that."""
        super().__init__(build, workers, seed)

    def _happens(self, what: str, rate: float) -> bool:
        if self.now < UNTIL and self._chance.random() < rate:
            self.met[what] += 1
            return True
        return False

    def step(self) -> None:
        """One thing happens; a job that has given up for a reason that was made up here is started again."""
        super().step()
        if self.failure is not None and self._refused:
            self._refused, self.failure = False, None
            self._stop_job(self.now)
        monitor = self._monitor
        if monitor is None:
            return
        if self._ends and (
            self.finished or (self._ends > 1 and any(status.released for status in monitor.coordinator.workers))
        ):
            self._ends -= 1
            self.met["an end without a monitor"] += 1
            if self.finished:  # what comes then does not matter
                late = [FromWorker(joined, joined.incarnation) for joined in self._joins.values()]
                gone = Lost(Place(0), monitor.coordinator.workers[Place(0)].incarnation, "it has ended")
                monitor.step(self.now, ProgramFailed(Place(0), "a function has failed at last"), gone, *late)
            self._kill_monitor(0.0)
            return
        if monitor.coordinator.phase in (JobPhase.OVER, JobPhase.CLOSING):
            return
        if self._happens("a silence", self._silences):  # longer than any deadline of the monitor
            self._stalled["worker", self._chance.randrange(self.workers)] = self.now + 5 * self._patience
        if self._happens("a question", self._asks):
            layout = monitor.coordinator.layout
            processors = len(layout.processors)
            failed = [(self._chance.randrange(processors), self._chance.randrange(self.workers)) for _ in range(2)]
            self._send(Place(0), AskCost(-1, (), ()))  # one that no worker can answer
            self._tell(Asked(self.steps, tuple(failed)))
        if monitor.coordinator.phase is not JobPhase.DECIDING:
            self._decides = False
        elif not self._decides and self._monitor is monitor:
            self._decides = True
            self._lose_undecided(monitor)
        if self._monitor is monitor and self._happens("an error", self._breaks):
            self._refused = True
            self._tell(ProgramFailed(Place(0), "a function has failed"))

    def _lose_undecided(self, monitor: SimulatedMonitor) -> None:
        """A worker dies while the decision is on its way to the journal; its successor may join before it is there.

        Or the monitor does: the decision may count, and nobody have heard of it.
        """
        there = [process for process in self._processes.values() if process is not None and process.session is not None]
        if there and self._happens("a loss before the decision is durable", self._undecided):
            if self._chance.random() < 0.3:
                self._kill_monitor(0.0)
                return
            stall(self.disk, monitor.owner, self._chance.choice((0.0, 0.2, 1.0)))
            self._kill(self._chance.choice(there), "killed")

    # What workers say

    def _tell_monitor(self, process: Process) -> None:
        assert self._monitor is not None
        message = decode_to_monitor(process.to_monitor[0])
        rate = self._nonsense if isinstance(message, Completed) else 4 * self._nonsense  # of these there are many
        wrong = self._nonsense_for(message) if self._chance.random() < rate else None
        if self._monitor.coordinator.phase in (JobPhase.OVER, JobPhase.CLOSING):
            wrong = None  # nobody is given up any more
        if wrong is not None and self._happens("nonsense", 1.0):
            if wrong.place == process.place:
                process.to_monitor.popleft()
                self._liars.add(process.incarnation)
                process.joined = process.joined or isinstance(wrong, Join)  # it may be believed
            self._tell(FromWorker(wrong, process.incarnation))
            if wrong.place == process.place or self._monitor is None:
                return
        super()._tell_monitor(process)
        if isinstance(message, Join):
            self._joins[process.incarnation] = message
        if (
            self._monitor is not None
            and isinstance(message, Join | Restored | Released)
            and self._happens("told twice", self._twice)
        ):
            self._tell(FromWorker(message, process.incarnation))

    def _nonsense_for(self, message: ToMonitor) -> ToMonitor | None:
        """A message that cannot be true, in place of this one; or beside it, where it names a worker that there is not."""
        choose = self._chance.choice
        if self._chance.random() < 0.1:
            return Completed(Place(self.workers), 0, ())
        match message:
            case Completed(upto=upto):
                return replace(message, upto=choose((upto[:-1], tuple((0, *bound) for bound in upto))))
            case Durable(xis=xis):
                wrongs: list[dict[str, Any]] = [{"group": 99}, {"at": (*message.at, 0)}]
                wrongs += [{"at": (message.at[0] + 1, *message.at[1:])}] * bool(xis)
                wrongs += [{"xis": (*xis, xi)} for xi in self._nonsense_xis(xis)]
                wrongs += [{"xis": (xi, *xis[1:])} for xi in self._nonsense_xis(xis)] + [{"xis": ()}] * bool(xis)
                return replace(message, **choose(wrongs))
            case Drained(memory=memory):
                first = memory[0]
                strange = choose(
                    (
                        {"delivered": (*first.delivered, first.upto)},
                        {"upto": (*first.upto, 0)},
                        {"upto": tuple(-1 for _ in first.upto)},
                        {"notified": (1 << 70,)},
                        {"discards": (*first.discards, first.upto)},
                        {"upto": tuple(0 for _ in first.upto)},
                    )
                )
                return choose(
                    (
                        replace(message, memory=memory[1:]),
                        replace(message, memory=(replace(first, **strange), *memory[1:])),
                    )
                )
            case Join(durable=durable) if not message.alive:
                if self._chance.random() < 0.5:
                    return replace(message, durable=(*durable, *self._nonsense_xis(durable)[:1]))
                if self.now >= UNTIL:
                    return None
                self._refused = True  # it says that it has lost something, or is of another program
                # A worker of an independent group acknowledges by itself: nobody else knows what it has lost.
                known = not any(group.independent for group in message.layout.groups)
                if durable and self._chance.random() < 0.5 and known:
                    return replace(message, durable=())
                return replace(message, layout=replace(message.layout, workers=self.workers + 1))
            case Released():
                return None
        return None

    def _nonsense_xis(self, xis: tuple[Xi, ...]) -> list[Xi]:
        if not xis:
            return [Xi(99, (1,), ())]
        layout = self._monitor.coordinator.layout if self._monitor is not None else None
        unsaved = [p for p, info in enumerate(layout.processors) if not info.chain] if layout is not None else []
        xi = self._chance.choice(xis)
        found = [
            Xi(99, xi.bound, ()),
            replace(xi, bound=(*xi.bound, 0)),
            replace(xi, discards=(*xi.discards, xi.bound)),
            replace(xi, bound=tuple(at + 1 for at in xi.bound)),
            replace(xi, bound=tuple(-1 for _ in xi.bound)),
            replace(xi, discards=tuple((1, *bound[1:]) for bound in xi.discards)),
            replace(xi, discards=tuple(tuple(at + 7 for at in bound) for bound in xi.discards)),
            *(replace(xi, processor=p) for p in unsaved[:1]),
        ]
        self._chance.shuffle(found)
        return found

    # What they are told

    def _tell_worker(self, process: Process) -> None:
        message: ToWorker = decode_to_worker(process.from_monitor[0])
        super()._tell_worker(process)
        if isinstance(message, Decision | Drain | Cut) and self._happens("told twice", self._twice):
            self._late.append((process, message))
        for late in self._late[:]:
            if late[0] is process and self._chance.random() < 0.5:
                self._late.remove(late)
                process.inbox.append(late[1])

    def _send(self, place: Place, message: ToWorker) -> None:
        if place in self._processes:
            super()._send(place, message)

    def _turn(self, process: Process) -> None:
        if process.recovery is not None and process.connected and self._monitor is not None:
            agent = process.recovery.agent
            agent.now = self.now
            agent.backpressure.received()  # in production a monitor that is there is heard of often
        try:
            super()._turn(process)
        except FalkirkError:
            if process.recovery is None or process.recovery.agent.refused is None:
                raise
            self._stop_job(self.now)

    def _open(self, process: Process) -> None:
        super()._open(process)
        if process.recovery is not None and self._chance.random() < 0.5:
            backpressure = process.recovery.agent.backpressure  # little may wait for a monitor that is away
            backpressure._patience, backpressure._most = 0.05, 200

    def _fence(self, place: Place, incarnation: int, reason: str) -> None:
        process = self._processes[place]
        if process is not None and process.incarnation in self._liars:
            reason = reason.replace("cannot be: ", "was nonsense: ")  # it is given up for good reason
        super()._fence(place, incarnation, reason)

    def _start_monitor(self) -> None:
        """Somebody may start it with another program."""
        layout = self.layout
        if self.checks.decisions and self._happens("another program", self._strangers):
            self._refused = True
            self.layout = replace(layout, workers=self.workers + 1)
        super()._start_monitor()
        self.layout = layout

    def _kill_monitor(self, delay: float) -> None:
        away = self._happens("a long absence", 0.3)
        super()._kill_monitor(delay + 2.0 if away else delay)

    def _kill(self, process: Process, how: str) -> None:
        """Its successor may be there before anybody has noticed that it is gone."""
        if process.zombie_until is None and self._happens("a loss that is not noticed", self._unnoticed):
            self.note(how, **process.place.fields, incarnation=process.incarnation)
            self._bury(process)
            self._starts.append((self.now, process.place))
            return
        super()._kill(process, how)
        monitor, joined = self._monitor, self._joins.get(process.incarnation)
        if monitor is not None and joined is not None and self._happens("told twice", self._twice):
            late = (
                FromWorker(joined, process.incarnation),
                FromWorker(Completed(process.place, 0, ()), process.incarnation),
            )
            self._tell(Lost(process.place, process.incarnation, how), *late)
