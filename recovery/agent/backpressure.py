"""Backpressure on sources, from logs, staged output and a large late cut.

Logs and staged output count while the monitor is away.
"""

from __future__ import annotations

from recovery.agent.cuts import WorkerCuts
from recovery.agent.effects import Throttle
from recovery.agent.reports import Reports
from recovery.agent.state import AgentState
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
        most: bytes that may wait while the monitor is away. A monitor that is there lets go in its own time.
        patience: seconds without a message of the monitor after which it counts as away.
    """

    def __init__(self, own: AgentState, reports: Reports, cuts: WorkerCuts, most: int, patience: float) -> None:
        self._own = own
        self._reports = reports
        self._cuts = cuts
        self._most = most
        self._patience = patience
        self._received_at, self._looked = float("inf"), float("-inf")
        self._full = False
        """Result of the last look."""
        self._cutting: tuple[float, float] | None = None
        """Start of the current cut, and the seconds that it may take; None: no cut."""
        self._sent = Throttle(False, False)

    def received(self) -> None:
        """Record a message of the monitor, or a connection to it."""
        self._received_at = self._own.now
        self._full = False

    def look(self) -> None:
        """Decide anew, after a turn."""
        full = self._is_full()
        throttle = Throttle(self._is_late() or full, full)
        if throttle != self._sent:
            self._sent = throttle
            self._own.effects.append(throttle)

    def _is_full(self) -> bool:
        """True if the monitor is away, and too many bytes wait for it."""
        now = self._own.now
        if now - self._received_at >= self._patience and now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._full = self.bytes() > self._most
        return self._full

    def _is_late(self) -> bool:
        """True if a large cut has taken longer than the interval between two."""
        if not (self._cuts.pending or self._reports.waits_for_store()):
            self._cutting = None
            return False
        if self._cutting is None:
            self._cutting = self._own.now, self._cuts.every or 1.0
        began, every = self._cutting
        return self._own.now - began > every and self._cuts.unwritten + self._own.journal.unwritten > LARGE_CUT

    def bytes(self) -> int:
        """Bytes of logs and staged output."""
        operators = [runtime.operator for runtime in self._own.worker.runtimes]
        staged = sum(end.state.size().bytes for end in operators if isinstance(end, StagedEnd))
        return staged + sum(_size(entry) for entries in self._own.recorder.logs.values() for entry in entries)


def _size(entry: LogEntry) -> int:
    return memoryview(entry.payload).nbytes if entry.batch is None else nbytes(entry.batch)
