"""Frontiers: downward-closed sets of times, written down by what they leave out, or by what they reach.

A `Frontier` is kept as the antichain of the minimal times that it *leaves out*. In this form the progress
frontier ("these times may still arrive") and the rollback frontier ("these times are kept") are one object
read from two sides, and every operation is a few comparisons. `MaximalTimes` describes such a set from
within, by its maximal times: the form in which a processor records what it has met. (Isard and Abadi,
*Falkirk Wheel*, section 3.1.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from timely.time.times import FINITE, INF, Time, join, leq, maximal, meet, minimal


def _common_depth(a: int | None, b: int | None) -> int | None:
    """The depth of two sets that meet in one operation; None where only ⊤ without a depth was given."""
    if a is None or b is None or a == b:
        return b if a is None else a
    raise ValueError(
        f"a set of times with {a} coordinate(s) meets one with {b}: bring both into one scope by a summary"
    )


@dataclass(frozen=True, slots=True)
class Frontier:
    """A downward-closed set of times of one depth.

    Make one with `top`, `empty`, `before`, `closure` or `lexicographic`; the plain constructor trusts that
    its antichain is minimal and sorted. Equal sets are equal objects and hash alike.

    >>> f = Frontier.before([(1, 3), (2, 0)])
    >>> (1, 2) in f, (1, 3) in f, (0, 99) in f, (2, 0) in f
    (True, False, True, False)
    """

    antichain: tuple[Time, ...]
    """The minimal times left out, sorted."""

    depth: int | None = field(compare=False)
    """Coordinates of a time. None only for a ⊤ made from an antichain that did not tell."""

    @classmethod
    def top(cls, depth: int | None = None) -> Frontier:
        """⊤, every time.

        >>> (7, INF) in Frontier.top(2)
        True
        """
        return cls((), depth)

    @classmethod
    def empty(cls, depth: int) -> Frontier:
        """∅, no time: leaves out the minimum.

        >>> (0, 0) in Frontier.empty(2)
        False
        """
        return cls(((0,) * depth,), depth)

    @classmethod
    def before(cls, times: Iterable[Time], depth: int | None = None) -> Frontier:
        """The largest frontier that leaves out all of `times`. Without any it is ⊤.

        >>> Frontier.before([(3,), (5,)])
        Frontier.before([(3,)])
        """
        antichain = minimal(times)
        return cls(antichain, len(antichain[0]) if antichain else depth)

    @classmethod
    def closure(cls, times: Iterable[Time], depth: int | None = None) -> Frontier:
        """The smallest frontier with all of `times` in it; coordinates may be unbounded.

        Raises ValueError if there is no time and no depth, as ∅ is a set of some depth.

        >>> Frontier.closure([(2, 4)])
        Frontier.before([(0, 5), (3, 0)])
        >>> Frontier.closure([(2, INF)])
        Frontier.before([(3, 0)])
        """
        return MaximalTimes.of(times, depth).to_frontier()

    @classmethod
    def lexicographic(cls, time: Time) -> Frontier:
        """All times up to `time`, itself included, in lexicographic order: whole epochs, then iterations.

        These form a chain, the total order of *Falkirk Wheel*, section 4.1.

        >>> Frontier.lexicographic((2, 4))
        Frontier.before([(2, 5), (3, 0)])
        """
        depth = len(time)
        antichain = tuple(
            (*time[:i], time[i] + 1, *(0,) * (depth - i - 1)) for i in reversed(range(depth)) if time[i] < INF
        )
        return cls(antichain, depth)

    @property
    def is_top(self) -> bool:
        """True if every time is in it.

        >>> Frontier.top(1).is_top, Frontier.empty(1).is_top
        (True, False)
        """
        return not self.antichain

    @property
    def is_empty(self) -> bool:
        """True if no time is in it.

        >>> Frontier.empty(2).is_empty, Frontier.before([(0, 1)]).is_empty
        (True, False)
        """
        return len(self.antichain) == 1 and not any(self.antichain[0])

    def __contains__(self, time: Time) -> bool:
        """True if `time` is in the set.

        >>> (2,) in Frontier.before([(3,)]), (3,) in Frontier.before([(3,)])
        (True, False)
        """
        antichain = self.antichain
        if len(time) == 1:
            return not antichain or time[0] < antichain[0][0]
        for left_out in antichain:  # noqa: SIM110 (a loop takes half the time of a generator here)
            if leq(left_out, time):
                return False
        return True

    def __le__(self, other: Frontier) -> bool:
        """True if this is a subset of `other`.

        >>> Frontier.before([(1, 1)]) <= Frontier.before([(1, 2), (3, 1)])
        True
        """
        if not isinstance(other, Frontier):
            return NotImplemented
        _common_depth(self.depth, other.depth)
        return not any(time in self for time in other.antichain)

    def __lt__(self, other: Frontier) -> bool:
        """True if this is a subset of `other` and not the same.

        >>> Frontier.before([(1,)]) < Frontier.before([(2,)]), Frontier.top(1) < Frontier.top(1)
        (True, False)
        """
        if not isinstance(other, Frontier):
            return NotImplemented
        return self.antichain != other.antichain and self <= other

    def __and__(self, other: Frontier) -> Frontier:
        """The times in both.

        >>> Frontier.before([(0, 3)]) & Frontier.before([(2, 1)])
        Frontier.before([(0, 3), (2, 1)])
        """
        depth = _common_depth(self.depth, other.depth)
        return Frontier(minimal(self.antichain + other.antichain), depth)

    def __or__(self, other: Frontier) -> Frontier:
        """The times in either.

        >>> Frontier.before([(0, 3)]) | Frontier.before([(2, 1)])
        Frontier.before([(2, 3)])
        """
        depth = _common_depth(self.depth, other.depth)
        return Frontier(minimal([join(a, b) for a in self.antichain for b in other.antichain]), depth)

    def maximal(self) -> MaximalTimes:
        """The same set by its maximal times. Raises ValueError for a ⊤ of unknown depth.

        >>> Frontier.before([(1, 3), (2, 0)]).maximal()
        MaximalTimes.of([(0, INF), (1, 2)])
        """
        depth = self.depth
        if depth is None:
            raise ValueError("the maximal times of ⊤ depend on its depth: make it by Frontier.top(depth)")
        # Not at or after m means below it in some coordinate; not at or after any m, so for each of them.
        bounds: tuple[Time, ...] = ((INF,) * depth,)
        for left_out in self.antichain:
            sides = [_bound(depth, i, at - 1) for i, at in enumerate(left_out) if at > 0]
            bounds = maximal([meet(bound, side) for bound in bounds for side in sides])
        return MaximalTimes(bounds, depth)

    def __repr__(self) -> str:
        if not self.antichain:
            return f"Frontier.top({'' if self.depth is None else self.depth})"
        if self.is_empty:
            return f"Frontier.empty({self.depth})"
        return f"Frontier.before([{', '.join(map(_show, self.antichain))}])"


@dataclass(frozen=True, slots=True)
class MaximalTimes:
    """A downward-closed set of times by its finitely many maximal ones, whose coordinates may be unbounded.

    M̄, N̄ and D̄ are recorded so: taking one more time in is cheap, and over-estimating is safe. Make one with
    `of`, `empty` or `Frontier.maximal`; the plain constructor trusts that its times are maximal and sorted.

    >>> seen = MaximalTimes.of([(1, 4), (2, 0)])
    >>> (1, 3) in seen, (2, 1) in seen
    (True, False)
    """

    times: tuple[Time, ...]
    """The maximal times, sorted."""

    depth: int = field(compare=False)
    """Coordinates of a time."""

    @classmethod
    def of(cls, times: Iterable[Time], depth: int | None = None) -> MaximalTimes:
        """The downward closure of `times`. Raises ValueError if there is no time and no depth.

        >>> MaximalTimes.of([(1, 2), (1, 3), (0, INF)])
        MaximalTimes.of([(0, INF), (1, 3)])
        """
        kept = maximal(times)
        if kept:
            depth = len(kept[0])
        elif depth is None:
            raise ValueError("an empty set of times needs a depth: the number of coordinates of a time")
        return cls(kept, depth)

    @classmethod
    def empty(cls, depth: int) -> MaximalTimes:
        """No time.

        >>> (0,) in MaximalTimes.empty(1)
        False
        """
        return cls((), depth)

    def __contains__(self, time: Time) -> bool:
        """True if `time` is at or before one of the maximal times.

        >>> (0, 7) in MaximalTimes.of([(0, INF)])
        True
        """
        return any(leq(time, reached) for reached in self.times)

    def __le__(self, other: MaximalTimes | Frontier) -> bool:
        """True if this is a subset of `other`.

        >>> MaximalTimes.of([(1, 2)]) <= Frontier.before([(2, 0)])
        True
        >>> MaximalTimes.of([(1, INF)]) <= MaximalTimes.of([(1, 5), (2, 1)])
        False
        """
        if not isinstance(other, MaximalTimes | Frontier):
            return NotImplemented
        _common_depth(self.depth, other.depth)
        return all(time in other for time in self.times)

    def __or__(self, other: MaximalTimes) -> MaximalTimes:
        """The times in either.

        >>> MaximalTimes.of([(0, 9)]) | MaximalTimes.of([(2, 1), (0, 3)])
        MaximalTimes.of([(0, 9), (2, 1)])
        """
        _common_depth(self.depth, other.depth)
        return MaximalTimes(maximal(self.times + other.times), self.depth)

    def __and__(self, other: MaximalTimes) -> MaximalTimes:
        """The times in both.

        >>> MaximalTimes.of([(0, 9)]) & MaximalTimes.of([(2, 1)])
        MaximalTimes.of([(0, 1)])
        """
        _common_depth(self.depth, other.depth)
        return MaximalTimes(maximal([meet(a, b) for a in self.times for b in other.times]), self.depth)

    def to_frontier(self) -> Frontier:
        """The same set by what it leaves out.

        >>> MaximalTimes.of([(0, INF), (1, 2)]).to_frontier()
        Frontier.before([(1, 3), (2, 0)])
        """
        # Outside ↓m means beyond it in some coordinate; outside all of them, so for each of them.
        outside: tuple[Time, ...] = ((0,) * self.depth,)
        for reached in self.times:
            sides = [_start(self.depth, i, at + 1) for i, at in enumerate(reached) if at < INF]
            outside = minimal([join(time, side) for time in outside for side in sides])
        return Frontier(outside, self.depth)

    def __repr__(self) -> str:
        if not self.times:
            return f"MaximalTimes.empty({self.depth})"
        return f"MaximalTimes.of([{', '.join(map(_show, self.times))}])"


def _bound(depth: int, at: int, value: int) -> Time:
    """The maximal time whose coordinate `at` is `value`."""
    return (INF,) * at + (value,) + (INF,) * (depth - at - 1)


def _start(depth: int, at: int, value: int) -> Time:
    """The minimal time whose coordinate `at` is `value`."""
    return (0,) * at + (value,) + (0,) * (depth - at - 1)


def _show(time: Time) -> str:
    names = {INF: "INF", FINITE: "FINITE"}
    return f"({', '.join(names.get(c, str(c)) for c in time)}{',' * (len(time) == 1)})"
