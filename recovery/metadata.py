"""Rollback frontiers as bounds, and the record Ξ of a checkpoint.

Most are *lexicographic prefixes*: all times before a bound, compared as tuples (Isard and Abadi, *Falkirk Wheel*, section
4.1). Where several epochs go round a loop at once, a bound has a *step* for each of them: how far that epoch is kept, no
further than the one before it (section 3.5 asks only for downward-closed sets). A prefix is a bound of one step.

Inclusion is `within`. The order of tuples extends it: of two bounds one of which holds the other, the larger tuple is the
larger set. So what a processor has persisted, each cut within the next, is sorted as tuples are. The general frontiers of
`timely.time` are what the literal fixed point works on; `to_frontier` leads from here to there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from timely.time import FINITE, INF, Frontier, Summary, Time, minimal

Bound: TypeAlias = tuple[int, ...]
"""Downward-closed set of times: its steps, with `MORE` between two.

A prefix has as many coordinates as the times.
"""

MORE = -1
"""Mark between two steps of a bound.

After it comes how far the next epoch is kept, without the epoch.
"""

MOST_STEPS = 64
"""Most epochs with steps in a bound computed from completed times."""

NEVER = INF + 1
"""Epoch after all others, those of the end of input (INF) included."""


def nothing(depth: int) -> Bound:
    """Bound of no times: ∅.

    >>> (0, 0) < nothing(2)
    False
    """
    return (0,) * depth


def everything(depth: int) -> Bound:
    """Bound of all times: the frontier of a processor that has finished for good.

    >>> (INF, INF) < everything(2)
    True
    """
    return (NEVER,) + (0,) * (depth - 1)


def at_epoch(epoch: int, depth: int) -> Bound:
    """Bound of all epochs before `epoch`.

    >>> (3, INF) < at_epoch(4, 2), (4, 0) < at_epoch(4, 2)
    (True, False)
    """
    return (epoch,) + (0,) * (depth - 1)


def steps(bound: Bound) -> list[Bound]:
    """Prefixes of the partly kept epochs, in order of epochs.

    >>> steps((3, 7, MORE, 5)), steps((3, 7))
    ([(3, 7), (4, 5)], [(3, 7)])
    """
    if MORE not in bound:
        return [bound]
    depth = bound.index(MORE)
    return [(bound[0] + at // depth, *bound[at + 1 : at + depth]) for at in range(0, len(bound), depth)]


def of_steps(made: Sequence[Bound]) -> Bound:
    """Join bounds of one step each into one bound; the inverse of `steps`.

    They are of one epoch after the other, none further than the one before.
    """
    bound = made[0]
    for step in made[1:]:
        if not any(step[1:]):
            break
        bound += (MORE, *step[1:])
    return bound


def depth_of(bound: Bound) -> int:
    """Coordinates of a bound's times."""
    return bound.index(MORE) if MORE in bound else len(bound)


def holds(bound: Bound, time: Time) -> bool:
    """True if `time` is in the set.

    >>> holds((3, 7, MORE, 5), (4, 4)), holds((3, 7, MORE, 5), (4, 5)), holds((3, 7), (4, 0))
    (True, False, False)
    """
    depth = len(time)
    if len(bound) == depth:
        return time < bound
    later = time[0] - bound[0]
    if later <= 0:
        return time < bound[:depth]
    return bound[later * depth + 1 : (later + 1) * depth] > time[1:]


def within(inner: Bound, outer: Bound) -> bool:
    """True if the first set is part of the second.

    >>> within((3, 7), (3, 7, MORE, 5)), within((3, 7, MORE, 5), (4, 0)), within((3, 7, MORE, 5), (4, 6))
    (True, False, True)
    """
    if inner > outer or MORE not in inner:
        return inner <= outer
    known = {step[0]: step for step in steps(outer)}
    return all(step[0] < outer[0] or step <= known.get(step[0], ()) for step in steps(inner))


def meet(one: Bound, other: Bound) -> Bound:
    """Bound of the times in both.

    >>> meet((3, 7, MORE, 5), (4, 2)), meet((3, 7, MORE, 2), (3, 5, MORE, 4)), meet((3, 7), (2, 9))
    ((3, 7, -1, 2), (3, 5, -1, 2), (2, 9))
    """
    if within(one, other):
        return one
    if within(other, one):
        return other
    first, second = ({step[0]: step for step in steps(each)} for each in (one, other))
    epoch, made = min(one[0], other[0]), []
    while epoch in first or epoch in second:
        here = [known.get(epoch) for known, at in ((first, one[0]), (second, other[0])) if epoch >= at]
        if None in here:
            break
        made.append(min(step for step in here if step is not None))
        epoch += 1
    return of_steps(made)


