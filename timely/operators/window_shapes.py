"""Shapes of windows over event time.

Event times are numbers, with lengths that are numbers, or datetimes, with lengths that are timedeltas. Windows are
half-open, [start, end), and aligned to 0 or to the beginning of 1970: naive datetimes as they stand, aware ones in UTC,
in which their windows are given too. Those that reach before the year 1 or beyond 9999 are cut off there; several that begin
before the year 1 are one, the last of them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any, Literal

from timely.errors import GraphError, user_site
from timely.time import INF, Time

Length = int | float | dt.timedelta

Bounds = tuple[Any, Any]
"""Start and end of a window."""

Lag = Literal[0, 1, 2]

LagOf = Callable[[Any, Any], Lag]
"""Lateness of a record: (event time, watermark) → 0, 1 or 2.

All of its windows are open (0), some may have closed (1), or all may have closed (2).
"""

_NAIVE_ORIGIN = dt.datetime(1970, 1, 1)
_AWARE_ORIGIN = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Window:
    """Window of event times from `start` up to, but not including, `end`.

    >>> falkirk.Window(0, 10)
    Window(start=0, end=10)
    """

    start: Any
    end: Any


def check_length(length: object, what: str) -> None:
    """Refuse anything but a positive, finite length."""
    if isinstance(length, dt.timedelta):
        good = length > dt.timedelta(0)
    else:
        good = isinstance(length, int | float) and not isinstance(length, bool) and isfinite(length) and length > 0
    if not good:
        raise GraphError(
            f"{user_site()}: {what} is a positive number, or a timedelta where event times are datetimes, not {length!r}"
        )


def moved(at: Any, by: Any) -> Any:
    """`at + by`, limited to the range of datetimes.

    Records whose time stands for none are often of the years 1 and 9999, and their windows reach further.
    """
    try:
        return at + by
    except OverflowError:
        beyond = dt.datetime.max if by > dt.timedelta(0) else dt.datetime.min
        return beyond.replace(tzinfo=at.tzinfo)


def marked(greatest: Any, allowed: Any) -> Any:
    """Watermark for event times up to `greatest`.

    It stays before the end of the last possible window.
    """
    mark = moved(greatest, -allowed)
    if isinstance(mark, dt.datetime) and mark.replace(tzinfo=None) == dt.datetime.max:
        return mark - dt.datetime.resolution
    return mark


class Aligned:
    """Windows at regular intervals.

    Number k is [origin + k·every, origin + k·every + length).
    """

    __slots__ = ("_every", "_length", "_reach")

    def __init__(self, length: Any, every: Any) -> None:
        self._length = length
        self._every = every
        self._reach = ceil(length / every)

    def spans(self, at: Any) -> list[Bounds]:
        """Windows containing `at`, earliest first."""
        since = at - _origin(at) if isinstance(at, dt.datetime) else at
        every = self._every
        last = int(since // every)
        if (last + 1) * every <= since:  # A border between floats is a rounded product, and may lie below the true one.
            last += 1
        if self._length == every:
            return [(self._start(last, at), self._start(last + 1, at))]
        numbers = range(last - self._reach, last + 1)
        spans = [
            (self._start(number, at), self._start(number, at, self._length))
            for number in numbers
            if number * every + self._length > since
        ]
        return list(dict(spans).items()) if len(spans) > 1 and spans[0][0] == spans[1][0] else spans

    def lag(self, at: Any, watermark: Any) -> Lag:
        """Closed windows of `at`: 0 for none, 1 for some, 2 for all."""
        if not at < watermark:
            return 0
        spans = self.spans(at)
        if spans[0][1] > watermark:
            return 0
        return 2 if spans[-1][1] <= watermark else 1

    def _start(self, number: int, at: Any, after: Any = None) -> Any:
        """Start of a window, or the time `after` behind it."""
        start = number * self._every if after is None else number * self._every + after
        return moved(_origin(at), start) if isinstance(at, dt.datetime) else start


def _origin(at: dt.datetime) -> dt.datetime:
    return _NAIVE_ORIGIN if at.tzinfo is None else _AWARE_ORIGIN


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of `length`, one after the other: every time is in one.

    Raises:
        GraphError: `length` is neither a positive number nor a positive timedelta.

    >>> flow = falkirk.Dataflow()
    >>> clicks = flow.source("clicks", falkirk.Iterable([("ann", 1), ("ann", 4), ("ann", 12)])).keyed()
    >>> result = clicks.window(falkirk.Tumbling(10), time=lambda at: at).count().capture("out")
    >>> sorted((w.start, w.end, n) for _, batch in falkirk.run(flow).captured("out") for (_, w), n in batch)
    [(0, 10, 2), (10, 20, 1)]
    """

    length: Any

    def __post_init__(self) -> None:
        check_length(self.length, "the length of tumbling windows")

    def aligned(self) -> Aligned:
        """The arithmetic of these windows."""
        return Aligned(self.length, self.length)

    def lateness(self) -> LagOf:
        """Test for closed windows of a record."""
        return self.aligned().lag


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of `length` starting every `every` <= `length`.

    Each time is in about `length / every` of them.

    Raises:
        GraphError: a length is neither a positive number nor a positive timedelta; they are of two kinds; `every` is above
            `length`.

    >>> flow = falkirk.Dataflow()
    >>> clicks = flow.source("clicks", falkirk.Iterable([("ann", 1), ("ann", 4), ("ann", 12)])).keyed()
    >>> result = clicks.window(falkirk.Sliding(10, every=5), time=lambda at: at).count().capture("out")
    >>> sorted((w.start, w.end, n) for _, batch in falkirk.run(flow).captured("out") for (_, w), n in batch)
    [(-5, 5, 2), (0, 10, 2), (5, 15, 1), (10, 20, 1)]
    """

    length: Any
    every: Any

    def __post_init__(self) -> None:
        check_length(self.length, "the length of sliding windows")
        check_length(self.every, "every= of sliding windows")
        if isinstance(self.length, dt.timedelta) != isinstance(self.every, dt.timedelta):
            raise GraphError(
                f"{user_site()}: length and every of sliding windows are two numbers or two timedeltas, not {self}"
            )
        if self.every > self.length:
            raise GraphError(
                f"{user_site()}: {self} leaves out what lies between two windows: every is at most the length"
            )

    def aligned(self) -> Aligned:
        """The arithmetic of these windows."""
        return Aligned(self.length, self.every)

    def lateness(self) -> LagOf:
        """Test for closed windows of a record."""
        return self.aligned().lag


@dataclass(frozen=True, slots=True)
class Session:
    """Sessions of each key: records closer than `gap`, ended by a silence of `gap`.

    A session reaches from its first record to `gap` after its last one.

    Raises:
        GraphError: `gap` is neither a positive number nor a positive timedelta.

    >>> flow = falkirk.Dataflow()
    >>> clicks = flow.source("clicks", falkirk.Iterable([("ann", 1), ("ann", 4), ("ann", 12)])).keyed()
    >>> result = clicks.window(falkirk.SessionWindow(5), time=lambda at: at).count().capture("out")
    >>> sorted((w.start, w.end, n) for _, batch in falkirk.run(flow).captured("out") for (_, w), n in batch)
    [(1, 9, 2), (12, 17, 1)]
    """

    gap: Any

    def __post_init__(self) -> None:
        check_length(self.gap, "the gap of session windows")

    @property
    def length(self) -> Any:
        """The length of a session of one record."""
        return self.gap

    def lateness(self) -> LagOf:
        """Test for late records.

        A session that such a record would belong to may end right behind it.
        """
        return behind


def behind(at: Any, watermark: Any) -> Lag:
    """Test for sessions: late (2) before the watermark, otherwise on time (0)."""
    return 2 if at < watermark else 0


@dataclass(frozen=True, slots=True)
class Epochs:
    """Windows of `n` whole epochs, aligned to epoch 0.

    With 1, each epoch is a window by itself. No record is late for its epoch.

    Raises:
        GraphError: `n` is no whole number from 1 up.

    >>> flow = falkirk.Dataflow()
    >>> clicks = flow.source("clicks", falkirk.Iterable([("ann", 1), ("ann", 4), ("ann", 12)], epoch_every=1)).keyed()
    >>> result = clicks.window(falkirk.Epochs(2)).sum().capture("out")
    >>> sorted((w.start, w.end, n) for _, batch in falkirk.run(flow).captured("out") for (_, w), n in batch)
    [(0, 2, 5), (2, 4, 12)]
    """

    n: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.n, int) or isinstance(self.n, bool) or self.n < 1:
            raise GraphError(f"{user_site()}: windows of epochs are 1 epoch long or more, not {self.n!r}")

    def around(self, time: Time) -> Bounds:
        """Window of a time of the root scope.

        The time after every epoch has a window of its own.
        """
        if time[0] == INF:
            return INF, INF
        start = time[0] - time[0] % self.n
        return start, start + self.n
