"""The phases of a job, and its workers as the coordinator knows them: their presence, and what they still owe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from recovery.epoch_ends import EpochEnds
from recovery.protocol import InMemory


class JobPhase(Enum):
    """The phase of a job."""

    ASSEMBLING = "assembling"
    """After the death of a monitor: which workers are still there?"""
    GATHERING = "gathering"
    """The living pause, drain their links and report their memory; the dead are replaced, and the new processes report what
    their stores have."""
    DECIDING = "deciding"
    """The fixed point is solved; the decision is on its way to the journal."""
    RESTORING = "restoring"
    """The decision is sent: it is binding."""
    RUNNING = "running"
    """Checkpoints are taken, low-watermarks rise."""
    CLOSING = "closing"
    """Every worker is done for good; the journal hears of it."""
    OVER = "over"
    """Finished, or failed."""


class Presence(Enum):
    """The presence of a worker's process."""

    AWAITED = "awaited"
    """A process may be there, with memory; it has not been heard yet."""
    ABSENT = "absent"
    """No process that counts; one was asked for."""
    BEHIND = "behind"
    """It has joined, was sent the last decision, and must join again when it has noted it."""
    JOINED = "joined"
    """It offers what its store has, and has no memory yet."""
    ALIVE = "alive"
    """It has been sent what to restore, and so has memory."""


@dataclass(slots=True)
class WorkerStatus:
    """One worker."""

    worker: int
    presence: Presence
    heard: float
    incarnation: int = -1
    """The highest that was heard of."""
    restored: bool = False
    """The last decision is applied."""
    paused: bool = False
    """An earlier monitor has told it to pause."""
    memory: tuple[InMemory, ...] | None = None
    """Its memory, since it has drained its links in this round."""
    ends: tuple[EpochEnds, ...] = ()
    """The ends of epochs that it then knew of."""
    released: bool = False
    failures: int = 0
    """Since a low-watermark last rose."""
    due: float | None = None
    """The deadline of its last order."""
    doing: str = ""

    def counts(self, incarnation: int | None) -> bool:
        """True if this process of it has memory, and is the one that does; None: its driver cannot tell processes apart."""
        return self.presence is Presence.ALIVE and incarnation in (None, self.incarnation)

    def has_lost(self, incarnation: int) -> bool:
        """True if this process of it was given up before: nothing that it says, or that is said of it, is news."""
        return incarnation < self.incarnation or (incarnation == self.incarnation and self.presence is Presence.ABSENT)

    def must(self, doing: str, due: float) -> None:
        """Set a deadline for what it was told to do."""
        self.doing, self.due = doing, due

    def leave(self) -> None:
        """Its process is gone, and its memory with it."""
        self.presence = Presence.ABSENT
        self.restored = self.paused = self.released = False
        self.memory = None
        self.due = None

    def overdue(self, now: float, silence: float | None) -> str | None:
        """The missed deadline of this worker, in words. `silence`: seconds for which it may say nothing, if it must speak."""
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
        """The workers with memory."""
        return [status for status in self._workers if status.presence is Presence.ALIVE]
