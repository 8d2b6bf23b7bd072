"""Phases of a job, and the coordinator's view of its processes, by place.

That is their presence, and what they still owe.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
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
    """Presence of the process at a place."""

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
    """Process at a place as the coordinator sees it."""

    place: Place
    presence: Presence
    last_message: float
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
    def worker(self) -> int:
        """Index of its worker, a share of the dataflow."""
        return self.place.worker

    @property
    def takes_part(self) -> bool:
        """True if rounds and the job wait for it: at work, or a copy with memory."""
        return self.place.at_work or self.presence is Presence.ALIVE

    def counts(self, incarnation: int | None) -> bool:
        """True if this process has memory and is current.

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
        """Missed deadline of this process, in words, or None.

        `silence`: seconds for which it may say nothing, if it must speak.
        """
        if self.due is not None and now >= self.due:
            return f"it did not {self.doing} in time"
        if silence is not None and self.takes_part and not self.released and now - self.last_message > silence:
            return f"nothing was heard of it for {now - self.last_message:.1f} s"
        return None


class WorkerTable:
    """All processes of the job, by place; those at work come first."""

    def __init__(self, known: Sequence[Place], awaited: Collection[Place], now: float) -> None:
        self._at = {
            place: WorkerStatus(place, Presence.AWAITED if place in awaited else Presence.ABSENT, now)
            for place in known
        }
        self._at_work = [status for status in self._at.values() if status.place.at_work]

    def __getitem__(self, place: Place) -> WorkerStatus:
        return self._at[place]

    def __iter__(self) -> Iterator[WorkerStatus]:
        return iter(self._at.values())

    def __contains__(self, place: object) -> bool:
        return place in self._at

    def at_work(self) -> list[WorkerStatus]:
        """Processes at work, by worker: without copies."""
        return self._at_work

    def are(self, *presences: Presence) -> bool:
        """True if every process at work is in one of these states."""
        return all(status.presence in presences for status in self._at_work)

    def alive(self) -> list[WorkerStatus]:
        """Processes with memory, copies included."""
        return [status for status in self if status.presence is Presence.ALIVE]