def union(one: Bound, other: Bound) -> Bound:
    """Bound of the times in either.

    >>> union((3, 7, MORE, 5), (4, 2)), union((3, 7, MORE, 2), (3, 5, MORE, 4)), union((3, 7, MORE, 5), (5, 0))
    ((4, 5), (3, 7, -1, 4), (5, 0))
    """
    if within(one, other):
        return other
    if within(other, one):
        return one
    begin = max(one[0], other[0])
    largest: dict[int, Bound] = {}
    for step in (*steps(one), *steps(other)):
        if step[0] >= begin:
            largest[step[0]] = max(step, largest.get(step[0], step))
    return of_steps([largest[epoch] for epoch in sorted(largest)])


def prefix(bound: Bound) -> Bound:
    """Largest prefix within a bound.

    >>> prefix((3, 7, MORE, 5)), prefix((3, 7))
    ((3, 7), (3, 7))
    """
    return bound[: bound.index(MORE)] if MORE in bound else bound


def leaving_out(times: Iterable[Time], depth: int) -> Bound:
    """Large bound without `times` and all later ones.

    It is the largest, but for epochs after all of them.

    >>> leaving_out([(3, 7), (4, 5), (6, 0)], 2), leaving_out([], 1) == everything(1)
    ((3, 7, -1, 5, -1, 5), True)
    """
    left = sorted(times)
    if not left:
        return everything(depth)
    if depth == 1:
        return left[0]
    made = [left[0]]
    for epoch in range(left[0][0] + 1, min(left[-1][0], left[0][0] + MOST_STEPS) + 1):
        inner = min((time[1:] for time in left if time[0] == epoch), default=made[-1][1:])
        made.append((epoch, *min(inner, made[-1][1:])))
    return of_steps(made)


def for_each(change: Callable[[Bound], Bound], bound: Bound) -> Bound:
    """Bound with each step changed, within its epoch.

    Where that makes epochs whole, the one after them is the first.
    """
    changed = [(change(step), step[0]) for step in steps(bound)]
    return of_steps([step for step, epoch in changed if step[0] == epoch] or [changed[-1][0]])


def at_cut(cut: Bound, depth: int) -> Bound:
    """Bound of a processor of `depth` coordinates at a cut of its group.

    See `GroupInfo.depth`.

    >>> at_cut((3,), 2), at_cut((3, 7), 2), at_cut((3, 7), 3), at_cut((3, 7), 1), at_cut((3, 0), 1)
    ((3, 0), (3, 7), (3, 7, 0), (4,), (3,))
    >>> at_cut((3, 7, MORE, 5), 1), at_cut((3, 7, MORE, 5), 3)
    ((5,), (3, 7, 0, -1, 5, 0))
    """
    if depth < depth_of(cut):  # what enters a loop has entered it, where the loop is in the midst of an epoch
        return at_epoch(cut[0] + (len(steps(cut)) if any(cut[1:]) else 0), depth)
    return _filled(cut, depth) if MORE not in cut else for_each(lambda step: _filled(step, depth), cut)


def cut_within(bound: Bound, depth: int) -> Bound:
    """Last cut of `depth` coordinates surely reached by a processor at `bound`.

    >>> cut_within((3, 7), 1), cut_within((3, 7), 2), cut_within((4,), 2)
    ((3,), (3, 7), (4, 0))
    """
    if MORE not in bound:
        return _filled(bound[:depth], depth)
    return for_each(lambda step: _filled(step[:depth], depth), bound)


def after(time: Time) -> Bound:
    """Least bound with `time` in it.

    >>> after((3, 5)), after((3, INF)), after((INF,)) == everything(1)
    ((3, 6), (4, 0), True)
    """
    for last in range(len(time) - 1, 0, -1):
        if time[last] < INF:
            return (*time[:last], time[last] + 1, *(0,) * (len(time) - last - 1))
    return at_epoch(time[0] + 1, len(time))


