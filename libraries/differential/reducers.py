"""The functions of `reduce`: what a key comes to, given the values that it has and how often it has each.

A reducer works on one key (`one`), in Python, and on all keys that changed in a round at once (`many`), in columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from libraries.differential.rows import I64, summed

Group = list[tuple[Any, int]]
"""Values, and how often each is there."""

Columns = tuple[npt.NDArray[np.intp], I64, I64]
"""Number of the key, value, how often: in order of the first two."""


class Reducer:
    """A function of groups. `on_codes`: it does not look at values, so codes will do."""

    on_codes = False
    positive = True
    """Values that are there less than no times are an error."""
    columnar = True
    """It has `many`."""
    early = True
    """It may be asked about a time at which not all has come: it is not the user's code."""

    def one(self, key: Any, group: Group) -> Group:
        """The output of one key, whose group is not empty."""
        raise NotImplementedError

    def many(self, columns: Columns) -> Columns:
        """The output of many keys, for integers."""
        raise NotImplementedError

    def grown(self, before: Columns, new: Columns) -> Columns | None:
        """The output of many keys from what it was before and what was inserted since; None if that does not tell it."""
        return None


def _starts(key: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    new = np.empty(len(key), np.bool_)
    new[:1] = True
    np.not_equal(key[1:], key[:-1], out=new[1:])
    return np.flatnonzero(new)


def _ones(before: Columns, new: Columns) -> I64:
    return np.ones(len(before[0]) + len(new[0]), np.int64)


class Distinct(Reducer):
    """Each value once."""

    on_codes = True

    def one(self, key: Any, group: Group) -> Group:
        return [(value, 1) for value, _ in group]

    def many(self, columns: Columns) -> Columns:
        key, value, times = columns
        return key, value, np.ones_like(times)

    def grown(self, before: Columns, new: Columns) -> Columns:
        (key, value), times = summed([np.concatenate(pair) for pair in zip(before[:2], new[:2])], _ones(before, new))
        return key, value, np.ones_like(times)


class Count(Reducer):
    """The number of values, each as often as it is there."""

    on_codes = True

    def one(self, key: Any, group: Group) -> Group:
        return [(sum(times for _, times in group), 1)]

    def many(self, columns: Columns) -> Columns:
        key, _, times = columns
        starts = _starts(key)
        sums = np.add.reduceat(times, starts)
        return key[starts], sums, np.ones_like(sums)


class Sum(Reducer):
    """The sum of the values, each as often as it is there."""

    def one(self, key: Any, group: Group) -> Group:
        return [(sum(value * times for value, times in group), 1)]

    def many(self, columns: Columns) -> Columns:
        key, value, times = columns
        if float(np.abs(value).max()) * float(times.max()) * len(value) >= 2**62:
            raise OverflowError  # Python's integers have no end: key by key, then
        starts = _starts(key)
        sums = np.add.reduceat(value * times, starts)
        return key[starts], sums, np.ones_like(sums)


class Extreme(Reducer):
    """The least value, or the greatest."""

    def __init__(self, greatest: bool) -> None:
        self._greatest = greatest

    def one(self, key: Any, group: Group) -> Group:
        choose: Callable[[Iterable[Any]], Any] = max if self._greatest else min
        numbers = [value for value, _ in group if value == value]  # NaN only where there is nothing else
        return [(choose(numbers) if numbers else group[0][0], 1)]

    def many(self, columns: Columns) -> Columns:
        key, value, _ = columns
        at = _starts(key)
        if self._greatest:
            at = np.append(at[1:], len(key)) - 1
        return key[at], value[at], np.ones(len(at), np.int64)

    def grown(self, before: Columns, new: Columns) -> Columns:
        (key, value), times = summed([np.concatenate(pair) for pair in zip(before[:2], new[:2])], _ones(before, new))
        return self.many((key, value, times))


class Top(Reducer):
    """The `count` greatest values, or the least ones; a value that is there twice counts twice."""

    columnar = False

    def __init__(self, count: int, greatest: bool) -> None:
        self._count = count
        self._greatest = greatest

    def one(self, key: Any, group: Group) -> Group:
        left, found = self._count, []
        numbers = [entry for entry in group if entry[0] == entry[0]]
        odd = [entry for entry in group if entry[0] != entry[0]]  # NaN comes last
        for value, times in sorted(numbers, key=lambda entry: entry[0], reverse=self._greatest) + odd:
            found.append((value, min(times, left)))
            left -= times
            if left <= 0:
                break
        return found


class Threshold(Reducer):
    """Each value as often as `function(how often)` says."""

    on_codes = True
    positive = False
    columnar = False
    early = False

    def __init__(self, function: Callable[[int], int]) -> None:
        self._function = function

    def one(self, key: Any, group: Group) -> Group:
        return [(value, self._function(times)) for value, times in group]


class Function(Reducer):
    """The user's `function(key, group)`, which gives values."""

    columnar = False
    early = False

    def __init__(self, function: Callable[[Any, Group], Iterable[Any]]) -> None:
        self._function = function

    def one(self, key: Any, group: Group) -> Group:
        found = self._function(key, group)
        if isinstance(found, str | bytes) or not isinstance(found, Iterable):
            raise TypeError(f"the function of reduce gives the values of a key, in a list, not {found!r:.200}")
        return [(value, 1) for value in found]
