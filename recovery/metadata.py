"""Rollback frontiers as bounds, and Ξ: what a processor reports of what it has persisted.

A rollback frontier here is a *lexicographic prefix*: all times before a bound, compared as tuples (Isard and Abadi,
*Falkirk Wheel*, section 4.1). Such frontiers are totally ordered, so those that a processor can be restored to form a
chain, and tuple comparison is set inclusion. The general frontiers of `timely.time` are what the literal fixed point
works on; `to_frontier` leads from here to there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from timely.time import FINITE, INF, Frontier, Summary, Time, minimal

Bound: TypeAlias = tuple[int, ...]
"""The frontier of all times that come before it, as tuples. Has as many coordinates as the times."""

NEVER = INF + 1
"""An epoch after all others, those of the end of input (INF) included."""


def nothing(depth: int) -> Bound:
    """∅.

    >>> (0, 0) < nothing(2)
    False
    """
    return (0,) * depth


def everything(depth: int) -> Bound:
    """Every time: the frontier of a processor that has finished for good.

    >>> (INF, INF) < everything(2)
    True
    """
    return (NEVER,) + (0,) * (depth - 1)


def at_epoch(epoch: int, depth: int) -> Bound:
    """All times of the epochs before `epoch`.

    >>> (3, INF) < at_epoch(4, 2), (4, 0) < at_epoch(4, 2)
    (True, False)
    """
    return (epoch,) + (0,) * (depth - 1)


def at_cut(cut: Bound, depth: int) -> Bound:
    """The bound of a processor of `depth` coordinates at a cut of its group: see `GroupInfo.depth`.

    >>> at_cut((3,), 2), at_cut((3, 7), 2), at_cut((3, 7), 3), at_cut((3, 7), 1), at_cut((3, 0), 1)
    ((3, 0), (3, 7), (3, 7, 0), (4,), (3,))
    """
    if depth < len(cut):  # what enters a loop has entered it, where the loop is in the midst of an epoch
        return at_epoch(cut[0] + any(cut[1:]), depth)
    return _filled(cut, depth)


def cut_within(bound: Bound, depth: int) -> Bound:
    """The last cut of `depth` coordinates that a processor at `bound` has surely come to.

    >>> cut_within((3, 7), 1), cut_within((3, 7), 2), cut_within((4,), 2)
    ((3,), (3, 7), (4, 0))
    """
    return _filled(bound[:depth], depth)


def after(time: Time) -> Bound:
    """The least bound whose frontier has `time` in it.

    >>> after((3, 5)), after((3, INF)), after((INF,)) == everything(1)
    ((3, 6), (4, 0), True)
    """
    for last in range(len(time) - 1, 0, -1):
        if time[last] < INF:
            return (*time[:last], time[last] + 1, *(0,) * (len(time) - last - 1))
    return at_epoch(time[0] + 1, len(time))


def project(summary: Summary, bound: Bound) -> Bound:
    """φ of an edge with this summary: the largest bound at its end that nothing outside `bound` can still reach.

    >>> project(Summary.egress(2), (3, 7)), project(Summary.feedback(2), (3, 7)), project(Summary.ingress(1), (3,))
    ((3,), (3, 8), (3, 0))
    """
    if bound[0] == NEVER:
        return everything(summary.result_depth)
    return summary(bound)


def inverse(summary: Summary, bound: Bound) -> Bound:
    """The largest bound whose times lead into `bound` alone: what may be kept if all that was sent is discarded.

    >>> inverse(Summary.egress(2), (3,)), inverse(Summary.feedback(2), (3, 7)), inverse(Summary.ingress(1), (3, 1))
    ((3, 0), (3, 6), (4,))
    """
    depth = summary.depth
    if bound[0] == NEVER:
        return everything(depth)
    least: list[int] = []
    for at, by in zip(bound, summary.add):
        if at < by:  # every number reaches it, and passes it: what follows may be anything
            return _filled(least, depth)
        least.append(at if at >= FINITE else at - by)
    rest = bound[summary.keep :]
    if summary.append < rest:  # the constants stay below the bound: everything with equal kept coordinates is inside
        return _filled([*after(tuple(least))], depth)
    return _filled(least, depth)


def _filled(coordinates: Sequence[int], depth: int) -> Bound:
    return (*coordinates, *(0,) * (depth - len(coordinates)))


def to_frontier(bound: Bound) -> Frontier:
    """The same set of times as a general frontier.

    >>> to_frontier((3, 7))
    Frontier.before([(3, 7), (4, 0)])
    """
    depth = len(bound)
    if bound[0] == NEVER:
        return Frontier.top(depth)
    left_out = [bound]
    for last in range(depth - 1):
        if bound[last] < INF:
            left_out.append((*bound[:last], bound[last] + 1, *(0,) * (depth - last - 1)))
    return Frontier(minimal(left_out), depth)


class Xi(msgspec.Struct, frozen=True, array_like=True):
    """Ξ(p, f): that processor `processor` of a worker can be restored to `bound` (section 4.2).

    It was saved because `bound` was complete there, so N̄(p, f) and M̄(d, f) are f. `discards` has a bound for each
    output port: D̄(e, f), every message that was sent on it by an event in f and is logged nowhere has a time before it.
    """

    processor: int
    bound: Bound
    discards: tuple[Bound, ...]
