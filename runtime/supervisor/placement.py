"""Placements: start, connect and end the processes of a job's workers."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from monitor.coordination.supervision import Happened, Lost, MateView
from recovery.place import Place, places
from runtime.control import MONITOR_SOCKET, Begin, Follow, Followed, Mated, ToChild
from runtime.host_limits import check_processes
from runtime.processes.task import StoreTask, WorkerTask
from runtime.processes.worker import HASTE
from runtime.program import Program
from runtime.session.job import Drive
from runtime.sources.limits import Limits
from runtime.supervisor.mates import MOST_FAILURES, MateRecords
from runtime.supervisor.processes import WORKER, Child, Children, link_to, task_file

if TYPE_CHECKING:
    from runtime.supervisor.store import JobStore

_SPARE_SECONDS = 0.5
"""Seconds after the use of a spare until the next one is prepared.

Until then the job needs the processor more.
"""

_AFTER_SECONDS, _RESTORE_SECONDS = 0.2, 5.0
"""Seconds before the next spare starts after a loss: once restored, and at most."""


_MATE_SECONDS = 0.1
"""Seconds between the starts of two mates."""


@dataclass(frozen=True, slots=True)
class Task:
    """Task of all workers of a job, in the supervisor.

    The fields are those of `WorkerTask`.
    """

    program: Program
    workers: int
    limits: Limits
    job: str
    files: Path
    drive: Drive | None = None
    store: JobStore | None = None
    copies: int = 1
    """Number of processes of each worker in rounds: one at work, and copies."""
    mates: int = 0
    """Number of mates of each worker."""

    @property
    def places(self) -> tuple[Place, ...]:
        """Places of all processes."""
        return places(self.workers, self.copies)

    def packable(self, monitor: str | tuple[str, int], patience: float, token: bytes = b"") -> WorkerTask:
        """Task to be sent to workers, with the address of the monitor."""
        store = None
        if self.store is not None:
            store = StoreTask(
                self.store.address, self.store.id, monitor, patience, token, self.copies, self.store.layout
            )
        return WorkerTask(self.program, self.workers, self.limits, self.job, self.files, self.drive, store)

    def incarnation(self) -> int:
        """Number for a new process, higher than any before; 0 without a store."""
        return self.store.incarnation() if self.store is not None else 0


class Placement(Protocol):
    """Placement of workers: starts and ends their processes for the lead."""

    token: bytes
    """Secret sent first by workers to the monitor; empty if no stranger can connect."""

    @property
    def listener(self) -> socket.socket:
        """Listening socket of the monitor, for workers."""

    @property
    def workers(self) -> Mapping[Place, Child]:
        """Processes of workers, by place."""

    def begin(self) -> None:
        """Prepare processes; the monitor, if any, knows the job by now."""

    def needed(self, place: Place) -> bool:
        """Start a process at a place, instead of any there; True if it is its mate."""

    def fenced(self, place: Place, incarnation: int, reason: str) -> list[Lost]:
        """Give up the process at a place (-1: any); returns the losses that follow."""

    def gone(self, child: Child) -> list[Lost]:
        """Handle the end, or silence, of a worker's process; returns the losses."""

    def turn(self) -> list[Lost]:
        """Return new losses; called several times a second while the job goes on."""

    def caught_up(self, child: Child, seconds: float) -> None:
        """Record a mate as caught up with its worker, after so many seconds."""

    def followed(self, child: Child, report: Followed) -> None:
        """Take a mate's report of itself."""

    @property
    def mate_views(self) -> tuple[MateView, ...]:
        """Mates as they are now; () for a job without."""

    def take_lost_mates(self) -> list[Happened]:
        """Losses of mates since the last call, for the timeline."""

    def restored(self) -> None:
        """Handle the end of a recovery: the job goes on after a loss."""

    def tell(self, message: ToChild) -> None:
        """Send a message to all workers."""

    def left(self) -> bool:
        """True if no worker is left, and all their messages were read."""

    def close(self) -> None:
        """End the placement with the job, except for child processes."""


Open: TypeAlias = Callable[[Children, Task, Callable[[str], None]], Placement]
"""Factory of placements from processes, task and a function for notes.

The processes are among `Children`.
"""


