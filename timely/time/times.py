"""Logical times: tuples of natural numbers under the product order.

A time has one coordinate for the epoch and one more for each scope around it: `(epoch,)` at the root,
`(epoch, iteration)` in a loop. `a` comes before `b` when it does so in *every* coordinate, so `(0, 5)` and
`(1, 2)` are unordered: neither could have caused the other. (Murray et al., *Naiad*, SOSP 2013, section 2.1.)

Two numbers stand above all natural ones. `INF` is a coordinate that a time may really have: a notification
at `(e, INF)` comes after every iteration of epoch `e`. `FINITE`, just below it, serves only as a *bound*: it
admits every natural number and not `INF`. Both are plain machine integers, so that tuples compare and hash
at full speed; a path summary that adds to either changes nothing. Nothing that counts here comes near them.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable
from typing import TypeAlias, TypeGuard

Time: TypeAlias = tuple[int, ...]

INF = sys.maxsize
FINITE = INF - 1


class _End(int):
    """`INF` as shown to users: the same number, printed as END."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "END"

    def __str__(self) -> str:
        return "END"

    def __format__(self, form: str) -> str:
        return format("END", form.rstrip(",_dn"))


END = _End(INF)
"""Epoch of the events after the end of all input."""


def visible(time: Time) -> Time:
    """`time` as shown to users: with `END` in place of `INF`.

    >>> visible((3, INF)), visible((3, 4)), visible((INF,)) == (INF,)
    ((3, END), (3, 4), True)
    """
    if len(time) == 1 and time[0] < FINITE:
        return time
    return tuple(END if at >= FINITE else at for at in time) if max(time, default=0) >= FINITE else time


def as_time(time: object, depth: int) -> Time:
    """`time` in plain integers, checked to be a time of `depth` coordinates.

    Raises:
        ValueError: if it is none; the text says what is wrong.

    >>> as_time((3, END), 2) == (3, INF)
    True
    >>> as_time(3, 1)
    Traceback (most recent call last):
    ValueError: a time is a tuple: (3,), not 3
    """
    if type(time) is tuple and len(time) == depth and all([type(at) is int and at >= 0 for at in time]):  # noqa: C419
        return time
    if not isinstance(time, tuple):
        example = f"({time},), not {time}" if isinstance(time, int) else f"{(0,) * depth}, not {type(time).__name__}"
        raise ValueError(f"a time is a tuple: {example}")
    if len(time) != depth:
        raise ValueError(
            f"times must have {depth} coordinate{'s' if depth > 1 else ''} here, and {time} has {len(time)}"
        )
    try:
        plain = tuple(int(operator.index(at)) for at in time)
    except TypeError:
        raise ValueError(f"the coordinates of a time are whole numbers, as in {(0,) * depth}, not {time}") from None
    if min(plain) < 0:
        raise ValueError(f"the coordinates of a time begin with 0, and {time} has one below that")
    return plain


def is_epoch(time: object) -> TypeGuard[Time]:
    """True if `time` is a tuple of one plain integer: a time of the root scope."""
    return type(time) is tuple and len(time) == 1 and type(time[0]) is int


def leq(a: Time, b: Time) -> bool:
    """True if `a <= b` in the product order; both times have the same depth.

    >>> leq((0, 5), (1, 5)), leq((0, 5), (1, 2)), leq((3, 7), (3, INF))
    (True, False, True)
    """
    depth = len(a)
    if depth == 1:
        return a[0] <= b[0]
    if depth == 2:
        return a[0] <= b[0] and a[1] <= b[1]
    if depth == 3:
        return a[0] <= b[0] and a[1] <= b[1] and a[2] <= b[2]
    return all(map(operator.le, a, b))


def join(a: Time, b: Time) -> Time:
    """Least upper bound of two times.

    >>> join((0, 5), (1, 2))
    (1, 5)
    """
    if len(a) == 3:  # loops in loops meet most often
        epoch, outer, inner = a
        epoch_, outer_, inner_ = b
        return max(epoch, epoch_), max(outer, outer_), max(inner, inner_)
    return tuple(map(max, a, b))


def minimal(times: Iterable[Time]) -> tuple[Time, ...]:
    """Minimal elements of `times`, sorted and without duplicates.

    O(n log n) for times of depth 1 and 2, O(n · size of the answer) beyond.

    >>> minimal([(2, 2), (0, 5), (1, 2), (1, 7), (0, 5)])
    ((0, 5), (1, 2))
    """
    ordered = sorted(times)
    if len(ordered) < 2:
        return tuple(ordered)
    # The lexicographic order extends the product order: only what stands earlier can lie below.
    first = ordered[0]
    depth = len(first)
    if depth == 1:
        return (first,)
    kept = [first]
    if depth == 2:
        lowest = first[1]
        for time in ordered:
            if time[1] < lowest:
                kept.append(time)
                lowest = time[1]
    else:
        for time in ordered:
            if not any(leq(below, time) for below in kept):
                kept.append(time)
    return tuple(kept)


def not_before(time: Time) -> tuple[Time, ...]:
    """Minimal times from `time` on in lexicographic order, sorted.

    An input that goes through its times in that order may still send at all that are not below one of these.

    >>> not_before((2, 4)), not_before((2, 0)), not_before((7,))
    (((2, 4), (3, 0)), ((2, 0),), ((7,),))
    """
    depth = len(time)
    if depth == 1:
        return (time,)
    return minimal([time, *((*time[:i], time[i] + 1, *(0,) * (depth - i - 1)) for i in range(depth - 1))])


def maximal(times: Iterable[Time]) -> tuple[Time, ...]:
    """Maximal elements of `times`, sorted and without duplicates.

    >>> maximal([(2, 2), (0, 5), (1, 2), (0, 4)])
    ((0, 5), (2, 2))
    """
    ordered = sorted(times, reverse=True)
    if len(ordered) < 2:
        return tuple(ordered)
    first = ordered[0]
    depth = len(first)
    if depth == 1:
        return (first,)
    kept = [first]
    if depth == 2:
        highest = first[1]
        for time in ordered:
            if time[1] > highest:
                kept.append(time)
                highest = time[1]
    else:
        for time in ordered:
            if not any(leq(time, above) for above in kept):
                kept.append(time)
    return tuple(reversed(kept))
