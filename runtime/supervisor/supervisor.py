"""The supervisor of a job with a store: starts its workers and its monitor, and starts anew what dies.

It has no part in recovery itself. The monitor says when a worker is to be replaced; a monitor that dies is replaced at once;
when the supervisor dies, all others end. One prepared process waits as a spare, so that a replacement is there soon.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from msgspec.msgpack import encode

from recovery.layout import Layout, lay_out
from runtime.control import (
    MONITOR_SOCKET,
    PAGE_SOCKET,
    Beat,
    Begin,
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
from runtime.host_limits import check_processes, check_workers
from runtime.inputs import Limits
from runtime.job import OnStats, Result, explaining
from runtime.page.address import PAGE_FILE, PageSocket, open_door
from runtime.processes.standalone_monitor import NoMonitor, address_of, connect
from runtime.processes.worker import FILES, StoreTask, WorkerTask
from runtime.program import Program
from runtime.scratch import Scratch, for_sockets
from runtime.supervisor.processes import MONITOR, WORKER, Child, Children, link_to, task_file
from runtime.supervisor.result import Gathered, error_of
from runtime.supervisor.store import JobStore, told
from timely.dataflow.plan import compile_plan
from timely.errors import FalkirkError, WorkerLost

_TICK_SECONDS = 0.25
_SPARE_SECONDS = 0.5
"""Seconds after the use of a spare until the next one is prepared: until then the job needs the processor more."""

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
    ) -> None:
        check_workers(workers)
        check_processes(workers, 6 * workers + 100)
        flow = program.build()
        self.layout: Layout = lay_out(compile_plan(flow.graph, workers))
        self.finished_before = False
        """The store says that an earlier run has finished the job: nothing was done now."""
        self._gathered = Gathered(flow)
        self._on_event = on_event
        self._on_note = on_note or (lambda text: print(f"note: {text}", file=sys.stderr))
        self._workers: dict[int, Child] = {}
        self._spares: deque[Child] = deque()
        self._monitor: Child | None = None
        self._monitor_began = float("-inf")
        self._short_lives = 0
        self._last_failure = ""
        """The last words of a monitor that ended for a reason of its own."""
        self._page = page
        self._apart = address_of(monitor) if monitor is not None else None
        self._away_until: float | None = None
        self._spare_due: float | None = None
        self._over: Over | None = None
        self._error: FalkirkError | None = None
        self._noted_by = float("-inf")
        self._children = Children(workers, heartbeat_timeout)
        self._resources = ExitStack()
        try:
            self._open(program, workers, Path(folder).absolute(), limits or Limits())
        except BaseException:
            self._resources.close()
            raise

    def _open(self, program: Program, workers: int, folder: Path, limits: Limits) -> None:
        resources = self._resources
        self._store = JobStore(resources, folder, workers, self._on_note)
        private = self._children.private = str(resources.enter_context(closing(Scratch("job", for_sockets()))).path)
        self._listener = resources.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        address = os.path.join(private, MONITOR_SOCKET)
        self._listener.bind(address)
        os.chmod(address, 0o600)
        self._listener.listen(4 * workers + 16)
        job, patience = self._store.id, self._children.liveness.timeout
        store = StoreTask(str(folder), job, address, patience)
        task = WorkerTask(program, workers, limits, job.hex(), folder / FILES, store=store)
        self._task = resources.enter_context(task_file(task))
        self._folder = folder
        if self._page is None:
            self._page = resources.enter_context(
                closing(open_door(self.layout.name, os.path.join(private, PAGE_SOCKET)))
            )
        resources.enter_context(told(self._page.url, folder / PAGE_FILE))
        resources.callback(self._children.close)
        resources.callback(self._children.stop)
        if self._apart is not None:
            self._watch(self._children.meet(MONITOR, *connect(self._apart)))
        else:
            self._start_monitor()
        for _ in range(workers):
            self._start_spare()

    @property
    def stats(self) -> dict[int, Stats]:
        """The last statistics of each worker."""
        return self._gathered.stats

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that there are, in order of worker."""
        return [child.pid for _, child in sorted(self._workers.items())]

    @property
    def monitor_pid(self) -> int | None:
        """That of the monitor."""
        return self._monitor.pid if self._monitor is not None else None

    def explain(self) -> None:
        """Have every worker print what it waits for, on its standard error."""
        for child in self._workers.values():
            if child.worker in self.stats:
                child.explain()

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
            self._on_note(
                f"the job of the store {self._folder} was finished by an earlier run: there is nothing left to do"
            )
        return self._gathered.result()

    def close(self) -> None:
        """End all processes, as they are. `run` does so at its end."""
        self._resources.close()

    def _see_through(self, on_stats: OnStats | None) -> None:
        while self._over is None:
            self._turn(_TICK_SECONDS)
            if on_stats is not None and self.stats:
                on_stats(self.stats)
        if self._over.reason is not None:
            raise (WorkerLost if self._over.lost else FalkirkError)(self._over.reason)
        self.finished_before = self._over.before
        self._finish()
        if self._error is not None:
            raise self._error

    # One turn

    def _turn(self, seconds: float) -> None:
        for child in self._children.wait(seconds):
            if child in self._children.all:  # not ended by what another one said
                self._hear(child, child.control.read())
        for child in self._children.hung():
            if child in self._children.all:
                self._on_note(
                    f"{self._name(child)} {child.hung}; it is {'replaced' if child.process else 'asked again'}"
                )
                self._gone(child)
        for child, silent in self._children.computing():
            if self._children.liveness.worth_telling(child.pulse, silent):
                self._on_note(
                    f"{self._name(child)} computes, but without a sign of life for {silent:.0f} s: a call into C that keeps "
                    "Python's lock takes long"
                )
        for child in list(self._children.all):
            if child in self._children.all and self._children.over(child):
                self._gone(child)
        if self._error is not None:
            self._let_it_be_noted()
            raise self._error
        self._store.check_stop()
        if self._away_until is not None and time.monotonic() >= self._away_until and self._over is None:
            self._meet_monitor()
        if self._spare_due is not None and time.monotonic() >= self._spare_due and self._over is None:
            self._spare_due = None
            if not self._spares:
                self._start_spare()

    def _let_it_be_noted(self) -> None:
        """The monitor writes down why the job ends, for who looks at it later; the error is the same without."""
        while self._monitor is not None and self._over is None and time.monotonic() < self._noted_by:
            if self._monitor in self._children.wait(_TICK_SECONDS):
                said = self._monitor.control.read()
                if self._monitor.control.ended or any(isinstance(message, Over) for message in said):
                    return

    def _finish(self) -> None:
        """All is done: let the workers leave."""
        for child in self._workers.values():
            child.tell(Leave())
        deadline = time.monotonic() + _END_SECONDS
        while self._workers and time.monotonic() < deadline and self._error is None:
            for child in self._children.wait(_TICK_SECONDS):
                self._hear(child, child.control.read())
            for child in list(self._workers.values()):
                if self._children.over(child):
                    self._hear(child, self._children.end(child))
                    del self._workers[child.worker]

    def _hear(self, child: Child, messages: list[FromChild]) -> None:
        for message in messages:
            match message:
                case Beat(busy, doing):
                    if self._children.liveness.worth_telling(child.pulse, busy):
                        what = doing or "something of its own"
                        self._on_note(f"{self._name(child)} has been busy for {busy:.0f} s with {what}")
                case Stats():
                    self.stats[child.worker] = message
                case CapturedBatch():
                    self._gathered.capture(child.worker, message)
                case Needed(worker):
                    self._replace(worker)
                case Fenced(worker, incarnation, _):
                    there = self._workers.get(worker)
                    if there is not None and incarnation in (-1, there.incarnation):
                        self._dismiss(there)
                case TimelineNews(kind, at, data):
                    if self._on_event is not None:
                        self._on_event(kind, at, data)
                case Over():
                    self._over = self._over or message
                case Warned(text):
                    self._on_note(text)
                case Unable() if child is self._monitor and not message.known:
                    self._note_failure(message)
                case Unable():
                    child.failed = True
                    if child not in self._spares and self._error is None:
                        self._error = error_of(
                            message, f"worker {child.worker}" if child.module == WORKER else "the monitor"
                        )
                        if child.module == WORKER and self._monitor is not None:
                            self._monitor.tell(Broke(child.worker, str(self._error)))
                            self._noted_by = time.monotonic() + _NOTE_SECONDS

    def _note_failure(self, failure: Unable) -> None:
        """The monitor ends for a reason of its own: it is replaced like one that was killed."""
        if failure.trace != self._last_failure:
            self._last_failure = failure.trace
            self._on_note(
                "the monitor failed, and is replaced; the job goes on. This is a fault of Falkirk: please report it.\n"
                f"{failure.trace}"
            )

    def _gone(self, child: Child) -> None:
        """A process has ended by itself, or was killed by somebody else."""
        self._hear(child, self._children.end(child))
        if child is self._monitor:
            self._monitor = None
            if self._over is None and self._error is None:
                if self._apart is not None:
                    self._miss_monitor()
                else:
                    self._start_monitor()
        elif child in self._spares:
            self._spares.remove(child)  # one that cannot even be prepared is not tried again before it is needed
            if not child.failed:
                self._spare_due = time.monotonic() + _SPARE_SECONDS
        elif self._workers.get(child.worker) is child:
            del self._workers[child.worker]
            if self._monitor is not None:
                self._monitor.tell(WorkerGone(child.worker, child.incarnation, child.how_it_ended()))

    # Processes

    def _start_monitor(self) -> None:
        now = time.monotonic()
        short = _FAILED_SECONDS if self._last_failure else _SHORT_SECONDS
        self._short_lives = self._short_lives + 1 if now - self._monitor_began < short else 0
        if self._short_lives >= _SHORT_LIVES:
            why = f"; it said last:\n{self._last_failure}" if self._last_failure else ""
            self._error = WorkerLost(
                f"the monitor has died {_SHORT_LIVES} times in a row, each within {short:.0f} s of its start; what is "
                f"in the store is safe: run the job again{why}"
            )
            return
        self._monitor_began = now
        self._watch(self._children.start(MONITOR, []))

    def _meet_monitor(self) -> None:
        """Connect to the monitor that is a process apart, if it is there."""
        assert self._apart is not None
        try:
            sock, pid = connect(self._apart)
        except NoMonitor:
            self._away_until = time.monotonic() + _AWAY_SECONDS
            return
        if self._away_until is not None:
            self._on_note(f"the monitor at {self._apart} is there again")
        self._away_until = None
        self._watch(self._children.meet(MONITOR, sock, pid))

    def _miss_monitor(self) -> None:
        self._on_note(
            f"the monitor at {self._apart} has gone: until it is started again (falkirk monitor {self._folder}) the job goes "
            "on, but saves and acknowledges nothing, and a worker that dies is not replaced"
        )
        self._away_until = time.monotonic() + _AWAY_SECONDS

    def _watch(self, monitor: Child) -> None:
        self._monitor = monitor
        awaited, timeline = tuple(sorted(self._workers)), self._on_event is not None
        page = self._page
        assert page is not None
        watch = Watch(
            str(self._folder),
            self._store.incarnation(),
            encode(self.layout),
            awaited,
            timeline,
            self._children.beat_seconds,
            Page(page.title, page.token, page.hidden),
        )
        monitor.tell(watch, [self._listener, page.listener])

    def _start_spare(self) -> None:
        self._spares.append(self._children.start(WORKER, [self._task.fileno()]))

    def _replace(self, worker: int) -> None:
        """Start a process for a worker, connected to all others."""
        there = self._workers.get(worker)
        if there is not None:
            self._dismiss(there)
        if not self._spares:
            self._start_spare()
        child = self._spares.popleft()
        child.worker, child.incarnation = worker, self._store.incarnation()
        link_to(child, Begin(worker, child.incarnation, tuple(self._workers)), list(self._workers.values()))
        self._workers[worker] = child
        self._spare_due = time.monotonic() + _SPARE_SECONDS

    def _name(self, child: Child) -> str:
        if child is self._monitor:
            return "the monitor"
        return "a spare process" if child in self._spares else f"worker {child.worker}"

    def _dismiss(self, child: Child) -> None:
        """End a worker that must not go on; what it said in time counts, its last words do not."""
        del self._workers[child.worker]
        self._children.end(child)