class LocalWorkers:
    """Workers as processes of this host, started and replaced one by one.

    With a store one prepared process waits as a spare, to be there soon. With mates, spares become mates of the workers, in
    the background, and a mate takes the place of its worker. What a mate holds is in the store as well: one that dies is begun
    anew.
    """

    token = b""

    def __init__(self, children: Children, task: Task, note: Callable[[str], None]) -> None:
        # A connection between two workers is two files, until both have taken their ends; what else there is are a few each.
        processes = len(task.places) * (1 + task.mates)
        check_processes(processes, processes * (processes + 7) + 100)
        self._children = children
        self._task = task
        self._note = note
        self._spares: deque[Child] = deque()
        self.mates: dict[int, Child] = {}
        """Mate of each worker, if it has one."""
        self._records = MateRecords(task.workers if task.mates else 0)
        self._lost_mates: list[Happened] = []
        self._spare_due: float | None = None
        self._has_lost = False
        """True after the first loss of a worker: then the next spare warms up at once.

        Where one dies another one may soon.
        """
        self._listener: socket.socket | None = None
        self.workers: dict[Place, Child] = {}
        address = os.path.join(children.private, MONITOR_SOCKET)
        self._file = task_file(task.packable(address, children.liveness.timeout))
        if task.store is not None:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(address)
            os.chmod(address, 0o600)
            self._listener.listen(4 * processes + 16)

    @property
    def listener(self) -> socket.socket:
        """Listening socket of the monitor, in a job with a store."""
        assert self._listener is not None
        return self._listener

    def begin(self) -> None:
        """Prepare a process for each place."""
        for _ in self._task.places:
            self._start_spare()

    def needed(self, place: Place) -> bool:
        """Start a process at a place, connected to all others; True if it is a mate."""
        there = self.workers.get(place)
        if there is not None:
            self._dismiss(there)
        mate = self.mates.pop(place.worker, None)
        if mate is None and not self._spares:
            self._start_spare()
        child = mate or self._spares.popleft()
        if mate is not None:
            self._records.took_over(place.worker)
        child.place, child.incarnation = place, self._task.incarnation()
        link_to(child, Begin(place, child.incarnation, tuple(self.workers)), list(self.workers.values()))
        self.workers[place] = child
        if self._task.store is not None:
            self._spare_due = time.monotonic() + (_RESTORE_SECONDS if self._has_lost else _SPARE_SECONDS)
        return mate is not None

    def fenced(self, place: Place, incarnation: int, reason: str) -> list[Lost]:
        """End a process at once; this causes no loss to report."""
        there = self.workers.get(place)
        if there is not None and incarnation in (-1, there.incarnation):
            self._dismiss(there)
        return []

    def gone(self, child: Child) -> list[Lost]:
        """Handle the end of a worker, a mate or a spare."""
        if child in self.mates.values():
            self._miss_mate(child, child.how_it_ended())
        elif child in self._spares:
            self._spares.remove(child)  # one that cannot even be prepared is not tried again before it is needed
            if not child.failed:
                self._spare_due = time.monotonic() + _SPARE_SECONDS
        elif child.place is not None and self.workers.get(child.place) is child:
            del self.workers[child.place]
            self._has_lost = True
            return [Lost(child.place, child.incarnation, f"process {child.pid} {child.how_it_ended()}", child.words)]
        return []

    def turn(self) -> list[Lost]:
        """Prepare the next spare, or mate, when it is due."""
        if self._spare_due is not None and time.monotonic() >= self._spare_due:
            self._spare_due = None
            if not self._spares:
                self._start_spare()
            for worker in range(self._task.workers if self._task.mates else 0):
                if worker not in self.mates and Place(worker) in self.workers and self._records.may_begin(worker):
                    self._spare_due = time.monotonic() + _MATE_SECONDS
                    self._begin_mate(worker, self._spares.popleft())
                    break
        for worker in self._records.fallen_behind(time.monotonic()):
            child = self.mates[worker]
            self._children.end(child)
            self._miss_mate(child, "has fallen behind for good")
        return []

    def _begin_mate(self, worker: int, child: Child) -> None:
        self.mates[worker] = child
        child.mate_of = worker
        self._records.begun(worker, child.pid)
        one, other = socket.socketpair()
        with one, other:
            child.tell(Follow(Place(worker, 1)), [one])
            self.workers[Place(worker)].tell(Mated(), [other])

    def _miss_mate(self, child: Child, how: str) -> None:
        """Have another mate begin anew, unless none of this worker comes far."""
        worker = child.mate_of
        assert worker is not None
        del self.mates[worker]
        again = self._records.lost(worker)
        what = f"the mate of worker {worker} {how}"
        if again:
            self._note(f"{what}; another one begins anew")
            self._spare_due = time.monotonic() + _SPARE_SECONDS
        else:
            self._note(f"{what}, as {MOST_FAILURES - 1} before it: worker {worker} goes on without a mate")
        self._lost_mates.append(Happened("mate_lost", {"worker": worker, "reason": how, "again": again}))

    def caught_up(self, child: Child, seconds: float) -> None:
        """Record a mate as caught up with its worker, after so many seconds."""
        if child.mate_of is not None:
            child.caught_up = True
            self._records.caught_up(child.mate_of, seconds)

    def followed(self, child: Child, report: Followed) -> None:
        """Take a mate's report of itself."""
        if self.mates.get(report.place.worker) is child:
            self._records.followed(report.place.worker, report, time.monotonic())

    @property
    def mate_views(self) -> tuple[MateView, ...]:
        """Mates as they are now; () for a job without."""
        return self._records.views

    def take_lost_mates(self) -> list[Happened]:
        """Losses of mates since the last call, for the timeline."""
        lost, self._lost_mates = self._lost_mates, []
        return lost

    def restored(self) -> None:
        """Bring the next spare forward, as the restore is over."""
        if self._spare_due is not None:
            self._spare_due = min(self._spare_due, time.monotonic() + _AFTER_SECONDS)

    def tell(self, message: ToChild) -> None:
        """Send a message to all workers."""
        for child in self.workers.values():
            child.tell(message)

    def left(self) -> bool:
        """True if all workers have ended."""
        return not self.workers

    def close(self) -> None:
        """Close the socket and the task file."""
        if self._listener is not None:
            self._listener.close()
        self._file.close()

    def _start_spare(self) -> None:
        haste = (HASTE,) if self._has_lost else ()
        self._spares.append(self._children.start(WORKER, [self._file.fileno()], *haste))

    def _dismiss(self, child: Child) -> None:
        """End an unwanted worker; its unread messages are dropped."""
        assert child.place is not None
        del self.workers[child.place]
        self._children.end(child)
