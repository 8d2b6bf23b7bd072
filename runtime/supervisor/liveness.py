"""Detection of hung processes: they give no sign of life, and use no processor time either.

A process beats from a thread of its own (`runtime.processes.heartbeat`), so it may take any time over a user's function. A call
into C code that keeps Python's interpreter lock silences that thread as well; such a process is known by the time that it
computes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 60.0
"""Seconds that a process may take to its first beat: until then it loads its modules, perhaps from a slow disk."""

_FIRST_NOTE = 3.0
"""Time-outs that a turn lasts before the user hears of it; then after twice as long each time."""


@dataclass(eq=False, slots=True)
class Pulse:
    """The signs of life of one process. Times are of a clock that never goes back, in seconds."""

    pid: int
    heard: float
    """The time at which bytes of it arrived last; before that, at which it began."""
    alive: float
    """The last time at which it was surely alive."""
    patience: float = 1.0
    """Time-outs of silence after which it has hung: more where its processor time is not known here."""
    received: int = 0
    computed: int | None = None
    """The processor time that it had used when it began to be missed, in ticks of the system."""
    noted: float = 0.0
    """The length of a turn that the user was told of."""


class Liveness:
    """Looks at all processes several times a second.

    Args:
        timeout: seconds without a sign of life after which a process has hung.
        now: the time.
    """

    def __init__(self, timeout: float, now: float) -> None:
        self.timeout = timeout
        self._looked = now

    def hung(self, pulses: Iterable[tuple[Pulse, int]], now: float) -> list[Pulse]:
        """Those that must be given up. With each pulse: how many bytes have come of its process by now, all that were there."""
        pulses = list(pulses)
        if now - self._looked > self.timeout / 2:  # it is this process that was stopped, or starved
            for pulse, _ in pulses:
                pulse.heard = pulse.alive = now
        self._looked = now
        return [pulse for pulse, received in pulses if self._has_hung(pulse, received, now)]

    def _has_hung(self, pulse: Pulse, received: int, now: float) -> bool:
        if received > pulse.received:
            pulse.received, pulse.computed = received, None
            pulse.heard = pulse.alive = now
            return False
        patience = self.timeout * pulse.patience
        limit = patience if pulse.received else max(patience, START_SECONDS)
        silent = now - pulse.alive
        if silent < limit / 2:
            return False
        computed = processor_time(pulse.pid)
        if pulse.computed is None:
            pulse.computed = computed
        elif computed > pulse.computed:
            pulse.computed, pulse.alive = computed, now
            return False
        return silent >= limit

    def worth_telling(self, pulse: Pulse, busy: float) -> bool:
        """True if a turn that has lasted `busy` seconds is one that the user should hear of, now."""
        if busy < self.timeout:
            pulse.noted = 0.0
            return False
        if busy < max(_FIRST_NOTE * self.timeout, 2 * pulse.noted):
            return False
        pulse.noted = busy
        return True


def processor_time(pid: int) -> int:
    """Processor time of a process with all its threads, in ticks of the system; 0 where that is not told."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])
