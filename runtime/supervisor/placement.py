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

from runtime.control import MONITOR_SOCKET, Begin, ToChild, WorkerGone
from runtime.host_limits import check_processes
from runtime.inputs import Limits
from runtime.processes.worker import FILES, StoreTask, WorkerTask
from runtime.program import Program
from runtime.supervisor.liveness import Pulse
from runtime.supervisor.processes import WORKER, Child, link_to, task_file
from runtime.supervisor.store import JobStore

if TYPE_CHECKING:
    from runtime.supervisor.supervisor import Job

_SPARE_SECONDS = 0.5
"""Seconds after the use of a spare until the next one is prepared: until then the job needs the processor more."""


class Member(Protocol):
    """A process that takes part in a job."""

    pulse: Pulse
    failed: bool
    """True if it said itself why it ends."""

    @property
    def worker(self) -> int:
        """Its number; -1: it is none yet."""

    def explain(self) -> None:
        """Have it print what it waits for, if it can be asked."""


@dataclass(frozen=True, slots=True)
class Task:
    """The task of all workers of a job, as its supervisor knows it."""

    program: Program
    workers: int
    limits: Limits
    folder: Path
    store: JobStore

    def packable(self, monitor: str | tuple[str, int], patience: float, token: bytes = b"") -> WorkerTask:
        """It, for workers that find the monitor at an address."""
        store = StoreTask(str(self.folder), self.store.id, monitor, patience, token)
        files = self.folder / FILES
        return WorkerTask(self.program, self.workers, self.limits, self.store.id.hex(), files, store=store)


class Placement(Protocol):
    """Starts and ends the processes of workers, when the supervisor or the monitor says so."""

    listener: socket.socket
    """The socket to which workers connect to reach the monitor."""
    token: bytes
    """The secret that they say first; empty where nobody else can connect."""

    @property
    def workers(self) -> Mapping[int, Member]:
        """The workers whose processes are there."""

    def begin(self) -> None:
        """The monitor has been told what it watches: prepare."""

    def needed(self, worker: int) -> None:
        """The monitor wants a new process for a worker; whichever there is must not be."""

    def fenced(self, worker: int, incarnation: int, reason: str) -> None:
        """The monitor has given up this process of a worker (-1: whichever there is)."""

    def gone(self, child: Child) -> None:
        """A process has ended that was started here."""

    def turn(self) -> None:
        """Several times a second, while the job goes on."""

    def tell(self, message: ToChild) -> None:
        """Tell all workers something."""

    def left(self) -> bool:
        """True if no worker is there any more. Hears what they have said at last."""

    def close(self) -> None:
        """The job ends, however: end what is left."""


Open: TypeAlias = "Callable[[Job, Task], Placement]"


class LocalWorkers:
    """Workers as processes of this host, replaced one by one. One prepared process waits as a spare, to be there soon."""

    token = b""

    def __init__(self, job: Job, task: Task) -> None:
        check_processes(task.workers, 6 * task.workers + 100)
        self._job = job
        self._count = task.workers
        self._incarnation = task.store.incarnation
        self._spares: deque[Child] = deque()
        self._spare_due: float | None = None
        self.workers: dict[int, Child] = {}
        address = os.path.join(job.children.private, MONITOR_SOCKET)
        self._task = task_file(task.packable(address, job.children.liveness.timeout))
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(address)
        os.chmod(address, 0o600)
        self.listener.listen(4 * task.workers + 16)

    def begin(self) -> None:
        """Prepare a process for each worker."""
        for _ in range(self._count):
            self._start_spare()

    def needed(self, worker: int) -> None:
        """Start a process for a worker, connected to all others."""
        there = self.workers.get(worker)
        if there is not None:
            self._dismiss(there)
        if not self._spares:
            self._start_spare()
        child = self._spares.popleft()
        child.worker, child.incarnation = worker, self._incarnation()
        link_to(child, Begin(worker, child.incarnation, tuple(self.workers)), list(self.workers.values()))
        self.workers[worker] = child
        self._spare_due = time.monotonic() + _SPARE_SECONDS

    def fenced(self, worker: int, incarnation: int, reason: str) -> None:
        """End a process at once."""
        there = self.workers.get(worker)
        if there is not None and incarnation in (-1, there.incarnation):
            self._dismiss(there)

    def gone(self, child: Child) -> None:
        """A worker, or a spare, has ended."""
        if child in self._spares:
            self._spares.remove(child)  # one that cannot even be prepared is not tried again before it is needed
            if not child.failed:
                self._spare_due = time.monotonic() + _SPARE_SECONDS
        elif self.workers.get(child.worker) is child:
            del self.workers[child.worker]
            self._job.lost(WorkerGone(child.worker, child.incarnation, child.how_it_ended()))

    def turn(self) -> None:
        """Prepare the next spare when its time has come."""
        if self._spare_due is not None and time.monotonic() >= self._spare_due:
            self._spare_due = None
            if not self._spares:
                self._start_spare()

    def tell(self, message: ToChild) -> None:
        """Tell all workers something."""
        for child in self.workers.values():
            child.tell(message)

    def left(self) -> bool:
        """True if all workers have ended."""
        return not self.workers

    def close(self) -> None:
        """Nobody connects any more. The supervisor ends the processes."""
        self.listener.close()
        self._task.close()

    def _start_spare(self) -> None:
        self._spares.append(self._job.children.start(WORKER, [self._task.fileno()]))

    def _dismiss(self, child: Child) -> None:
        """End a worker that must not go on; what it said in time counts, its last words do not."""
        del self.workers[child.worker]
        self._job.children.end(child)
