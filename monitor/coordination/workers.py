"""Phases of a job, and the coordinator's view of its workers.

That is their presence, and what they still owe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from recovery.epoch_ends import EpochEnds
from recovery.place import Place
from recovery.protocol import InMemory


class JobPhase(Enum):
    """Phase of a job."""

    ASSEMBLING = "assembling"
    """After a monitor's start: waiting until it is known which workers still exist."""
    GATHERING = "gathering"
    """The living pause, drain their links and report their memory.

    The dead are replaced, and the new processes report what their stores have.
    """
    DECIDING = "deciding"
    """The fixed point is solved; the decision is being journaled."""
    RESTORING = "restoring"
    """The decision is sent: it is binding."""
    RUNNING = "running"
    """Checkpoints are taken, low-watermarks rise."""
    CLOSING = "closing"
    """Every worker is released; the end is being journaled."""
    OVER = "over"
    """Finished, or failed."""


class Presence(Enum):
    """Presence of a worker's process."""

    AWAITED = "awaited"
    """A process with memory may exist, without a message so far."""
    ABSENT = "absent"
    """No valid process; a new one was requested."""
    BEHIND = "behind"
    """Joined and sent the last decision, to be noted before joining again."""
    JOINED = "joined"
    """Joined with the options of its store, without memory yet."""
    ALIVE = "alive"
    """Sent a decision to restore, and so with memory."""


@dataclass(slots=True)
class WorkerStatus:
    """Worker as the coordinator sees it."""

    worker: int
    presence: Presence
    heard: float
    incarnation: int = -1
    """Highest known incarnation."""
    restored: bool = False
    """True if the last decision is applied."""
    paused: bool = False
    """True if an earlier monitor has ordered a pause."""
    memory: tuple[InMemory, ...] | None = None
    """Memory reported after draining links in this round."""
    ends: tuple[EpochEnds, ...] = ()
    """Ends of epochs known to it at that time."""
    released: bool = False
    failures: int = 0
    """Failures since a low-watermark last rose."""
    due: float | None = None
    """Deadline of its last order."""
    doing: str = ""

    @property
    def place(self) -> Place:
        """Place of its process."""
        return Place(self.worker)

    def counts(self, incarnation: int | None) -> bool:
        """True if this process of the worker has memory and is current.

        None: its driver cannot tell processes apart.
        """
        return self.presence is Presence.ALIVE and incarnation in (None, self.incarnation)

    def has_lost(self, incarnation: int) -> bool:
        """True if this process was given up: its messages count no more."""
        return incarnation < self.incarnation or (incarnation == self.incarnation and self.presence is Presence.ABSENT)

    def must(self, doing: str, due: float) -> None:
        """Set a deadline for an order."""
        self.doing, self.due = doing, due

    def leave(self) -> None:
        """Record the loss of its process and memory."""
        self.presence = Presence.ABSENT
        self.restored = self.paused = self.released = False
        self.memory = None
        self.due = None

    def overdue(self, now: float, silence: float | None) -> str | None:
        """Missed deadline of this worker, in words, or None.

        `silence`: seconds for which it may say nothing, if it must speak.
        """
        if self.due is not None and now >= self.due:
            return f"it did not {self.doing} in time"
        if silence is not None and not self.released and now - self.heard > silence:
            return f"nothing was heard of it for {now - self.heard:.1f} s"
        return None


class WorkerTable:
    """All workers of the job."""

    def __init__(self, workers: int, awaited: tuple[int, ...], now: float) -> None:
        self._workers = [
            WorkerStatus(w, Presence.AWAITED if w in awaited else Presence.ABSENT, now) for w in range(workers)
        ]

    def __getitem__(self, worker: int) -> WorkerStatus:
        return self._workers[worker]

    def __iter__(self) -> Iterator[WorkerStatus]:
        return iter(self._workers)

    def __contains__(self, worker: object) -> bool:
        return isinstance(worker, int) and 0 <= worker < len(self._workers)

    def are(self, *presences: Presence) -> bool:
        """True if every worker is in one of these states."""
        return all(status.presence in presences for status in self._workers)

    def alive(self) -> list[WorkerStatus]:
        """Workers with memory."""
        return [status for status in self._workers if status.presence is Presence.ALIVE]
