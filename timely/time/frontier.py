"""Frontiers: downward-closed sets of times, stored as their minimal absent times.

A `Frontier` is kept as the antichain of the minimal times that it *leaves out*. In this form the progress
frontier ("these times may still arrive") and the rollback frontier ("these times are kept") are one object
read from two sides, and every operation is a few comparisons. (Isard and Abadi, *Falkirk Wheel*, section 3.1.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from timely.time.times import FINITE, INF, Time, join, leq, minimal


def _common_depth(a: int | None, b: int | None) -> int | None:
    """Common depth of two frontiers; None if neither has one.

    Raises ValueError if the depths differ.
    """
    if a is None or b is None or a == b:
        return b if a is None else a
    raise ValueError(
        f"a set of times with {a} coordinate(s) meets one with {b}: bring both into one scope by a summary"
    )


@dataclass(frozen=True, slots=True)
class Frontier:
    """Downward-closed set of times of one depth.

    Make one with `top`, `empty`, `before` or `lexicographic`; the plain constructor trusts that its antichain
    is minimal and sorted. Equal sets are equal objects and hash alike.

    >>> f = falkirk.Frontier.before([(1, 3), (2, 0)])
    >>> (1, 2) in f, (1, 3) in f, (0, 99) in f, (2, 0) in f
    (True, False, True, False)
    """

    antichain: tuple[Time, ...]
    """Minimal times outside the set, sorted."""

    depth: int | None = field(compare=False)
    """Number of coordinates of a time; None for a ⊤ of unknown depth."""

    @classmethod
    def top(cls, depth: int | None = None) -> Frontier:
        """⊤, the set of all times.

        >>> (7, INF) in Frontier.top(2)
        True
        """
        return cls((), depth)

    @classmethod
    def empty(cls, depth: int) -> Frontier:
        """∅, the empty set.

        >>> (0, 0) in Frontier.empty(2)
        False
        """
        return cls(((0,) * depth,), depth)

    @classmethod
    def before(cls, times: Iterable[Time], depth: int | None = None) -> Frontier:
        """Largest frontier without any of `times`; ⊤ if there are none.

        >>> Frontier.before([(3,), (5,)])
        Frontier.before([(3,)])
        """
        antichain = minimal(times)
        return cls(antichain, len(antichain[0]) if antichain else depth)

    @classmethod
    def lexicographic(cls, time: Time) -> Frontier:
        """All times up to and including `time` in lexicographic order.

        That is whole epochs, then iterations.

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
    def is_empty(self) -> bool:
        """True if no time is in the set.

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
        """True if this is a proper subset of `other`.

        >>> Frontier.before([(1,)]) < Frontier.before([(2,)]), Frontier.top(1) < Frontier.top(1)
        (True, False)
        """
        if not isinstance(other, Frontier):
            return NotImplemented
        return self.antichain != other.antichain and self <= other

    def __and__(self, other: Frontier) -> Frontier:
        """Intersection of two frontiers.

        >>> Frontier.before([(0, 3)]) & Frontier.before([(2, 1)])
        Frontier.before([(0, 3), (2, 1)])
        """
        depth = _common_depth(self.depth, other.depth)
        return Frontier(minimal(self.antichain + other.antichain), depth)

    def __or__(self, other: Frontier) -> Frontier:
        """Union of two frontiers.

        >>> Frontier.before([(0, 3)]) | Frontier.before([(2, 1)])
        Frontier.before([(2, 3)])
        """
        depth = _common_depth(self.depth, other.depth)
        return Frontier(minimal([join(a, b) for a in self.antichain for b in other.antichain]), depth)

    def __repr__(self) -> str:
        if not self.antichain:
            return f"Frontier.top({'' if self.depth is None else self.depth})"
        if self.is_empty:
            return f"Frontier.empty({self.depth})"
        return f"Frontier.before([{', '.join(map(_show, self.antichain))}])"


def _show(time: Time) -> str:
    names = {INF: "INF", FINITE: "FINITE"}
    return f"({', '.join(names.get(c, str(c)) for c in time)}{',' * (len(time) == 1)})"
