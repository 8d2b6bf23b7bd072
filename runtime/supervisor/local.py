"""The supervisor of a job without a store, on this host.

The caller's process does no work of its own: it starts the workers, connects each with each, compares what they built,
lets them go, and waits. When one fails or dies, it stops the others and says why; none is ever left behind.
"""

from __future__ import annotations

import signal
import time
import uuid
from typing import NoReturn

from runtime.control import Begin, Built, CapturedBatch, FromChild, Go, Returned, Stats, Unable
from runtime.host_limits import check_processes
from runtime.inputs import Limits
from runtime.job import Drive, OnStats, Result
from runtime.processes.worker import WorkerTask
from runtime.program import Program
from runtime.supervisor.processes import WORKER, Child, Children, link_to, task_file
from runtime.supervisor.result import Gathered, error_of
from runtime.workspace import Workspace
from timely.dataflow.fingerprint import differences, read_outline
from timely.dataflow.plan import compile_plan
from timely.errors import FalkirkError, WorkerLost

_TICK_SECONDS = 0.5
_ROOT_CAUSE_SECONDS = 1.0
"""Seconds to wait, when a worker reports that it lost another one, for the news of why that one ended."""

_READ_SECONDS = 60.0
"""Seconds that a worker may take to read what it is told at its beginning, when it reads nothing else."""


class ProcessGroup:
    """The worker processes of one job on this host."""

    def __init__(
        self,
        program: Program,
        workers: int,
        limits: Limits | None = None,
        drive: Drive | None = None,
    ) -> None:
        check_processes(workers, workers * (workers + 1) + 100)
        flow = program.build()
        compile_plan(flow.graph, workers)
        self._gathered = Gathered(flow, whole=False)
        self._built: dict[int, Built] = {}
        self._finished: set[int] = set()
        self._failure: FalkirkError | None = None
        self._lost = False
        """The failure is only that a worker has lost another one."""
        self._workspace = Workspace()
        self._children = Children(workers, _READ_SECONDS, beats=False)
        try:
            task = WorkerTask(program, workers, limits or Limits(), uuid.uuid4().hex, self._workspace.path, drive)
            with task_file(task) as file:
                for index in range(workers):
                    child = self._children.start(WORKER, [file.fileno()])
                    child.worker = index
            self._members = list(self._children.all)
            for index, child in enumerate(self._members):
                link_to(child, Begin(index, 0, tuple(range(index))), self._members[:index])
        except BaseException:
            self.stop()
            raise

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers, in order."""
        return [child.pid for child in self._members]

    def wait(self, on_stats: OnStats | None = None) -> Result:
        """Wait until all workers are done.

        Raises the error of the worker that failed first, or WorkerLost when one died; the others are stopped first.
        """
        try:
            while len(self._finished) < len(self._members):
                self._turn(_TICK_SECONDS)
                if self._failure is not None:
                    self._raise_failure()
                if on_stats is not None and self._gathered.stats:
                    on_stats(self._gathered.stats)
        finally:
            self.stop()
            self._children.close()
        return self._gathered.result()

    def stop(self) -> None:
        """End all workers that still run: asked first, killed after a grace period."""
        self._children.stop()
        self._workspace.close()

    def explain(self) -> None:
        """Have every worker print what it waits for, on its standard error."""
        for child in self._children.all:
            if child.worker in self._built:
                child.explain()

    def _turn(self, seconds: float) -> None:
        for child in self._children.wait(seconds):
            self._hear(child, child.control.read())
            if self._children.over(child):
                self._hear(child, self._children.end(child))
                self._gone(child)

    def _hear(self, child: Child, messages: list[FromChild]) -> None:
        for message in messages:
            match message:
                case Built():
                    self._built[child.worker] = message
                    self._compare(child.worker)
                case Stats():
                    self._gathered.stats[child.worker] = message
                    if message.done:
                        self._finished.add(child.worker)
                case CapturedBatch():
                    self._gathered.capture(child.worker, message)
                case Returned(value):
                    self._gathered.returns(child.worker, value)
                case Unable():
                    child.failed = True
                    if self._failure is None or self._lost:
                        self._failure = error_of(message, f"worker {child.worker}")
                        # It tells that a connection was closed, and not why.
                        self._lost = isinstance(self._failure, WorkerLost) and "closed its connection" in message.text

    def _compare(self, worker: int) -> None:
        """Let everybody go once all have built the same graph."""
        mine = self._built[worker]
        other = next((other for other in self._built if other != worker), worker)
        theirs = self._built[other]
        if mine.fingerprint != theirs.fingerprint:
            changes = differences(read_outline(theirs.outline), read_outline(mine.outline))
            raise FalkirkError(
                f"worker {worker} built another dataflow than worker {other}, so they cannot work together; "
                "building must not depend on the worker, on chance or on time:\n  " + "\n  ".join(changes)
            )
        if len(self._built) == len(self._members):
            for child in self._children.all:
                child.tell(Go())

    def _gone(self, child: Child) -> None:
        """A worker has ended: if it had nothing to say, its end is the reason why the job fails."""
        if child.worker in self._finished or child.failed or (self._failure is not None and not self._lost):
            return
        code = child.process.returncode if child.process is not None else None
        how = f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"ended with exit code {code}"
        self._failure, self._lost = (
            WorkerLost(
                f"worker {child.worker} (process {child.pid}) {how} before the job was over; the job is stopped, and "
                "nothing beyond the last epochs that its sinks committed was written"
            ),
            False,
        )

    def _raise_failure(self) -> NoReturn:
        """Raise the first failure; when that is a lost connection, the reason of the loss if it comes soon."""
        deadline = time.monotonic() + _ROOT_CAUSE_SECONDS
        while self._lost and time.monotonic() < deadline and self._children.all:
            self._turn(0.05)
        assert self._failure is not None
        raise self._failure
