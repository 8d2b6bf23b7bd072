"""The times of processors that count messages: (edge, number).

Numbers start at 1 on every physical edge into the processor. Times of different edges are unordered, there is
no least time, and two edges have no common later time; a downward-closed set is therefore a count for every
edge. (Isard and Abadi, *Falkirk Wheel*, sections 2.1 and 3.1.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from timely.time.times import INF

Edge: TypeAlias = Any
"""The name of a physical edge: hashable, and ordered among the names of one processor's in-edges."""

SequenceTime: TypeAlias = tuple[Edge, int]


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


class MessageCounts:
    """Counts of the messages that have passed on each of a processor's edges, so far; mutable.

    A receiver uses it to check that numbers arrive without gap and to say what it holds; a sender to number.

    >>> counts = MessageCounts(["a", "b"])
    >>> counts.number("a"), counts.number("a"), counts.frontier()
    (1, 2, SequenceFrontier.of({'a': 2, 'b': 0}))
    """

    __slots__ = ("_counts",)

    def __init__(self, edges: Iterable[Edge]) -> None:
        self._counts: dict[Edge, int] = dict.fromkeys(sorted(edges), 0)

    def __getitem__(self, edge: Edge) -> int:
        """The number of the last message on `edge`, 0 before the first.

        >>> MessageCounts(["a"])["a"]
        0
        """
        return self._counts[edge]

    def number(self, edge: Edge) -> int:
        """Count one more message on `edge` and return its number.

        >>> MessageCounts(["a"]).number("a")
        1
        """
        number = self._counts[edge] + 1
        self._counts[edge] = number
        return number

    def receive(self, edge: Edge, number: int) -> None:
        """Count a message that carries its number. Raises ValueError if it is not the next on its edge.

        >>> counts = MessageCounts(["a"])
        >>> counts.receive("a", 1)
        >>> counts.receive("a", 3)
        Traceback (most recent call last):
        ValueError: message 3 arrived on edge 'a' where 2 was due: one was lost, doubled or overtaken
        """
        due = self._counts[edge] + 1
        if number != due:
            raise ValueError(
                f"message {number} arrived on edge {edge!r} where {due} was due: one was lost, doubled or overtaken"
            )
        self._counts[edge] = number

    def frontier(self) -> SequenceFrontier:
        """All that has passed so far.

        >>> MessageCounts(["a"]).frontier().is_empty
        True
        """
        return SequenceFrontier(tuple(self._counts.items()))

    def restore(self, f: SequenceFrontier) -> None:
        """Go on from `f`: the next message of every edge is the first that `f` leaves out.

        Raises ValueError if `f` is of other edges or unbounded.

        >>> counts = MessageCounts(["a"])
        >>> counts.restore(SequenceFrontier.of({"a": 7}))
        >>> counts.number("a")
        8
        """
        counts = dict(f.counts)
        if counts.keys() != self._counts.keys():
            raise ValueError(f"{f} is not of the edges {list(self._counts)}")
        if INF in counts.values():
            raise ValueError(f"{f} has no last message to go on from")
        self._counts = counts
