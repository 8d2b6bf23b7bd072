"""Lead of a job without a store: its workers begin and end together.

All are let go once they have built the same dataflow, so nothing has been read before. There is nothing that a lost worker
could be restored from: the first loss ends the job.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack

from recovery.place import Place
from runtime.control import Built, FromChild, Go, Over, Stats, Unable
from runtime.folders.workspace import Workspace
from runtime.program import Program, check_alike
from runtime.session.job import Drive
from runtime.sources.limits import Limits
from runtime.supervisor.placement import LocalWorkers, Task
from runtime.supervisor.processes import Child, Children
from runtime.supervisor.result import error_of
from timely.errors import FalkirkError, WorkerLost

_ROOT_CAUSE_SECONDS = 1.0
"""Seconds to wait for the cause, after a worker has reported a lost worker."""


class Together:
    """`runtime.supervisor.supervisor.Lead` of a job without a store.

    What it opens is closed with `resources`.
    """

    def __init__(
        self,
        resources: ExitStack,
        program: Program,
        workers: int,
        limits: Limits,
        note: Callable[[str], None],
        drive: Drive | None,
    ) -> None:
        workspace = Workspace()
        resources.callback(workspace.close)
        self.over: Over | None = None
        self.error: FalkirkError | None = None
        self._workers = workers
        self._built: dict[Place, Built] = {}
        self._finished: set[Place] = set()
        self._suspicion: tuple[float, FalkirkError] | None = None
        """Pending error about a lost worker: time to raise it, and the error.

        It is not raised if the cause is known before.
        """
        self.children = resources.enter_context(Children(workers))
        task = Task(program, workers, limits, uuid.uuid4().hex, workspace.path, drive)
        self.place = LocalWorkers(self.children, task, note)
        resources.callback(self.place.close)
        self.place.begin()
        for place in task.places:
            self.place.needed(place)

    def hear(self, child: Child, message: FromChild) -> None:
        """Handle a worker's message: built, finished, or failed."""
        match message:
            case Built() if child.place is not None:
                child.ready = True
                self._built[child.place] = message
                check_alike(self._built, "building must not depend on the worker, on chance or on time")
                if len(self._built) == self._workers:
                    self.place.tell(Go())
            case Stats(done=True) if child.place is not None:
                self._finished.add(child.place)
                if len(self._finished) == self._workers:
                    self.over = Over()
            case Unable(kind) if kind == WorkerLost.__name__:  # it tells that a connection was closed, and not why
                if self._suspicion is None:
                    self._suspicion = (
                        time.monotonic() + _ROOT_CAUSE_SECONDS,
                        error_of(message, str(child.place)),
                    )
            case Unable() if self.error is None:
                self.error = error_of(message, str(child.place))

    def gone(self, child: Child) -> None:
        """Handle the end of a worker: without an error message, it fails the job."""
        self.place.gone(child)
        if self.error is None and not child.failed and child.place not in self._finished:
            self.error = WorkerLost(
                f"{child.place} (process {child.pid}) {child.how_it_ended()} before the job was over; the job is "
                "stopped, and nothing beyond the last epochs that its sinks committed was written"
            )

    def turn(self) -> None:
        """Raise the fatal error of the job, once it is known."""
        if self.error is not None:
            raise self.error
        if self._suspicion is not None and (time.monotonic() >= self._suspicion[0] or not self.children.all):
            raise self._suspicion[1]

    def stopped(self, by: str) -> None:
        """Do nothing: there is no monitor to note a stop."""

    def finish(self) -> None:
        """Do nothing: no files are left."""
