"""A whole job on a Spark cluster: its workers are the tasks of one barrier stage, its store is a folder that all hosts share.

The monitor runs beside this process, as for a job on one machine. When a task dies Spark ends all tasks of the stage, so no
worker's memory is left; the next attempt's workers go back to what each had persisted, as the monitor decides, and no further.
Every attempt has new incarnations, which fence the journals off from what may be left of earlier ones.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.msgpack import encode

from libraries.spark.cluster_attempt import StageAttempt
from libraries.spark.cluster_calls import Caller, Calls
from libraries.spark.cluster_meeting import begin
from libraries.spark.cluster_session import On, SparkCluster
from libraries.spark.cluster_task import ClusterTask
from libraries.spark.errors import SparkError
from recovery.layout import Layout, lay_out
from runtime.control import (
    PAGE_SOCKET,
    Beat,
    Broke,
    CapturedBatch,
    Fenced,
    FromChild,
    Here,
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
from runtime.inputs import Limits
from runtime.job import OnStats, Result
from runtime.page.address import PAGE_FILE, PageSocket, open_door
from runtime.processes.greeting import listen, new_token
from runtime.processes.worker import FILES, StoreTask, WorkerTask
from runtime.program import Program, packed
from runtime.scratch import Scratch, for_sockets
from runtime.supervisor.processes import MONITOR, Child, Children
from runtime.supervisor.result import Gathered, error_of
from runtime.supervisor.store import JobStore, told
from timely.dataflow.plan import compile_plan
from timely.errors import FalkirkError, WorkerLost

_TICK_SECONDS = 0.05
_FIRST_SECONDS = 10.0
"""The first attempt waits so long for one more executor."""

_AGAIN_SECONDS = 60.0
"""Later ones wait so long: an executor that was lost is started again by the cluster, perhaps on another host."""

_LAUNCH_SECONDS = 120.0
"""Seconds that the tasks of a stage may take to be launched and to call: other jobs of a session may have their places."""

_ASKED_SECONDS = 5.0
"""A monitor that was replaced in the wrong moment may not ask for a worker that it has not heard of; this long it may take."""

_END_SECONDS = 30.0
"""Seconds that workers have to leave when all is done: sinks are closed then."""

_LAST_WORDS_SECONDS = 1.0
"""After an error in a task, so long is waited for the task to tell it."""

_NOTE_SECONDS = 1.0
"""Seconds that the monitor has to note the error that ends the job."""

_MOST_MONITORS = 10
_PATIENCE = 3
"""A task is given up after so many time-outs of silence. Its processor time is not known here, so a call into C that keeps
Python's lock must not look like a process that hangs."""


