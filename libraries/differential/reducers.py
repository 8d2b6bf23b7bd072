"""Functions of `reduce`: the output of a key from its values and multiplicities.

A reducer works on one key (`one`), in Python, and on all keys that changed in a round at once (`many`), in columns.

Counts and sums are *linear*: what a change adds to them depends on nothing else. So their traces hold no values, but what these
weigh: under a key a few whole numbers, which are added up as differences are, at whatever times. A sum is kept in digits, each
with a place of its own, so it is exact for integers of any size and for floats, and is rounded once, when it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from libraries.differential.rows import I64, summed
from timely.data.content import by_content

Group = list[tuple[Any, int]]
"""Values with their multiplicities."""

Columns = tuple[npt.NDArray[np.intp], I64, I64]
"""Number of the key, value, multiplicity, sorted by the first two."""


class Reducer:
    """Function of groups.

    `on_codes`: it works on codes, without the values.
    """

    on_codes = False
    positive = True
    """True if negative multiplicities are an error."""
    columnar = True
    """True if `many` is implemented."""
    early = True
    """True for a reducer free of user code: partial input of a time may be reduced."""
    greatest: bool | None = None
    """Order of reading values: True greatest first, False least first; None: all."""

    def one(self, key: Any, group: Group) -> Group:
        """Output of one key with a group that is not empty."""
        raise NotImplementedError

    def first(self, ranked: Iterator[tuple[int, int]]) -> Group:
        """Output of one key from its values in order, read only as far as needed."""
        raise NotImplementedError

    def many(self, columns: Columns) -> Columns:
        """Output of many keys at once, for reducers of integers."""
        raise NotImplementedError

    def grown(self, before: Columns, new: Columns) -> Columns | None:
        """Output of many keys from the previous output and insertions; None if unknown."""
        return None


def _starts(key: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    new = np.empty(len(key), np.bool_)
    new[:1] = True
    np.not_equal(key[1:], key[:-1], out=new[1:])
    return np.flatnonzero(new)


def _ones(before: Columns, new: Columns) -> I64:
    return np.ones(len(before[0]) + len(new[0]), np.int64)


class Distinct(Reducer):
    """Reducer to the distinct values of a key."""

    on_codes = True

    def one(self, key: Any, group: Group) -> Group:
        return [(value, 1) for value, _ in group]

    def many(self, columns: Columns) -> Columns:
        key, value, times = columns
        return key, value, np.ones_like(times)

    def grown(self, before: Columns, new: Columns) -> Columns:
        (key, value), times = summed([np.concatenate(pair) for pair in zip(before[:2], new[:2])], _ones(before, new))
        return key, value, np.ones_like(times)


COUNTED = 1 << 20
"""Place of the number of values; lower places are digits."""

_FLOATS, _NANS, _INFINITE, _MINUS_INFINITE = (COUNTED + place for place in (1, 2, 3, 4))

_DIGIT = 31
"""Bits of a digit; each digit has the sign of its number."""

_MOST = 1 << 20
"""Limit of a multiplicity weighed at once: sums of digits stay within 64 bits."""

Weights = dict[int, int]
"""Whole number by place."""


class Linear(Reducer):
    """Function of the summed weights of values.

    Values without a weight, as decimals, stay in the trace as they are.
    """

    def weigh(self, value: Any) -> Weights | None:
        """Weights of one value; None for a value kept as it is."""
        raise NotImplementedError

    def weigh_many(self, value: I64, diff: I64) -> list[tuple[npt.NDArray[np.intp] | slice, int, I64]] | None:
        """Weights of integers: rows, place, numbers; None if a multiplicity is too large."""
        raise NotImplementedError

    def total(self, weights: Weights, others: Group) -> Any:
        """Result of a key with at least one value."""
        raise NotImplementedError


class Count(Linear):
    """Number of values, with multiplicity."""

    on_codes = True

    def weigh(self, value: Any) -> Weights:
        return {COUNTED: 1}

    def weigh_many(self, value: I64, diff: I64) -> list[tuple[npt.NDArray[np.intp] | slice, int, I64]]:
        return [(slice(None), COUNTED, diff)]

    def total(self, weights: Weights, others: Group) -> Any:
        return weights[COUNTED]

    def many(self, columns: Columns) -> Columns:
        key, _, times = columns
        return key, times, np.ones_like(times)


class Sum(Linear):
    """Sum of the values, with multiplicity."""

    def weigh(self, value: Any) -> Weights | None:
        if isinstance(value, int):
            return {COUNTED: 1} | _digits(int(value), 0)
        if not isinstance(value, float):
            return None
        found = {COUNTED: 1, _FLOATS: 1}
        if not math.isfinite(value):
            return found | {_NANS if value != value else _INFINITE if value > 0 else _MINUS_INFINITE: 1}
        number, under = float(value).as_integer_ratio()
        below = under.bit_length() - 1
        lanes = -(-below // _DIGIT)
        return found | _digits(number << (lanes * _DIGIT - below), -lanes)

    def weigh_many(self, value: I64, diff: I64) -> list[tuple[npt.NDArray[np.intp] | slice, int, I64]] | None:
        if not len(value):
            return []
        if max(abs(int(diff.min())), abs(int(diff.max()))) > _MOST:
            return None
        found: list[tuple[npt.NDArray[np.intp] | slice, int, I64]] = [(slice(None), COUNTED, diff)]
        place, left = 0, np.abs(value)
        sign = np.sign(value)
        rows = np.flatnonzero(left)
        while len(rows):
            digit = left[rows] & (1 << _DIGIT) - 1
            found.append((rows, place, digit * sign[rows] * diff[rows]))
            left = left >> _DIGIT
            place, rows = place + 1, np.flatnonzero(left)
        return found

    def total(self, weights: Weights, others: Group) -> Any:
        number: Any = self._number(weights)
        for value, times in others:
            number = number + value * times
        return number

    @staticmethod
    def _number(weights: Weights) -> int | float:
        least = min(0, min(weights))
        whole = sum(digit << (place - least) * _DIGIT for place, digit in weights.items() if place < COUNTED and digit)
        if not weights.get(_FLOATS):
            return whole >> -least * _DIGIT
        if weights.get(_NANS) or (weights.get(_INFINITE) and weights.get(_MINUS_INFINITE)):
            return math.nan
        if weights.get(_INFINITE) or weights.get(_MINUS_INFINITE):
            return math.inf if weights.get(_INFINITE) else -math.inf
        try:
            return whole / (1 << -least * _DIGIT)
        except OverflowError:
            return math.inf if whole > 0 else -math.inf

    def many(self, columns: Columns) -> Columns:
        key, place, times = columns
        starts = _starts(key)
        if place.min() < 0 or ((place > 1) & (place != COUNTED)).any():
            raise OverflowError  # Python's numbers have no end: key by key, then
        upper = np.where(place == 1, times, 0)
        if len(upper) * float(np.abs(upper).max()) >= 2**30 or len(times) * float(np.abs(times).max()) >= 2**61:
            raise OverflowError
        parts = np.where(place == COUNTED, 0, times) << np.where(place == 1, _DIGIT, 0)
        sums = np.add.reduceat(parts, starts)
        return key[starts], sums, np.ones_like(sums)


def _digits(number: int, place: int) -> Weights:
    """Digits of a number, the lowest at `place`."""
    sign, left = (1, number) if number >= 0 else (-1, -number)
    found = {}
    while left:
        if digit := left & (1 << _DIGIT) - 1:
            found[place] = sign * digit
        left >>= _DIGIT
        place += 1
    return found


class Extreme(Reducer):
    """Least or greatest value."""

    def __init__(self, greatest: bool) -> None:
        self.greatest = greatest

    def one(self, key: Any, group: Group) -> Group:
        choose: Callable[[Iterable[Any]], Any] = max if self.greatest else min
        numbers = [value for value, _ in group if value == value]  # NaN only where there is nothing else
        return [(choose(numbers) if numbers else group[0][0], 1)]

    def first(self, ranked: Iterator[tuple[int, int]]) -> Group:
        return [(value, 1) for value, _ in islice(ranked, 1)]

    def many(self, columns: Columns) -> Columns:
        key, value, _ = columns
        at = _starts(key)
        if self.greatest:
            at = np.append(at[1:], len(key)) - 1
        return key[at], value[at], np.ones(len(at), np.int64)

    def grown(self, before: Columns, new: Columns) -> Columns:
        (key, value), times = summed([np.concatenate(pair) for pair in zip(before[:2], new[:2])], _ones(before, new))
        return self.many((key, value, times))


class Top(Reducer):
    """The `count` greatest or least values, with multiplicity."""

    columnar = False

    def __init__(self, count: int, greatest: bool) -> None:
        self._count = count
        self.greatest = greatest

    def one(self, key: Any, group: Group) -> Group:
        numbers = [entry for entry in group if entry[0] == entry[0]]
        odd = [entry for entry in group if entry[0] != entry[0]]  # NaN comes last
        return self.first(iter(sorted(numbers, key=lambda entry: entry[0], reverse=bool(self.greatest)) + odd))

    def first(self, ranked: Iterator[tuple[Any, int]]) -> Group:
        left, found = self._count, []
        for value, times in ranked:
            found.append((value, min(times, left)))
            left -= times
            if left <= 0:
                break
        return found


class Threshold(Reducer):
    """Values with multiplicities mapped by `function`."""

    on_codes = True
    positive = False
    columnar = False
    early = False

    def __init__(self, function: Callable[[int], int]) -> None:
        self._function = function

    def one(self, key: Any, group: Group) -> Group:
        return [(value, self._function(times)) for value, times in group]


class Function(Reducer):
    """User's `function(key, group)`, with an iterable of values as its result."""

    columnar = False
    early = False

    def __init__(self, function: Callable[[Any, Group], Iterable[Any]]) -> None:
        self._function = function

    def one(self, key: Any, group: Group) -> Group:
        found = self._function(key, by_content(group))
        if isinstance(found, str | bytes) or not isinstance(found, Iterable):
            raise TypeError(f"the function of reduce gives the values of a key, in a list, not {found!r:.200}")
        return [(value, 1) for value in found]
