"""Placements: where the workers of a job are, and how their processes are started, connected and ended."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from monitor.coordination.supervision import Lost
from runtime.control import MONITOR_SOCKET, Begin, ToChild
from runtime.host_limits import check_processes
from runtime.inputs import Limits
from runtime.job import Drive
from runtime.processes.worker import HASTE, StoreTask, WorkerTask
from runtime.program import Program
from runtime.supervisor.processes import WORKER, Child, Children, link_to, task_file

if TYPE_CHECKING:
    from runtime.supervisor.store import JobStore

_SPARE_SECONDS = 0.5
"""Seconds after the use of a spare until the next one is prepared: until then the job needs the processor more."""

_AFTER_SECONDS, _RESTORE_SECONDS = 0.2, 5.0
"""After a loss that is so long after the job goes on, when its first epochs are out; and in any case after so many seconds."""


@dataclass(frozen=True, slots=True)
class Task:
    """The task of all workers of a job, as its supervisor knows it. The fields are those of `WorkerTask`."""

    program: Program
    workers: int
    limits: Limits
    job: str
    files: Path
    drive: Drive | None = None
    store: JobStore | None = None

    def packable(self, monitor: str | tuple[str, int], patience: float, token: bytes = b"") -> WorkerTask:
        """It, for workers; those of a job with a store find the monitor at an address."""
        store = None
        if self.store is not None:
            store = StoreTask(str(self.store.folder), self.store.id, monitor, patience, token)
        return WorkerTask(self.program, self.workers, self.limits, self.job, self.files, self.drive, store)

    def incarnation(self) -> int:
        """A number for a process that begins. Without a store there is one process for each worker."""
        return self.store.incarnation() if self.store is not None else 0


class Placement(Protocol):
    """Starts and ends the processes of workers, when the lead of the job says so."""

    token: bytes
    """The secret that workers say first to the monitor; empty where nobody else can connect."""

    @property
    def listener(self) -> socket.socket:
        """The socket to which workers connect to reach the monitor."""

    @property
    def workers(self) -> Mapping[int, Child]:
        """The workers whose processes are there."""

    def begin(self) -> None:
        """Prepare: the monitor, if there is one, has been told what it watches."""

    def needed(self, worker: int) -> None:
        """A worker is wanted; whichever process of it there is must not be."""

    def fenced(self, worker: int, incarnation: int, reason: str) -> list[Lost]:
        """This process of a worker has been given up (-1: whichever there is). Gives the losses that follow."""

    def gone(self, child: Child) -> list[Lost]:
        """A process of a worker has ended, or cannot be heard any more. Gives the losses that follow."""

    def turn(self) -> list[Lost]:
        """Gives what was lost; called several times a second, while the job goes on."""

    def restored(self) -> None:
        """The job goes on after a loss."""

    def tell(self, message: ToChild) -> None:
        """Tell all workers something."""

    def left(self) -> bool:
        """True if no worker is there any more, and all have been heard."""

    def close(self) -> None:
        """The job ends, however: end what is left, but for children."""


Open: TypeAlias = Callable[[Children, Task, Callable[[str], None]], Placement]
"""Opens the placement of a task; its processes are heard as some of `Children`. The function takes notes for the user."""


class LocalWorkers:
    """Workers as processes of this host, started and replaced one by one.

    With a store one prepared process waits as a spare, to be there soon.
    """

    token = b""

    def __init__(self, children: Children, task: Task, note: Callable[[str], None]) -> None:
        # A connection between two workers is two files, until both have taken their ends; what else there is are a few each.
        check_processes(task.workers, task.workers * (task.workers + 5) + 100)
        self._children = children
        self._task = task
        self._spares: deque[Child] = deque()
        self._spare_due: float | None = None
        self._has_lost = False
        """True since a worker was lost: where one dies another one may soon, and the next spare makes haste."""
        self._listener: socket.socket | None = None
        self.workers: dict[int, Child] = {}
        address = os.path.join(children.private, MONITOR_SOCKET)
        self._file = task_file(task.packable(address, children.liveness.timeout))
        if task.store is not None:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(address)
            os.chmod(address, 0o600)
            self._listener.listen(4 * task.workers + 16)

    @property
    def listener(self) -> socket.socket:
        """The socket to which workers connect to reach the monitor, in a job with a store."""
        assert self._listener is not None
        return self._listener

    def begin(self) -> None:
        """Prepare a process for each worker."""
        for _ in range(self._task.workers):
            self._start_spare()

    def needed(self, worker: int) -> None:
        """Start a process for a worker, connected to all others."""
        there = self.workers.get(worker)
        if there is not None:
            self._dismiss(there)
        if not self._spares:
            self._start_spare()
        child = self._spares.popleft()
        child.worker, child.incarnation = worker, self._task.incarnation()
        link_to(child, Begin(worker, child.incarnation, tuple(self.workers)), list(self.workers.values()))
        self.workers[worker] = child
        if self._task.store is not None:
            self._spare_due = time.monotonic() + (_RESTORE_SECONDS if self._has_lost else _SPARE_SECONDS)

    def fenced(self, worker: int, incarnation: int, reason: str) -> list[Lost]:
        """End a process at once: that is no loss to be told of."""
        there = self.workers.get(worker)
        if there is not None and incarnation in (-1, there.incarnation):
            self._dismiss(there)
        return []

    def gone(self, child: Child) -> list[Lost]:
        """A worker, or a spare, has ended."""
        if child in self._spares:
            self._spares.remove(child)  # one that cannot even be prepared is not tried again before it is needed
            if not child.failed:
                self._spare_due = time.monotonic() + _SPARE_SECONDS
        elif self.workers.get(child.worker) is child:
            del self.workers[child.worker]
            self._has_lost = True
            return [Lost(child.worker, child.incarnation, f"process {child.pid} {child.how_it_ended()}")]
        return []

    def turn(self) -> list[Lost]:
        """Prepare the next spare when its time has come."""
        if self._spare_due is not None and time.monotonic() >= self._spare_due:
            self._spare_due = None
            if not self._spares:
                self._start_spare()
        return []

    def restored(self) -> None:
        """The next spare has not disturbed the restore. Now it may begin."""
        if self._spare_due is not None:
            self._spare_due = min(self._spare_due, time.monotonic() + _AFTER_SECONDS)

    def tell(self, message: ToChild) -> None:
        """Tell all workers something."""
        for child in self.workers.values():
            child.tell(message)

    def left(self) -> bool:
        """True if all workers have ended."""
        return not self.workers

    def close(self) -> None:
        """Nobody connects any more."""
        if self._listener is not None:
            self._listener.close()
        self._file.close()

    def _start_spare(self) -> None:
        haste = (HASTE,) if self._has_lost else ()
        self._spares.append(self._children.start(WORKER, [self._file.fileno()], *haste))

    def _dismiss(self, child: Child) -> None:
        """End a worker that must not go on; what it said in time counts, its last words do not."""
        del self.workers[child.worker]
        self._children.end(child)
