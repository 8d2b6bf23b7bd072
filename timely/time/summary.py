"""Path summaries: the minimal effect of a dataflow path on a time.

If processing at `t` can cause messages at the end of a path only at times `>= s(t)`, then `s` is its summary.
It keeps some outer coordinates, adds to them, and appends constants: entering a scope appends 0, leaving it
drops a coordinate, a feedback edge adds 1 or more to the innermost, everything else changes nothing; paths compose.
(Murray et al., *Naiad*, section 2.3.)

Applied to the antichain of a frontier, the summary of an edge is its edge projection φ (Isard and Abadi,
*Falkirk Wheel*, section 3.2): progress tracking and rollback (`recovery.metadata`) rest on the same function.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from timely.time.times import FINITE, INF, Time


@dataclass(frozen=True, slots=True)
class Summary:
    """Path summary: a function from times to times.

    A time `t` of `depth` coordinates becomes `t[:keep] + add`, coordinate by coordinate, followed by `append`.

    `keep` is the length of `add`. Each such function is written in one way only, so equal functions are
    equal objects. Raises ValueError if it would keep more than there is, or move a coordinate back.

    >>> Summary(2, add=(1,), append=(0,))((4, 7))
    (5, 0)
    """

    depth: int
    """Number of coordinates of an input time."""
    add: Time
    """Increments of the kept outermost coordinates: natural numbers."""
    append: Time
    """Constant coordinates after the kept ones."""
    _is_identity: bool = field(init=False, repr=False, compare=False)
    _shifts: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.add) > self.depth:
            raise ValueError(f"a summary cannot keep {len(self.add)} of {self.depth} coordinate(s)")
        if not all(0 <= by < FINITE for by in self.add + tuple(at for at in self.append if at != INF)):
            raise ValueError(f"a summary adds and appends natural numbers, not {self.add} and {self.append}")
        object.__setattr__(self, "_shifts", any(self.add))
        object.__setattr__(self, "_is_identity", len(self.add) == self.depth and not self.append and not any(self.add))

    @classmethod
    def identity(cls, depth: int) -> Summary:
        """Identity: times pass unchanged.

        >>> Summary.identity(2)((4, 7))
        (4, 7)
        """
        return cls(depth, (0,) * depth, ())

    @classmethod
    def ingress(cls, depth: int) -> Summary:
        """Summary of entering a scope: appends a 0 to times of `depth` coordinates.

        >>> Summary.ingress(1)((4,))
        (4, 0)
        """
        return cls(depth, (0,) * depth, (0,))

    @classmethod
    def egress(cls, depth: int) -> Summary:
        """Summary of leaving a scope: drops the innermost of `depth` coordinates.

        >>> Summary.egress(2)((4, 7))
        (4,)
        """
        return cls(depth, (0,) * (depth - 1), ())

    @classmethod
    def feedback(cls, depth: int, by: int = 1) -> Summary:
        """Summary of a feedback edge: adds `by` to the innermost of `depth` coordinates.

        >>> Summary.feedback(2)((4, 7))
        (4, 8)
        """
        return cls(depth, (0,) * (depth - 1) + (by,), ())

    @property
    def keep(self) -> int:
        """Number of kept outermost coordinates."""
        return len(self.add)

    @property
    def result_depth(self) -> int:
        """Number of coordinates of a result time."""
        return len(self.add) + len(self.append)

    def __call__(self, time: Time) -> Time:
        """Least time at the end of the path caused by an event at `time`.

        >>> Summary.feedback(2)((4, INF)) == (4, INF)
        True
        """
        if self._is_identity:
            return time
        add = self.add
        if not self._shifts:
            return time[: len(add)] + self.append
        # Written out for the depths that programs have: this runs for every change of progress.
        if len(add) == 1:
            at = time[0]
            return (at + add[0] if at < FINITE else at, *self.append)
        if len(add) == 2:
            outer, inner = time[0], time[1]
            more, by = add
            return (
                outer + more if outer < FINITE else outer,
                inner + by if inner < FINITE else inner,
                *self.append,
            )
        return (*(at + by if at < FINITE else at for at, by in zip(time, add)), *self.append)

    def carries(self, time: Time) -> bool:
        """True unless the path would increment an infinite coordinate of `time`.

        The events after the last iteration, at `INF`, start no further one.

        >>> Summary.feedback(2).carries((4, 7)), Summary.feedback(2).carries((4, INF)), Summary.egress(2).carries((4, INF))
        (True, False, True)
        """
        return not self._shifts or all(at < INF or not by for at, by in zip(time, self.add))

    def then(self, after: Summary) -> Summary:
        """Composition, this path first: `s.then(r)(t) == r(s(t))`.

        Raises ValueError if `after` takes times of another depth than this makes.

        >>> Summary.egress(2).then(Summary.ingress(1))((4, 7))
        (4, 0)
        """
        if after.depth != self.result_depth:
            raise ValueError(
                f"a path that makes times of {self.result_depth} coordinate(s) cannot go on "
                f"by one that takes times of {after.depth}"
            )
        # What `after` keeps comes from the coordinates kept here and, if there are more, from those appended.
        kept = tuple(x + y for x, y in zip(self.add, after.add))
        appended = tuple(x + y if x < FINITE else x for x, y in zip(self.append, after.add[self.keep :]))
        return Summary(self.depth, kept, appended + after.append)

    def leq(self, other: Summary) -> bool:
        """True if `self(t) <= other(t)` for every `t`.

        Raises ValueError if their depths differ.

        >>> Summary.identity(2).leq(Summary.feedback(2)), Summary.feedback(2).leq(Summary.identity(2))
        (True, False)
        """
        if (self.depth, self.result_depth) != (other.depth, other.result_depth):
            raise ValueError(f"{self} and {other} do not lead between the same scopes")
        if self.keep <= other.keep:
            # A constant lies below t + by for all t when it does so for 0.
            mine, theirs = self.add + self.append, other.add + other.append
            return all(x <= y for x, y in zip(mine, theirs))
        # A coordinate kept here and constant there passes any constant but INF.
        between = other.append[: self.keep - other.keep]
        beyond = other.append[len(between) :]
        return (
            all(at == INF for at in between)
            and all(x <= y for x, y in zip(self.add, other.add))
            and all(x <= y for x, y in zip(self.append, beyond))
        )


def minimal_summaries(summaries: Iterable[Summary]) -> tuple[Summary, ...]:
    """Minimal elements of a set of summaries, in a fixed order.

    >>> minimal_summaries([Summary.feedback(2), Summary.identity(2)]) == (Summary.identity(2),)
    True
    """
    kept: list[Summary] = []
    for summary in sorted(set(summaries), key=lambda s: (s.depth, s.add, s.append)):
        if not any(below.leq(summary) for below in kept):
            kept = [above for above in kept if not summary.leq(above)]
            kept.append(summary)
    return tuple(kept)
