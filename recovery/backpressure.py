"""Backpressure on sources: by logs and staged output while the monitor is away, and by a large cut that is late."""

from __future__ import annotations

from recovery.agent.agent import Agent
from recovery.recorder import LogEntry
from timely.data.batch import nbytes
from timely.operators.ends import StagedEnd

_LOOK_SECONDS = 0.5

LARGE_CUT = 16 << 20
"""Sources wait for a late cut of so many bytes: what they gave meanwhile would make the next one larger still."""


class Backpressure:
    """Tells when sources must pause, so that what waits is bounded.

    Args:
        agent: of the worker.
        most: bytes that may wait while nothing is heard of the monitor. A monitor that is there lets go in its own time.
        patience: seconds without a word of the monitor after which it counts as away.
        now: the time.
    """

    def __init__(self, agent: Agent, most: int, patience: float, now: float) -> None:
        self.full = False
        """As of when it was looked at last."""
        self._agent = agent
        self._most = most
        self._patience = patience
        self._heard = self._looked = now
        self._cutting: tuple[float, float] | None = None
        """Since when a cut is being made, and how long that may take."""

    def heard(self, now: float) -> None:
        """The monitor has said something."""
        self._heard = now
        self.full = False

    def is_full(self, now: float) -> bool:
        """True if the monitor is away, and much waits for it."""
        if now - self._heard >= self._patience and now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self.full = self.bytes() > self._most
        return self.full

    def is_late(self, now: float) -> bool:
        """True if a large cut has taken longer than the interval between two."""
        agent = self._agent
        if not agent.cutting:
            self._cutting = None
            return False
        if self._cutting is None:
            self._cutting = now, agent.cut_every or 1.0
        began, every = self._cutting
        return now - began > every and agent.unwritten > LARGE_CUT

    def bytes(self) -> int:
        """Bytes that wait."""
        operators = [runtime.operator for runtime in self._agent.worker.runtimes]
        staged = sum(end.state.size().bytes for end in operators if isinstance(end, StagedEnd))
        return staged + sum(_size(entry) for entries in self._agent.recorder.logs.values() for entry in entries)


def _size(entry: LogEntry) -> int:
    return memoryview(entry.payload).nbytes if entry.batch is None else nbytes(entry.batch)
