"""Times as the oracle has them: any downward-closed set, any path summary, and processors that count messages.

The production solver works on chains of frontiers of structured times, each given by one time (`recovery.metadata`).
Figure 6 is about more: M̄, N̄ and D̄ are `MaximalTimes`; φ, σ⁻¹ and ↓σ are functions of whole sets; a processor that counts
messages has a count for every in-edge (`SequenceFrontier`). (Isard and Abadi, *Falkirk Wheel*, sections 2.1 and 3.1.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from timely.time import FINITE, INF, Frontier, Summary, Time, join, leq, maximal, minimal

Edge: TypeAlias = Any
"""The name of a physical edge: hashable, and ordered among the names of one processor's in-edges."""

SequenceTime: TypeAlias = tuple[Edge, int]
"""A message of an edge, by its number; numbers begin at 1. Times of different edges have no common later time."""


def meet(a: Time, b: Time) -> Time:
    """The greatest time at or before both.

    >>> meet((0, 5), (1, 2))
    (0, 2)
    """
    return tuple(map(min, a, b))


def _same_depth(a: int | None, b: int | None) -> None:
    if a is not None and b is not None and a != b:
        raise ValueError(f"a set of times with {a} coordinate(s) meets one with {b}")


@dataclass(frozen=True, slots=True)
class MaximalTimes:
    """A downward-closed set of times by its finitely many maximal ones, whose coordinates may be unbounded.

    M̄, N̄ and D̄ are recorded so: taking one more time in is cheap, and over-estimating is safe. Make one with
    `of`, `empty` or `maximal_times`; the plain constructor trusts that its times are maximal and sorted.

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
        _same_depth(self.depth, other.depth)
        return all(time in other for time in self.times)

    def __or__(self, other: MaximalTimes) -> MaximalTimes:
        """The times in either.

        >>> MaximalTimes.of([(0, 9)]) | MaximalTimes.of([(2, 1), (0, 3)])
        MaximalTimes.of([(0, 9), (2, 1)])
        """
        _same_depth(self.depth, other.depth)
        return MaximalTimes(maximal(self.times + other.times), self.depth)

    def __and__(self, other: MaximalTimes) -> MaximalTimes:
        """The times in both.

        >>> MaximalTimes.of([(0, 9)]) & MaximalTimes.of([(2, 1)])
        MaximalTimes.of([(0, 1)])
        """
        _same_depth(self.depth, other.depth)
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


def maximal_times(f: Frontier) -> MaximalTimes:
    """`f` by its maximal times. Raises ValueError for a ⊤ of unknown depth.

    >>> maximal_times(Frontier.before([(1, 3), (2, 0)]))
    MaximalTimes.of([(0, INF), (1, 2)])
    """
    depth = f.depth
    if depth is None:
        raise ValueError("the maximal times of ⊤ depend on its depth: make it by Frontier.top(depth)")
    # Not at or after m means below it in some coordinate; not at or after any m, so for each of them.
    bounds: tuple[Time, ...] = ((INF,) * depth,)
    for left_out in f.antichain:
        sides = [_bound(depth, i, at - 1) for i, at in enumerate(left_out) if at > 0]
        bounds = maximal([meet(bound, side) for bound in bounds for side in sides])
    return MaximalTimes(bounds, depth)


def projection(summary: Summary, f: Frontier) -> Frontier:
    """φ: the largest frontier at the end of the path that nothing outside `f` can still reach.

    >>> projection(Summary.egress(2), Frontier.before([(1, 3), (2, 0)]))
    Frontier.before([(1,)])
    """
    return Frontier(minimal(map(summary, f.antichain)), summary.result_depth)


def preimage(summary: Summary, h: Frontier) -> Frontier:
    """σ⁻¹: the largest frontier whose times lead into `h` alone, `{t : summary(t) in h}`.

    >>> preimage(Summary.egress(2), Frontier.before([(3,)]))
    Frontier.before([(3, 0)])
    >>> preimage(Summary.ingress(1), Frontier.before([(1, 3), (2, 0)]))
    Frontier.before([(2,)])
    """
    keep, dropped = summary.keep, (0,) * (summary.depth - summary.keep)
    # summary(t) is at or after m when t is so in what is kept and the constants are so in the rest.
    left_out = [
        (*(_lowered(at, by) for at, by in zip(m, summary.add)), *dropped)
        for m in h.antichain
        if all(at <= constant for at, constant in zip(m[keep:], summary.append))
    ]
    return Frontier(minimal(left_out), summary.depth)


def image(summary: Summary, times: MaximalTimes | Frontier) -> MaximalTimes:
    """↓σ(g), all times at or before `summary(t)` for a `t` in `times`: what may have been discarded.

    >>> image(Summary.feedback(2), MaximalTimes.of([(1, 3), (0, INF)]))
    MaximalTimes.of([(0, INF), (1, 4)])
    """
    reached = maximal_times(times) if isinstance(times, Frontier) else times
    return MaximalTimes(maximal(map(summary, reached.times)), summary.result_depth)


def _lowered(at: int, by: int) -> int:
    """The least number that reaches `at` when `by` is added."""
    return at if at >= FINITE else max(at - by, 0)


def _bound(depth: int, at: int, value: int) -> Time:
    """The maximal time whose coordinate `at` is `value`."""
    return (INF,) * at + (value,) + (INF,) * (depth - at - 1)


def _start(depth: int, at: int, value: int) -> Time:
    """The minimal time whose coordinate `at` is `value`."""
    return (0,) * at + (value,) + (0,) * (depth - at - 1)


@dataclass(frozen=True, slots=True)
class SequenceFrontier:
    """A downward-closed set of (edge, number): the first so many messages of every in-edge.

    Make one with `top`, `empty`, `of` or `before`; the plain constructor trusts that its pairs are sorted.
    Two frontiers can be compared and combined only over the same edges; otherwise ValueError.

    >>> f = SequenceFrontier.of({"a": 2, "b": 0})
    >>> ("a", 2) in f, ("a", 3) in f, ("b", 1) in f
    (True, False, False)
    """

    counts: tuple[tuple[Edge, int], ...]
    """For every in-edge, sorted: how many messages are in the set; INF for all."""

    @classmethod
    def of(cls, counts: Mapping[Edge, int]) -> SequenceFrontier:
        """The first `counts[edge]` messages of every edge. All in-edges must be named. ValueError below 0.

        >>> SequenceFrontier.of({"b": 0, "a": 2}).antichain
        (('a', 3), ('b', 1))
        """
        if any(count < 0 for count in counts.values()):
            raise ValueError(f"counts of messages cannot be negative: {dict(counts)}")
        return cls(tuple(sorted(counts.items())))

    @classmethod
    def top(cls, edges: Iterable[Edge]) -> SequenceFrontier:
        """⊤, every message of every edge.

        >>> SequenceFrontier.top(["a"]).antichain
        ()
        """
        return cls(tuple((edge, INF) for edge in sorted(edges)))

    @classmethod
    def empty(cls, edges: Iterable[Edge]) -> SequenceFrontier:
        """∅, which leaves out the first message of every edge.

        >>> SequenceFrontier.empty(["a", "b"]).antichain
        (('a', 1), ('b', 1))
        """
        return cls(tuple((edge, 0) for edge in sorted(edges)))

    @classmethod
    def before(cls, times: Iterable[SequenceTime], edges: Iterable[Edge]) -> SequenceFrontier:
        """The largest frontier over `edges` that leaves out all of `times`.

        >>> SequenceFrontier.before([("a", 3), ("a", 5)], edges=["a", "b"])
        SequenceFrontier.of({'a': 2, 'b': INF})
        """
        counts = dict.fromkeys(sorted(edges), INF)
        for edge, number in times:
            counts[edge] = min(counts[edge], number - 1)
        return cls(tuple(counts.items()))

    @property
    def antichain(self) -> tuple[SequenceTime, ...]:
        """The minimal times left out, sorted.

        >>> SequenceFrontier.of({"a": 2, "b": INF}).antichain
        (('a', 3),)
        """
        return tuple((edge, count + 1) for edge, count in self.counts if count < INF)

    @property
    def is_top(self) -> bool:
        """True if every time is in it.

        >>> SequenceFrontier.top(["a"]).is_top
        True
        """
        return all(count == INF for _, count in self.counts)

    @property
    def is_empty(self) -> bool:
        """True if no time is in it.

        >>> SequenceFrontier.of({"a": 0}).is_empty
        True
        """
        return not any(count for _, count in self.counts)

    def count(self, edge: Edge) -> int:
        """Number of messages of `edge` in the set. Raises KeyError if the edge is not one of its own.

        >>> SequenceFrontier.of({"a": 2}).count("a")
        2
        """
        for name, count in self.counts:
            if name == edge:
                return count
        raise KeyError(edge)

    def __contains__(self, time: SequenceTime) -> bool:
        """True if that message of that edge is in the set.

        >>> ("a", 2) in SequenceFrontier.of({"a": 2})
        True
        """
        edge, number = time
        return number <= self.count(edge)

    def __le__(self, other: SequenceFrontier) -> bool:
        """True if this is a subset of `other`.

        >>> SequenceFrontier.of({"a": 2, "b": 0}) <= SequenceFrontier.of({"a": 2, "b": 4})
        True
        """
        return all(mine <= theirs for _, mine, theirs in self._beside(other))

    def __lt__(self, other: SequenceFrontier) -> bool:
        """True if this is a subset of `other` and not the same.

        >>> SequenceFrontier.of({"a": 2}) < SequenceFrontier.of({"a": 2})
        False
        """
        return self <= other and self != other

    def __and__(self, other: SequenceFrontier) -> SequenceFrontier:
        """The times in both.

        >>> SequenceFrontier.of({"a": 2, "b": 5}) & SequenceFrontier.of({"a": 3, "b": 1})
        SequenceFrontier.of({'a': 2, 'b': 1})
        """
        return SequenceFrontier(tuple((edge, min(x, y)) for edge, x, y in self._beside(other)))

    def __or__(self, other: SequenceFrontier) -> SequenceFrontier:
        """The times in either.

        >>> SequenceFrontier.of({"a": 2, "b": 5}) | SequenceFrontier.of({"a": 3, "b": 1})
        SequenceFrontier.of({'a': 3, 'b': 5})
        """
        return SequenceFrontier(tuple((edge, max(x, y)) for edge, x, y in self._beside(other)))

    def _beside(self, other: SequenceFrontier) -> Iterator[tuple[Edge, int, int]]:
        """Every edge with its two counts."""
        if [edge for edge, _ in self.counts] != [edge for edge, _ in other.counts]:
            raise ValueError(f"these frontiers belong to different processors: {self} and {other}")
        for (edge, mine), (_, theirs) in zip(self.counts, other.counts):
            yield edge, mine, theirs

    def __repr__(self) -> str:
        shown = (f"{edge!r}: {'INF' if count == INF else count}" for edge, count in self.counts)
        return f"SequenceFrontier.of({{{', '.join(shown)}}})"


def _show(time: Time) -> str:
    names = {INF: "INF", FINITE: "FINITE"}
    return f"({', '.join(names.get(c, str(c)) for c in time)}{',' * (len(time) == 1)})"