class ClusterJob:
    """One run of a job on a cluster.

    Args:
        program: what every worker builds.
        workers: how many tasks.
        folder: of the store: all hosts of the cluster, and this one, see it under the same name.
        on: the cluster: a Spark session, or the address of a master.
        limits, on_event, on_note, heartbeat_timeout, page: as for `runtime.supervisor.supervisor.Job`.

    Raises:
        SparkError: if the cluster cannot be used.
        GraphError, StoreError: as for `runtime.supervisor.supervisor.Job`.
    """

    def __init__(
        self,
        program: Program,
        workers: int,
        folder: str | os.PathLike[str],
        on: On,
        limits: Limits | None = None,
        on_event: Callable[[str, float, dict[str, Any]], None] | None = None,
        on_note: Callable[[str], None] | None = None,
        heartbeat_timeout: float = 10.0,
        page: PageSocket | None = None,
    ) -> None:
        flow = program.build()
        self.layout: Layout = lay_out(compile_plan(flow.graph, workers))
        self.finished_before = False
        """The store says that an earlier run has finished the job: nothing was done now."""
        self.attempts = 0
        """Number of submitted stages."""
        self._gathered = Gathered(flow)
        self._program, self._limits = program, limits or Limits()
        self._source = Path(program.path).read_bytes() if program.path is not None else None
        self._on_event = on_event
        self._on_note = on_note or (lambda text: print(f"note: {text}", file=sys.stderr))
        self._silence = _PATIENCE * heartbeat_timeout
        self._monitor: Child | None = None
        self._monitors = 0
        self._attempt: StageAttempt | None = None
        self._incarnations: tuple[int, ...] = ()
        self._needed: set[int] = set()
        """The workers that the monitor has asked for since an attempt failed."""
        self._failed_at = 0.0
        self._called = False
        """True if a task of this attempt has."""
        self._submitted = 0.0
        self._lost_at: float | None = None
        self._over: Over | None = None
        self._error: FalkirkError | None = None
        self._resources = ExitStack()
        resources = self._resources
        try:
            where = _folder(folder)
            self._store = JobStore(resources, where, workers, self._on_note)
            self._cluster = SparkCluster(on)
            resources.callback(self._cluster.close)
            self._token = new_token()
            try:
                self._calls = Calls(self._cluster.bind, self._token, workers)
                resources.callback(self._calls.close)
                self._listener = resources.enter_context(listen(self._cluster.bind))
            except OSError as error:
                raise SparkError(
                    f"executors are to reach this machine at {self._cluster.bind} (spark.driver.bindAddress), where it cannot "
                    f"listen: {error.strerror}"
                ) from error
            self._children = Children(workers, heartbeat_timeout)
            self._children.private = str(resources.enter_context(closing(Scratch("job", for_sockets()))).path)
            door = os.path.join(self._children.private, PAGE_SOCKET)
            self._page = page or resources.enter_context(closing(open_door(self.layout.name, door)))
            resources.enter_context(told(self._page.url, where / PAGE_FILE))
            resources.callback(self._children.close)
            resources.callback(self._children.stop)
            self._start_monitor()
        except BaseException:
            resources.close()
            raise

    @property
    def where(self) -> dict[int, tuple[str, int]]:
        """The host and the process of each worker that has called."""
        return {here.worker: (here.host, here.pid) for each in self._calls.callers if (here := each.here) is not None}

    @property
    def monitor_pid(self) -> int | None:
        """The process of the monitor, on this machine."""
        return self._monitor.pid if self._monitor is not None else None

    def run(self, on_stats: OnStats | None = None) -> Result:
        """See the job through; raises as `runtime.supervisor.supervisor.Job.run`."""
        try:
            while self._over is None:
                if self._attempt is None and self._wanted():
                    self._submit()
                self._turn()
                if on_stats is not None and self._gathered.stats:
                    on_stats(self._gathered.stats)
            if self._over.reason is not None:
                raise (WorkerLost if self._over.lost else FalkirkError)(self._over.reason)
            self.finished_before = self._over.before
            self._finish()
        finally:
            self._end_attempt()
            self._resources.close()
        shutil.rmtree(self._store.folder / FILES, ignore_errors=True)
        result = self._gathered.result()
        if on_stats is not None and result.stats:
            on_stats(result.stats)
        if self.finished_before:
            self._on_note(
                f"the job of the store {self._store.folder} was finished by an earlier run: nothing is left to do"
            )
        return result

    # Attempts

    def _wanted(self) -> bool:
        """True if the monitor has asked for all workers, rather than given the job up; it need not ask for the first time."""
        if self.attempts == 0 or self._needed == set(range(self.layout.workers)):
            return True
        return time.monotonic() > self._failed_at + _ASKED_SECONDS

    def _submit(self) -> None:
        self.attempts += 1
        self._called = False
        self._submitted = time.monotonic()
        workers = self.layout.workers
        self._incarnations = tuple(self._store.incarnation() for _ in range(workers))
        host = self._cluster.host
        monitor, patience = (host, int(self._listener.getsockname()[1])), self._children.liveness.timeout
        folder, job = self._store.folder, self._store.id
        store = StoreTask(str(folder), job, monitor, patience, self._token)
        every = WorkerTask(self._program, workers, self._limits, job.hex(), folder / FILES, store=store)
        task = ClusterTask(every, self._source, self._incarnations, self._children.beat_seconds)
        patience = _FIRST_SECONDS if self.attempts == 1 else _AGAIN_SECONDS
        group = f"falkirk-{secrets.token_hex(4)}"
        work = partial(begin, (host, self._calls.port), self._token, packed(task))
        self._attempt = StageAttempt(self._cluster, work, workers, group, patience)

    def _end_attempt(self) -> None:
        """End what is left of it; what it still says counts no more."""
        attempt, self._attempt = self._attempt, None
        for caller in list(self._calls.callers):
            self._calls.hang_up(caller)
        if attempt is not None and not attempt.over.is_set():
            attempt.cancel()
            attempt.over.wait(_END_SECONDS)

    def _failed(self, reason: str) -> None:
        """Some task is lost, and so all are: the monitor decides to where each worker goes back in the next attempt."""
        self._end_attempt()
        self._needed.clear()
        self._failed_at = time.monotonic()
        if self._over is not None:
            return
        if self._lost_at is None:
            self._lost_at = time.monotonic()
        self._on_note(f"a worker on the cluster was lost ({reason}); the job goes on from its store in a new stage")
        if self._monitor is not None:
            for worker, incarnation in enumerate(self._incarnations):
                self._monitor.tell(WorkerGone(worker, incarnation, reason))

    # One turn

    def _turn(self) -> None:
        for caller, message in self._calls.wait(_TICK_SECONDS):
            self._hear(caller, message)
        self._hear_monitor()
        if self._error is not None:
            self._let_it_be_noted()
            raise self._error
        self._store.check_stop()
        self._look_at_attempt()

    def _look_at_attempt(self) -> None:
        attempt, now = self._attempt, time.monotonic()
        if attempt is None:
            return
        if attempt.over.is_set():
            if attempt.refused is not None:
                raise attempt.refused
            ending = attempt.ending
            if ending is not None and ending.raised:
                self._hear_last_words()
                if not self._called:
                    raise SparkError(
                        f"the workers could not begin on the cluster: {ending.reason}\nExecutors need the Python and the "
                        "packages that this process has (PYSPARK_PYTHON says which Python they use), and must be able to reach "
                        f"{self._cluster.host}"
                    )
            if self._over is None:
                self._failed(ending.reason if ending is not None else "all tasks have ended")
        elif silent := [each for each in self._calls.callers if each.here and now - each.pulse.heard > self._silence]:
            self._failed(f"worker {silent[0].here.worker} gave no sign of life for {self._silence:g} s")  # type: ignore[union-attr]
        elif not self._called and now - self._submitted > _AGAIN_SECONDS + _LAUNCH_SECONDS:
            raise SparkError(
                f"Spark has not launched the {self.layout.workers} workers within {now - self._submitted:.0f} s: is the "
                "cluster busy with something else?"
            )

    def _hear(self, caller: Caller, message: FromChild) -> None:
        here = caller.here
        if here is None or here.incarnation not in self._incarnations:
            return
        match message:
            case Here():
                self._called = True
            case Stats():
                self._gathered.stats[here.worker] = message
            case CapturedBatch():
                self._gathered.capture(here.worker, message)
            case Warned(text):
                self._on_note(text)
            case Beat(busy, doing) if self._children.liveness.worth_telling(caller.pulse, busy):
                self._on_note(
                    f"worker {here.worker} has been busy for {busy:.0f} s with {doing or 'something of its own'}"
                )
            case Unable(kind) if kind != WorkerLost.__name__ and self._error is None:
                self._error = error_of(message, f"worker {here.worker}")
                if self._monitor is not None:  # which writes it down, for who looks at the job later
                    self._monitor.tell(Broke(here.worker, str(self._error)))

    def _hear_last_words(self) -> None:
        """A task has failed by an error, and tells it, perhaps after Spark does."""
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while self._error is None and self._calls.callers and time.monotonic() < deadline:
            for caller, message in self._calls.wait(_TICK_SECONDS):
                self._hear(caller, message)
        if self._error is not None:
            self._let_it_be_noted()
            raise self._error

    def _finish(self) -> None:
        """All is done: let the workers leave."""
        if self._attempt is None:
            return
        for caller in self._calls.callers:
            caller.tell(Leave())
        deadline = time.monotonic() + _END_SECONDS
        while not self._attempt.over.is_set() and time.monotonic() < deadline and self._error is None:
            for caller, message in self._calls.wait(_TICK_SECONDS):
                self._hear(caller, message)
        for caller, message in self._calls.wait(0):
            self._hear(caller, message)
        if self._error is not None:
            raise self._error

    # The monitor

    def _let_it_be_noted(self) -> None:
        deadline = time.monotonic() + _NOTE_SECONDS
        while self._monitor is not None and self._over is None and time.monotonic() < deadline:
            self._children.wait(_TICK_SECONDS)
            self._hear_monitor()

    def _start_monitor(self) -> None:
        self._monitors += 1
        if self._monitors > _MOST_MONITORS:
            self._error = WorkerLost(
                f"the monitor has died {_MOST_MONITORS} times; what is in the store is safe: run the job again"
            )
            return
        self._monitor = self._children.start(MONITOR, [])
        awaited, page = tuple(sorted(self.where)), self._page
        watch = Watch(
            str(self._store.folder),
            self._store.incarnation(),
            encode(self.layout),
            awaited,
            True,
            self._children.beat_seconds,
            Page(page.title, page.token),
            self._token,
        )
        self._monitor.tell(watch, [self._listener, page.listener])

    def _hear_monitor(self) -> None:
        self._children.wait(0)
        child = self._monitor
        if child is None:
            return
        for message in child.control.read():
            self._obey(message)
        for hung in self._children.hung():
            self._on_note(f"the monitor {hung.hung}; it is replaced")
            hung.control.ended = True
        if self._children.over(child):
            for message in self._children.end(child):
                self._obey(message)
            self._monitor = None
            if self._over is None and self._error is None:
                self._start_monitor()

    def _obey(self, message: FromChild) -> None:
        match message:
            case Needed(worker):
                self._needed.add(worker)
            case Over():
                self._over = self._over or message
            case Fenced(worker, incarnation, reason):
                if self._attempt is not None and incarnation in (-1, self._incarnations[worker]):
                    self._failed(f"worker {worker}: {reason}")
            case TimelineNews(kind, at, data):
                if kind == "restored" and self._lost_at is not None:
                    self._on_note(f"the job goes on, {time.monotonic() - self._lost_at:.1f} s after the loss")
                    self._lost_at = None
                if self._on_event is not None:
                    self._on_event(kind, at, data)
            case Warned(text):
                self._on_note(text)
            case Unable() if message.known and self._error is None:
                self._error = error_of(message, "the monitor")
            case Unable() if not message.known:
                self._on_note(
                    "the monitor failed, and is replaced; the job goes on. This is a fault of Falkirk: please report it.\n"
                    f"{message.trace}"
                )


def _folder(folder: str | os.PathLike[str]) -> Path:
    if "://" in str(folder):
        raise SparkError(
            f"the store {folder} is not a folder: a job on a cluster needs one that all hosts share, mounted at the same "
            "place, as over NFS; object stores and HDFS cannot be used yet"
        )
    return Path(folder).absolute()
