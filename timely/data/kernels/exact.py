"""Exact sums of floats, out of which numbers can be taken again: nothing is rounded before a sum is asked for.

A float is an integer times a power of two. It is added digit by digit: a digit of base 2^24 stands at one of 89 places, and
what a place holds may be more than a digit, or less than 0, as nothing is carried. Infinities and NaN have places of their own,
where they are counted. So numbers cancel to nothing in whatever order they come, and what was infinite is finite again when the
infinity is taken back. (Kulisch's long accumulator, in pieces: Neal, *Fast exact summation using small and large
superaccumulators*, 2015.)

A sum is the bytes of pairs (place, amount), kept and merged as sketches are (`timely.data.kernels.sketches`); None if there
are none. A place has room for 2^38 numbers. An *observation* is the bits of a float, the negative of one that is taken back;
payloads of NaN stand for what cannot be told by a negative.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from timely.data.kernels.sketches import Integers, Sketches, of_pairs, pairs_of
from timely.errors import CodecError

_DIGIT = 24
_MASK = (1 << _DIGIT) - 1
_ONE = 1 << 1074
"""1.0, in units of the least float above 0."""

_FRACTION = 52
_EXPONENTS = 0x7FF
_INFINITY, _MINUS_INFINITY, _NAN = 100, 101, 102
"""Places behind those of digits."""

_NO_NUMBER = np.int64(0x7FF8 << 48)
_BACK = {_NAN: _NO_NUMBER + 1, _INFINITY: _NO_NUMBER + 2, _MINUS_INFINITY: _NO_NUMBER + 3}
"""The observations of what is no number, and is taken back."""


def observations(values: npt.NDArray[np.float64], signs: Integers) -> Integers:
    """The observations of floats; where `signs` are below 0 they take back."""
    back = signs < 0
    found = np.where(back, -values, values).view(np.int64)
    if not np.isfinite(values).all():
        infinite = np.isinf(values)
        found[np.isnan(values)] = _NO_NUMBER
        found[back & np.isnan(values)] = _BACK[_NAN]
        found[back & infinite & (values > 0)] = _BACK[_INFINITY]
        found[back & infinite & (values < 0)] = _BACK[_MINUS_INFINITY]
    return found


def of_groups(groups: npt.NDArray[np.intp], count: int, observed: Integers) -> Sketches:
    """A sum for each of `count` groups; groups (n) says to which each of the observations (n) belongs."""
    exponents = (observed >> _FRACTION) & _EXPONENTS
    fractions = observed & ((1 << _FRACTION) - 1)
    special = exponents == _EXPONENTS
    # The integer, and how many bits it is shifted to the left from the least place on.
    whole = fractions + ((exponents > 0).astype(np.int64) << _FRACTION)
    first, shift = np.divmod(np.maximum(exponents, 1) - 1, _DIGIT)
    digits = np.zeros((4, len(observed)), np.int64)
    for at in range(3):
        part = ((whole >> (_DIGIT * at)) & _MASK) << shift
        digits[at] += part & _MASK
        digits[at + 1] += part >> _DIGIT
    digits[:, observed < 0] *= -1
    places = first + np.arange(4)[:, np.newaxis]
    if special.any():
        digits[:, special] = 0
        digits[0, special], places[0, special] = _counted(observed[special])
    there = digits != 0
    return of_pairs(np.broadcast_to(groups, there.shape)[there], count, places[there], digits[there])


def _counted(observed: Integers) -> tuple[Integers, Integers]:
    """The numbers by which what is no number counts, and its places."""
    amounts, places = np.ones(len(observed), np.int64), np.full(len(observed), _NAN)
    infinite = observed & ((1 << _FRACTION) - 1) == 0
    places[infinite & (observed > 0)] = _INFINITY
    places[infinite & (observed < 0)] = _MINUS_INFINITY
    for place, bits in _BACK.items():
        back = observed == bits
        amounts[back], places[back] = -1, place
    return amounts, places


def of_rows(observed: Integers) -> Sketches:
    """A sum for each observation."""
    return of_groups(np.arange(len(observed)), len(observed), observed)


def totals(sums: Sketches) -> npt.NDArray[np.float64]:
    """The floats that are nearest to some sums; infinite where none is near.

    Raises:
        CodecError: for bytes that are no sum.
    """
    found = np.zeros(len(sums))
    some = np.flatnonzero([each is not None for each in sums.tolist()])
    if not len(some):
        return found
    pairs, lengths = pairs_of(sums[some])
    if len(pairs) and not 0 <= pairs[:, 0].min() <= pairs[:, 0].max() <= _NAN:
        raise CodecError("a damaged sum: there is no such place")
    ends = np.cumsum(lengths).tolist()
    places, amounts = pairs[:, 0].tolist(), pairs[:, 1].tolist()
    begin = 0
    for at, end in zip(some.tolist(), ends, strict=True):
        found[at] = _nearest(dict(zip(places[begin:end], amounts[begin:end], strict=True)))
        begin = end
    return found


def _nearest(amounts: dict[int, int]) -> float:
    """The float that is nearest to a sum."""
    up, down, none = (amounts.pop(place, 0) > 0 for place in (_INFINITY, _MINUS_INFINITY, _NAN))
    if none or (up and down):
        return float("nan")
    if up or down:
        return float("inf") if up else float("-inf")
    whole = sum(amount << (_DIGIT * place) for place, amount in amounts.items())
    try:
        return whole / _ONE  # of two integers, rounded once
    except OverflowError:
        return float("inf") if whole > 0 else float("-inf")
