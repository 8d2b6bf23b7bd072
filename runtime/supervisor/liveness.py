"""Detection of hung processes: no sign of life, no work, and no excuse.

A process beats from a thread of its own (`runtime.processes.heartbeat`), so it may take any time over a user's function.
Silence is no proof that it has hung. A call into C code that keeps Python's interpreter lock silences that thread as well;
on a machine with too much to do it waits for a processor, a disk, or memory that was swapped out. The system tells of all
four (`evidence`), and such a process is left alone. Where it does not tell, on another host, beats that come late make the
limit grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

START_SECONDS = 60.0
"""Seconds for a process to send its first heartbeat.

Until then it loads its modules, perhaps from a slow disk.
"""

_FIRST_NOTE = 3.0
"""Length of a turn, in time-outs, before a note to the user.

The next note comes after twice as long each time.
"""

MOST_PATIENCE = 8.0
"""Maximum growth factor of the silence limit, after false alarms.

The limit doubles with each false alarm. After such a time a wait for a disk excuses no longer.
"""

_TICK = 10_000_000
"""Minimum significant waiting time, in nanoseconds.

Less is the noise of a thread that looks for the interpreter lock.
"""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Traces of a process known to the system: work and waits of all its threads."""

    computed: int = 0
    """Processor time, in ticks of the system."""
    waited: int = 0
    """Nanoseconds spent ready to run while other work had the processors."""
    fetched: int = 0
    """Number of memory pages read back from a disk."""
    ready: bool = False
    """True if a thread is ready now: it computes, or waits for a processor."""
    disk: bool = False
    """True if a thread waits in the kernel, as for a disk, perhaps for ever."""


def excuse(before: Evidence, now: Evidence) -> str | None:
    """Excuse for a silent process, as text after its name; None if it has none."""
    if now.computed > before.computed and now.computed - before.computed >= (now.waited - before.waited) // _TICK:
        return "computes: a call into C that keeps Python's lock takes long"
    if now.ready or now.computed > before.computed or now.waited - before.waited >= _TICK:
        return "waits for a processor: this machine has more to do than it can"
    if now.fetched > before.fetched:
        return "waits for memory that was swapped out: this machine has too little"
    return "waits for a disk" if now.disk else None


@dataclass(eq=False, slots=True)
class Pulse:
    """Signs of life of one process.

    Times are of a clock that never goes back, in seconds.
    """

    pid: int
    last_message: float
    """Time of the last bytes received from it; before the first, its start."""
    alive: float
    """Last time with proof of life."""
    patience: float = 1.0
    """Time-outs of silence allowed: above 1 for a process on another host."""
    received: int = 0
    seen: Evidence | None = None
    """Evidence when it began to be missed, or was last found alive."""
    excuse: str = ""
    """Excuse for the present silence."""
    alarms: int = 0
    """Number of long silences without a hang."""
    noted: float = 0.0
    """Duration of the turn, or silence, last noted to the user."""

    def limit(self, timeout: float) -> float:
        """Seconds of silence allowed before the process counts as hung."""
        grown = timeout * self.patience * min(2.0**self.alarms, MOST_PATIENCE)
        return grown if self.received else max(grown, START_SECONDS)


class Liveness:
    """Detector of hung processes, called several times a second.

    Args:
        timeout: seconds without a sign of life after which a process has hung.
        now: the time.
        look: tells what is known of a process.
    """

    def __init__(self, timeout: float, now: float, look: Callable[[int], Evidence] | None = None) -> None:
        self.timeout = timeout
        self._look = look or evidence
        self._looked = now

    def hung(self, pulses: Iterable[tuple[Pulse, int]], now: float) -> list[Pulse]:
        """Hung processes among `pulses`, each with its total of received bytes.

        All bytes that were there must have been received.
        """
        pulses = list(pulses)
        if now - self._looked > self.timeout / 2:  # it is this process that was stopped, or starved
            for pulse, _ in pulses:
                pulse.last_message = pulse.alive = now
        self._looked = now
        return [pulse for pulse, received in pulses if self._has_hung(pulse, received, now)]

    def _has_hung(self, pulse: Pulse, received: int, now: float) -> bool:
        limit = pulse.limit(self.timeout)
        late = pulse.received > 0 and now - pulse.last_message >= limit / 2
        if received > pulse.received:
            pulse.alarms += late
            pulse.received, pulse.seen, pulse.excuse = received, None, ""
            pulse.last_message = pulse.alive = now
            return False
        if now - pulse.alive < limit / 2:
            return False
        found = self._look(pulse.pid)
        if pulse.seen is None:
            pulse.seen = found
        if now - pulse.last_message >= limit * MOST_PATIENCE:  # what it waits for does not come
            found = replace(found, disk=False)
        reason = excuse(pulse.seen, found)
        if reason is not None:
            pulse.seen, pulse.excuse, pulse.alive = found, reason, now
            return False
        return now - pulse.alive >= limit

    def worth_telling(self, pulse: Pulse, busy: float, first: float = _FIRST_NOTE) -> bool:
        """True if a turn of `busy` seconds is due for a note to the user.

        `first`: time-outs until the first note.
        """
        if busy < self.timeout:
            pulse.noted = 0.0
            return False
        if busy < max(first * self.timeout, 2 * pulse.noted):
            return False
        pulse.noted = busy
        return True


def evidence(pid: int) -> Evidence:
    """Evidence on a process from the system; empty where there is none."""
    computed = waited = fetched = 0
    ready = disk = False
    process = Path(f"/proc/{pid}")
    with suppress(OSError):
        state = _fields(process)
        computed, fetched = int(state[11]) + int(state[12]), int(state[9])
    with suppress(OSError):
        for thread in process.joinpath("task").iterdir():
            with suppress(OSError):  # it has ended meanwhile
                doing = _fields(thread)[0]
                ready, disk = ready or doing == "R", disk or doing == "D"
                waited += int(thread.joinpath("schedstat").read_text().split()[1])
    return Evidence(computed, waited, fetched, ready, disk)


def _fields(process: Path) -> list[str]:
    """Fields of a process or thread from its state on: proc(5)."""
    return process.joinpath("stat").read_text().rpartition(") ")[2].split()
