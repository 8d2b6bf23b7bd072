"""Backpressure on sources, from logs, staged output and a large late cut.

Logs and staged output count while the monitor is away.
"""

from __future__ import annotations

from recovery.agent.agent import Agent
from recovery.memory.records import LogEntry
from timely.data.batch import nbytes
from timely.operators.ends import StagedEnd

_LOOK_SECONDS = 0.5

LARGE_CUT = 16 << 20
"""Bytes of a late cut to pause sources.

What they gave meanwhile would make the next one larger still.
"""


class Backpressure:
    """Decision to pause sources, to bound the bytes waiting for the monitor or store.

    Args:
        agent: of the worker.
        most: bytes that may wait while the monitor is away. A monitor that is there lets go in its own time.
        patience: seconds without a message of the monitor after which it counts as away.
        now: the time.
    """

    def __init__(self, agent: Agent, most: int, patience: float, now: float) -> None:
        self.full = False
        """Result of the last look."""
        self._agent = agent
        self._most = most
        self._patience = patience
        self._heard = self._looked = now
        self._cutting: tuple[float, float] | None = None
        """Start of the current cut, and the seconds that it may take; None: no cut."""

    def heard(self, now: float) -> None:
        """Record a message of the monitor."""
        self._heard = now
        self.full = False

    def is_full(self, now: float) -> bool:
        """True if the monitor is away, and too many bytes wait for it."""
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
        """Bytes of logs and staged output."""
        operators = [runtime.operator for runtime in self._agent.worker.runtimes]
        staged = sum(end.state.size().bytes for end in operators if isinstance(end, StagedEnd))
        return staged + sum(_size(entry) for entries in self._agent.recorder.logs.values() for entry in entries)


def _size(entry: LogEntry) -> int:
    return memoryview(entry.payload).nbytes if entry.batch is None else nbytes(entry.batch)
