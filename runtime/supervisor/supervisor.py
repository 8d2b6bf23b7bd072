"""The supervisor of a job with a store: watches its members, and decides what is done when one has something to say, or ends.

It has no part in recovery itself. The monitor says when a worker is to be replaced; a monitor that dies is replaced at once;
when the supervisor dies, all others end. Where workers are, and how they are started, is the matter of a `Placement`.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from msgspec.msgpack import encode

from recovery.layout import Layout, lay_out
from runtime.control import (
    PAGE_SOCKET,
    Beat,
    Broke,
    CapturedBatch,
    Fenced,
    FromChild,
    Leave,
    Needed,
    Over,
    Page,
    Stats,
    TimelineNews,
    Unable,
    Warned,
    Watch,
    WorkerGone,
)
from runtime.host_limits import check_workers
from runtime.inputs import Limits
from runtime.job import OnStats, Result, explaining
from runtime.page.address import PAGE_FILE, PageSocket, open_door
from runtime.processes.standalone_monitor import NoMonitor, address_of, connect
from runtime.processes.worker import FILES
from runtime.program import Program
from runtime.scratch import Scratch, for_sockets
from runtime.supervisor.placement import LocalWorkers, Member, Open, Placement, Task
from runtime.supervisor.processes import MONITOR, Child, Children
from runtime.supervisor.result import Gathered, error_of
from runtime.supervisor.store import JobStore, told
from timely.dataflow.plan import compile_plan
from timely.errors import FalkirkError, WorkerLost

_TICK_SECONDS = 0.25
_END_SECONDS = 30.0
"""Seconds that workers have to leave when all is done: sinks are closed then."""

HEARTBEAT_TIMEOUT = 10.0
"""Seconds without a sign of life after which a process has hung, unless something else is said."""

_AWAY_SECONDS = 0.5
"""Seconds between two looks for a monitor of its own, while it is away."""

_NOTE_SECONDS = 1.0
"""Seconds that the monitor has to note the error that ends the job."""

_SHORT_LIVES, _SHORT_SECONDS, _FAILED_SECONDS = 10, 2.0, 60.0
"""A monitor that has died so often in a row, each time so soon, will not live. One that failed for a reason of its own may
have taken longer to come to the same end again."""


class Job:
    """One run of a job with a store.

    Args:
        program: what every worker builds.
        workers: how many.
        folder: of the store. It is made if it is missing, and must be empty, or that of this job.
        limits: as for `runtime.run.run`.
        on_event: called with (kind, time, data) for everything that happens to the job
            (`monitor.coordination.effects.TimelineEvent`).
        on_note: called with what the user should know, in words.
        heartbeat_timeout: a process that gives no sign of life for so many seconds is replaced.
        monitor: where a monitor listens that is a process apart (`runtime.processes.standalone_monitor`); None: one is started.
        page: where browsers connect, if the monitor is to serve its page; None: only programs that look into the store find it.
        place: opens the placement of the workers: processes of this host, unless something else is said.

    Raises:
        GraphError: for a program that recovery cannot bring through.
        StoreBusy: if another job uses the store; other StoreErrors if it is none, or cannot be written.
    """

    def __init__(
        self,
        program: Program,
        workers: int,
        folder: str | os.PathLike[str],
        limits: Limits | None = None,
        on_event: Callable[[str, float, dict[str, Any]], None] | None = None,
        on_note: Callable[[str], None] | None = None,
        heartbeat_timeout: float = HEARTBEAT_TIMEOUT,
        monitor: str | os.PathLike[str] | None = None,
        page: PageSocket | None = None,
        place: Open = LocalWorkers,
    ) -> None:
        check_workers(workers)
        flow = program.build()
        self.layout: Layout = lay_out(compile_plan(flow.graph, workers))
        self.finished_before = False
        """The store says that an earlier run has finished the job: nothing was done now."""
        self.children = Children(workers, heartbeat_timeout)
        self.over: Over | None = None
        self.error: FalkirkError | None = None
        self._gathered = Gathered(flow)
        self._on_event = on_event
        self.note = on_note or (lambda text: print(f"note: {text}", file=sys.stderr))
        self._monitor: Child | None = None
        self._monitor_began = float("-inf")
        self._short_lives = 0
        self._last_failure = ""
        """The last words of a monitor that ended for a reason of its own."""
        self._apart = address_of(monitor) if monitor is not None else None
        self._away_until: float | None = None
        self._noted_by = float("-inf")
        self._resources = resources = ExitStack()
        try:
            self._folder = Path(folder).absolute()
            self._store = JobStore(resources, self._folder, workers, self.note)
            self.children.private = str(resources.enter_context(closing(Scratch("job", for_sockets()))).path)
            resources.callback(self.children.close)
            resources.callback(self.children.stop)
            self._place: Placement = place(self, Task(program, workers, limits or Limits(), self._folder, self._store))
            resources.callback(self._place.close)
            door = os.path.join(self.children.private, PAGE_SOCKET)
            self._page = page or resources.enter_context(closing(open_door(self.layout.name, door)))
            resources.enter_context(told(self._page.url, self._folder / PAGE_FILE))
            if self._apart is not None:
                self._watch(self.children.meet(MONITOR, *connect(self._apart)))
            else:
                self._start_monitor()
            self._place.begin()
        except BaseException:
            resources.close()
            raise

    @property
    def stats(self) -> dict[int, Stats]:
        """The last statistics of each worker."""
        return self._gathered.stats

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that there are, in order of worker."""
        return [member.pulse.pid for _, member in sorted(self._place.workers.items())]

    @property
    def monitor_pid(self) -> int | None:
        """That of the monitor."""
        return self._monitor.pid if self._monitor is not None else None

    def explain(self) -> None:
        """Have every worker print what it waits for, on its standard error."""
        for worker, member in self._place.workers.items():
            if worker in self.stats:
                member.explain()

    def run(self, on_stats: OnStats | None = None) -> Result:
        """See the job through.

        Captured batches that an earlier run has handed over are not handed over again.

        Raises the error of a worker that failed (a function of the program, a sink, the store), FalkirkError with the reason
        when the job cannot go on, and JobStopped when it was asked to stop.
        """
        try:
            with explaining(self.explain):
                self._see_through(on_stats)
        finally:
            self._resources.close()
        shutil.rmtree(self._folder / FILES, ignore_errors=True)  # the job is done: nobody goes on from them
        if on_stats is not None and self.stats:
            on_stats(self.stats)
        if self.finished_before:
            self.note(
                f"the job of the store {self._folder} was finished by an earlier run: there is nothing left to do"
            )
        return self._gathered.result()

    def close(self) -> None:
        """End all processes, as they are. `run` does so at its end."""
        self._resources.close()

    def _see_through(self, on_stats: OnStats | None) -> None:
        while self.over is None:
            self._turn(_TICK_SECONDS)
            if on_stats is not None and self.stats:
                on_stats(self.stats)
        if self.over.reason is not None:
            raise (WorkerLost if self.over.lost else FalkirkError)(self.over.reason)
        self.finished_before = self.over.before
        self._place.tell(Leave())
        deadline = time.monotonic() + _END_SECONDS
        while not self._place.left() and time.monotonic() < deadline:
            self._turn(_TICK_SECONDS)
        if self.error is not None:
            raise self.error

    # One turn

    def _turn(self, seconds: float) -> None:
        for child in self.children.wait(seconds):
            if child in self.children.all:  # not ended by what another one said
                self.hear(child, child.control.read())
        for child in self.children.hung():
            if child in self.children.all:
                self.note(f"{self._name(child)} {child.hung}; it is {'replaced' if child.process else 'asked again'}")
                self._gone(child)
        for child, silent in self.children.computing():
            if self.children.liveness.worth_telling(child.pulse, silent):
                self.note(
                    f"{self._name(child)} computes, but without a sign of life for {silent:.0f} s: a call into C that keeps "
                    "Python's lock takes long"
                )
        for child in list(self.children.all):
            if child in self.children.all and self.children.over(child):
                self._gone(child)
        if self.error is not None:
            self.let_it_be_noted()
            raise self.error
        if self.over is None:
            self._store.check_stop()
            if self._away_until is not None and time.monotonic() >= self._away_until:
                self._meet_monitor()
            self._place.turn()

    def let_it_be_noted(self) -> None:
        """The monitor writes down why the job ends, for who looks at it later; the error is the same without."""
        while self._monitor is not None and self.over is None and time.monotonic() < self._noted_by:
            if self._monitor in self.children.wait(_TICK_SECONDS):
                said = self._monitor.control.read()
                if self._monitor.control.ended or any(isinstance(message, Over) for message in said):
                    return

    def hear(self, member: Member, messages: list[FromChild]) -> None:
        """A member of the job has said something."""
        for message in messages:
            match message:
                case Beat(busy, doing):
                    if self.children.liveness.worth_telling(member.pulse, busy):
                        what = doing or "something of its own"
                        self.note(f"{self._name(member)} has been busy for {busy:.0f} s with {what}")
                case Stats():
                    self.stats[member.worker] = message
                case CapturedBatch():
                    self._gathered.capture(member.worker, message)
                case Needed(worker):
                    self._place.needed(worker)
                case Fenced(worker, incarnation, reason):
                    self._place.fenced(worker, incarnation, reason)
                case TimelineNews(kind, at, data):
                    if self._on_event is not None:
                        self._on_event(kind, at, data)
                case Over():
                    self.over = self.over or message
                case Warned(text):
                    self.note(text)
                case Unable() if member is self._monitor and not message.known:
                    self._note_failure(message)
                case Unable():
                    member.failed = True
                    self._fail(member, message)

    def lost(self, message: WorkerGone) -> None:
        """A process of a worker has ended: the monitor decides what follows."""
        if self._monitor is not None and self.over is None:
            self._monitor.tell(message)

    def _fail(self, member: Member, failure: Unable) -> None:
        """A member has failed by an error that ends the job; a spare's is no member's."""
        if self.error is not None:
            return
        if member is self._monitor:
            self.error = error_of(failure, "the monitor")
        elif (
            member.worker >= 0 and failure.kind != WorkerLost.__name__
        ):  # that is of another one, which is found by itself
            self.error = error_of(failure, f"worker {member.worker}")
            if self._monitor is not None:
                self._monitor.tell(Broke(member.worker, str(self.error)))
                self._noted_by = time.monotonic() + _NOTE_SECONDS

    def _note_failure(self, failure: Unable) -> None:
        """The monitor ends for a reason of its own: it is replaced like one that was killed."""
        if failure.trace != self._last_failure:
            self._last_failure = failure.trace
            self.note(
                "the monitor failed, and is replaced; the job goes on. This is a fault of Falkirk: please report it.\n"
                f"{failure.trace}"
            )

    def _gone(self, child: Child) -> None:
        """A process has ended by itself, or was killed by somebody else."""
        self.hear(child, self.children.end(child))
        if child is not self._monitor:
            self._place.gone(child)
            return
        self._monitor = None
        if self.over is None and self.error is None:
            if self._apart is not None:
                self._miss_monitor()
            else:
                self._start_monitor()

    def _name(self, member: Member) -> str:
        if member is self._monitor:
            return "the monitor"
        return f"worker {member.worker}" if member.worker >= 0 else "a spare process"

    # The monitor

    def _start_monitor(self) -> None:
        now = time.monotonic()
        short = _FAILED_SECONDS if self._last_failure else _SHORT_SECONDS
        self._short_lives = self._short_lives + 1 if now - self._monitor_began < short else 0
        if self._short_lives >= _SHORT_LIVES:
            why = f"; it said last:\n{self._last_failure}" if self._last_failure else ""
            self.error = WorkerLost(
                f"the monitor has died {_SHORT_LIVES} times in a row, each within {short:.0f} s of its start; what is "
                f"in the store is safe: run the job again{why}"
            )
            return
        self._monitor_began = now
        self._watch(self.children.start(MONITOR, []))

    def _meet_monitor(self) -> None:
        """Connect to the monitor that is a process apart, if it is there."""
        assert self._apart is not None
        try:
            sock, pid = connect(self._apart)
        except NoMonitor:
            self._away_until = time.monotonic() + _AWAY_SECONDS
            return
        if self._away_until is not None:
            self.note(f"the monitor at {self._apart} is there again")
        self._away_until = None
        self._watch(self.children.meet(MONITOR, sock, pid))

    def _miss_monitor(self) -> None:
        self.note(
            f"the monitor at {self._apart} has gone: until it is started again (falkirk monitor {self._folder}) the job goes "
            "on, but saves and acknowledges nothing, and a worker that dies is not replaced"
        )
        self._away_until = time.monotonic() + _AWAY_SECONDS

    def _watch(self, monitor: Child) -> None:
        self._monitor = monitor
        page = self._page
        watch = Watch(
            str(self._folder),
            self._store.incarnation(),
            encode(self.layout),
            tuple(sorted(self._place.workers)),
            self._on_event is not None,
            self.children.beat_seconds,
            Page(page.title, page.token, page.hidden),
            self._place.token,
        )
        monitor.tell(watch, [self._place.listener, page.listener])
