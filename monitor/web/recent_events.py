"""Newest events of the timeline, routine ones apart from others.

Those that come with every cut do not push out the others.

Where each epoch is committed, as in an eager region, a minute has thousands of them; a failure is to be seen for longer.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from heapq import merge
from itertools import takewhile

from monitor.coordination.supervision import TimelineEvent

ROUTINE = frozenset({"cut", "durable", "checkpoint", "watermarks", "safe"})
"""Kinds of events of every cut."""

MOST_EVENTS = 4000
"""Most routine events kept, and as many of all others."""


class RecentEvents:
    """Recent events, numbered from 1.

    >>> events = RecentEvents(most=2)
    >>> for kind in ("failure", "cut", "cut", "cut"):
    ...     events.add(TimelineEvent(kind, 0.0, {}))
    >>> [(number, event.kind) for number, event in events.after(0)], [number for number, _ in events.after(3)]
    ([(1, 'failure'), (3, 'cut'), (4, 'cut')], [4])

    Attributes:
        counts: of all that there were, by kind.
    """

    def __init__(self, most: int = MOST_EVENTS) -> None:
        self.counts: Counter[str] = Counter()
        self._number = 0
        self._kept: tuple[deque[tuple[int, TimelineEvent]], ...] = deque(maxlen=most), deque(maxlen=most)

    def add(self, event: TimelineEvent) -> None:
        """Add an event."""
        self._number += 1
        self.counts[event.kind] += 1
        self._kept[event.kind in ROUTINE].append((self._number, event))

    def after(self, number: int) -> list[tuple[int, TimelineEvent]]:
        """Events with greater numbers, in order."""
        newest = merge(*map(reversed, self._kept), key=lambda numbered: -numbered[0])
        return list(takewhile(lambda numbered: numbered[0] > number, newest))[::-1]

    def __iter__(self) -> Iterator[TimelineEvent]:
        return (event for _, event in self.after(0))
