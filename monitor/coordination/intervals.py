"""Times between cuts, and from each cut until W contains it.

They are the cost of a failure, and the wait of exactly-once output.

Both should be about the interval that was asked for. A cut that takes longer holds the next one back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recovery.layout import Layout
from recovery.metadata import Bound, at_cut, within
from recovery.protocol import Durable

MISSED = 2.0
"""Least multiple of its interval for a cut to be late."""
OFTEN = 3
"""Late cuts in a row before a note."""
NOTE_SECONDS = 60.0
"""Shortest time between two such notes."""


@dataclass(slots=True)
class _Waiting:
    """Cut above W."""

    at: Bound
    announced: float
    since_last: float | None


@dataclass(frozen=True, slots=True)
class Safe:
    """Cut contained in W.

    `since_last`: from when the cut before was announced; None for the first of a generation.
    """

    group: int
    at: Bound
    seconds: float
    since_last: float | None


class Intervals:
    """Intervals of all groups of a layout, since a generation began."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._members = [
            [p for p in layout.members(group) if layout.processors[p].chain] for group in range(len(layout.groups))
        ]
        self._waiting: list[list[_Waiting]] = [[] for _ in layout.groups]
        self._last: list[float | None] = [None] * len(layout.groups)
        self._behind = [(0, 0)] * len(layout.groups)
        """Processor seen last to keep W below the next cut, (worker, processor) by group."""
        self._missed = [0] * len(layout.groups)
        self._noted: list[float | None] = [None] * len(layout.groups)

    def announced(self, group: int, at: Bound, now: float) -> None:
        """Record the announcement of a cut."""
        last, self._last[group] = self._last[group], now
        self._waiting[group].append(_Waiting(at, now, None if last is None else now - last))

    def contained(self, low: Sequence[Sequence[Bound]], now: float) -> list[Safe]:
        """Cuts contained in W for the first time, with W now `low`."""
        found = []
        for group, waiting in enumerate(self._waiting):
            while waiting and self._contains(low, group, waiting[0].at):
                cut = waiting.pop(0)
                found.append(Safe(group, cut.at, now - cut.announced, cut.since_last))
        return found

    def _contains(self, low: Sequence[Sequence[Bound]], group: int, at: Bound) -> bool:
        members = self._members[group]
        processors = self._layout.processors
        worker, p = self._behind[group]
        if p in members and not within(at_cut(at, processors[p].depth), low[worker][p]):
            return False  # the one that was behind is so still: nobody else needs to be looked at
        for worker, bounds in enumerate(low):
            for p in members:
                if not within(at_cut(at, processors[p].depth), bounds[p]):
                    self._behind[group] = worker, p
                    return False
        return True

    def durable(self, last: Durable, seconds: float, now: float) -> str | None:
        """Record a cut's duration at its last report; return a note if often late."""
        group = last.group
        every = self._layout.groups[group].seconds
        if every is None or seconds <= MISSED * every:
            self._missed[group] = 0
            return None
        self._missed[group] += 1
        noted = self._noted[group]
        if self._missed[group] < OFTEN or (noted is not None and now - noted < NOTE_SECONDS):
            return None
        self._noted[group] = now
        return (
            f"checkpoints of {self._names(group)} should be made every {every:g} s, and take {seconds:.1f} s "
            f"({last.place} was the last to have one, and {_phases(last, seconds)}): so much more is done again after "
            f"a failure, and exactly-once output waits so long. Ask for fewer (every={_rounded(seconds)!r}), use more workers "
            "or a faster disk for the store, or keep less state"
        )

    def _names(self, group: int) -> str:
        names = [repr(self._layout.processors[p].name) for p in self._members[group]]
        kept = [
            repr(info.name)
            for p in self._members[group]
            if (info := self._layout.processors[p]).role not in ("source", "sink", "capture")
        ]
        first = (kept or names or ["a group without state"])[0]
        return first if len(names) < 2 else f"{first} and {len(names) - 1} more"


def _phases(last: Durable, seconds: float) -> str:
    """Phases of a cut on a worker, in words, the longest first.

    The words follow its name.

    >>> _phases(Durable(0, 1, 0, (3,), (), 0.1, 2.5, 1.0), 4.0)
    'took 2.5 s to make its pieces beside its other work, 1.0 s to write them, 0.4 s in messages, 0.1 s to begin'
    """
    messages = max(0.0, seconds - last.waited - last.made - last.written)
    taken = [
        (last.waited, "to begin"),
        (last.made, "to make its pieces beside its other work"),
        (last.written, "to write them"),
        (messages, "in messages"),
    ]
    longest = sorted(taken, key=lambda each: -each[0])
    return "took " + ", ".join(f"{each:.1f} s {what}" for each, what in longest)


def _rounded(seconds: float) -> str:
    """Duration above `seconds`, as policies take it.

    >>> _rounded(0.72), _rounded(3.2)
    ('1s', '5s')
    """
    return f"{max(1, round(1.5 * seconds))}s"