def project(summary: Summary, bound: Bound) -> Bound:
    """φ of an edge: the largest bound at its end out of reach from outside `bound`.

    Of epochs of which `bound` keeps nothing it has nothing either: φ may be less than it could be.

    >>> project(Summary.egress(2), (3, 7)), project(Summary.feedback(2), (3, 7)), project(Summary.ingress(1), (3,))
    ((3,), (3, 8), (3, 0))
    """
    if bound[0] == NEVER:
        return everything(summary.result_depth)
    return for_each(summary, bound) if summary.add[:1] == (0,) else summary(prefix(bound))


def inverse(summary: Summary, bound: Bound) -> Bound:
    """σ⁻¹ of an edge: the largest bound of times with all messages in `bound`.

    It is what may be kept if all that was sent is discarded.

    >>> inverse(Summary.egress(2), (3,)), inverse(Summary.feedback(2), (3, 7)), inverse(Summary.ingress(1), (3, 1))
    ((3, 0), (3, 6), (4,))
    """
    depth = summary.depth
    if bound[0] == NEVER:
        return everything(depth)
    if MORE not in bound or summary.add[:1] != (0,):
        return _inverse(summary, prefix(bound))
    if depth == 1:
        return max(_inverse(summary, step) for step in steps(bound))
    return for_each(lambda step: _inverse(summary, step), bound)


def _inverse(summary: Summary, bound: Bound) -> Bound:
    depth = summary.depth
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


def image(summary: Summary, bound: Bound) -> Bound:
    """↓σ(f) as a bound: the least with all messages of events before `bound`.

    None of them into the future.

    >>> image(Summary.egress(2), (3, 1)), image(Summary.egress(2), (3, 0)), image(Summary.identity(1), (3,))
    ((4,), (3,), (3,))
    >>> image(Summary.feedback(3), (3, 7, 0)), image(Summary.feedback(3), (3, 7, 1))
    ((3, 7, 0), (3, 7, 2))
    """
    if MORE in bound:
        return for_each(lambda step: image(summary, step), bound)
    if not any(bound):
        return nothing(summary.result_depth)
    if bound[0] > INF:
        return everything(summary.result_depth)
    whole = _whole(summary, bound)
    if whole is not None and within(bound, inverse(summary, whole)):
        return whole
    least = project(summary, bound)
    return least if within(bound, inverse(summary, least)) else after(least)


def _whole(summary: Summary, bound: Bound) -> Bound | None:
    """Bound padded or cut to the depth behind an edge; None if coordinates get lost."""
    ends = next(at for at in range(len(bound), 0, -1) if bound[at - 1])
    return (*bound[:ends], *(0,) * (summary.result_depth - ends)) if ends <= summary.result_depth else None


def last_of(summary: Summary, bound: Bound) -> Time:
    """Upper limit of the times sent by events before `bound`; () if there is none."""
    return last_time(image(summary, bound)) or ()


def last_time(bound: Bound) -> Time | None:
    """Last time, as tuples, in `bound`; None if there is none."""
    bound = steps(bound)[-1]
    for last in range(len(bound) - 1, -1, -1):
        if bound[last] > 0:
            return (*bound[:last], bound[last] - 1, *(INF,) * (len(bound) - last - 1))
    return None


def to_frontier(bound: Bound) -> Frontier:
    """Bound as a general frontier.

    >>> to_frontier((3, 7))
    Frontier.before([(3, 7), (4, 0)])
    """
    depth = depth_of(bound)
    if bound[0] == NEVER:
        return Frontier.top(depth)
    left_out = []
    for step in (each := steps(bound)):
        left_out.append(step)
        for last in range(step is not each[-1], depth - 1):  # the first coordinate: of the epochs after the last step
            if step[last] < INF:
                left_out.append((*step[:last], step[last] + 1, *(0,) * (depth - last - 1)))
    return Frontier(minimal(left_out), depth)


class Xi(msgspec.Struct, frozen=True, array_like=True):
    """Ξ(p, f): record of a checkpoint of `processor` at `bound` (section 4.2).

    The processor can be restored to `bound`.

    It was saved because `bound` was complete there, so N̄(p, f) and M̄(d, f) are f. `discards` has a bound for each
    output port: D̄(e, f), every message that was sent on it by an event in f and is logged nowhere has a time before it.
    """

    processor: int
    bound: Bound
    discards: tuple[Bound, ...]
