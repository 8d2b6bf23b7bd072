"""Changes of a collection, single or in columns, and their consolidation.

A batch of a differential stream is a list of both: `Rows` are columns that travel as one item. So a change of one record costs
no column, a change of a million no object a record, and both may come at one time on one stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from timely.data.batch import Batch

I64: TypeAlias = npt.NDArray[np.int64]

NOTHING = -(1 << 63)
"""Value code of a record without a value: the record is its own key."""

LEAST = -(1 << 62)
"""Least integer used as its own code; lower codes stand for stored values."""

FEW = 32
"""Limit of changes processed one by one in Python; more are processed as columns."""

_FIRST = 64
"""Rows tested for order before all rows are."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Changes of integer pairs (key, value) or single integers, in columns.

    The `value` of single integers is NOTHING.

    >>> from falkirk import differential
    >>> rows = differential.rows_of([1, 1, 2], [10, 11, 20])
    >>> rows.pairs()
    [((1, 10), 1), ((1, 11), 1), ((2, 20), 1)]
    """

    key: I64
    value: I64
    diff: I64

    def __len__(self) -> int:
        return len(self.key)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        return self.key.nbytes + self.value.nbytes + self.diff.nbytes

    def head(self, count: int) -> Rows:
        """First `count` rows."""
        return Rows(self.key[:count], self.value[:count], self.diff[:count])

    def pairs(self) -> list[tuple[Any, int]]:
        """Changes as pairs (record, difference)."""
        if len(self.value) and self.value[0] == NOTHING:
            return list(zip(self.key.tolist(), self.diff.tolist(), strict=True))
        records = zip(self.key.tolist(), self.value.tolist(), strict=True)
        return list(zip(records, self.diff.tolist(), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Tuples:
    """Changes of integer tuples, a column for each place, within a delta join."""

    columns: tuple[I64, ...]
    diff: I64

    def __len__(self) -> int:
        return len(self.diff)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        return sum(each.nbytes for each in (*self.columns, self.diff))

    def head(self, count: int) -> Tuples:
        """First `count` rows."""
        return Tuples(tuple(each[:count] for each in self.columns), self.diff[:count])

    def pairs(self) -> list[tuple[tuple[Any, ...], int]]:
        """Changes as pairs (tuple, difference)."""
        records = zip(*(each.tolist() for each in self.columns), strict=True)
        return list(zip(records, self.diff.tolist(), strict=True))


_COLUMNS = (Rows, Tuples)


def rows_of(key: Any, value: Any = None, diff: Any = 1) -> Rows:
    """Rows of integers from arrays or sequences.

    Without `value` the records are the keys. `diff` may be one number for all.

    Raises:
        ValueError: for columns of different lengths, of what are no integers, and for integers below -2**62 or beyond 63 bits.

    >>> from falkirk import differential
    >>> rows = differential.rows_of([1, 1, 2], [10, 11, 20])
    >>> len(rows)
    3
    """
    keys = _integers(key, "keys")
    values = constant(NOTHING, len(keys)) if value is None else _integers(value, "values")
    diffs = constant(diff, len(keys)) if np.ndim(diff) == 0 else _integers(diff, "differences")
    if not len(keys) == len(values) == len(diffs):
        raise ValueError(f"columns of one length are wanted, not of {len(keys)}, {len(values)} and {len(diffs)}")
    if len(keys) and (keys.min() < LEAST or (value is not None and values.min() < LEAST)):
        raise ValueError("columns hold integers from -2**62 up; send others as records")
    return Rows(keys, values, diffs)


def _integers(column: Any, what: str) -> I64:
    numbers = np.asarray(column)
    if numbers.dtype.kind not in "iub" and len(numbers):
        raise ValueError(f"columns hold integers, and no nulls; {what} are {numbers.dtype}: send such as records")
    if numbers.dtype == np.uint64 and len(numbers) and numbers.max() >> np.uint64(63):
        raise ValueError(
            f"columns hold integers from -2**62 to 2**63 - 1; {what} reach {numbers.max()}: send such as records"
        )
    return np.ascontiguousarray(numbers, np.int64)


def made_rows(made: Any, diff: I64) -> list[Any] | None:
    """Changes from a function's result on columns: `Rows`, or records if not integers.

    None for what is neither arrays of one length nor single values: the function is then to be asked for each record.
    """
    if made is NotImplemented:
        return None
    parts = made if isinstance(made, tuple) and len(made) == 2 and made[1] is not None else (made,)
    if any(isinstance(each, tuple) for each in parts):
        return None
    columns = [np.broadcast_to(np.asarray(each), diff.shape) for each in parts]
    if not all(map(_stand_for_themselves, columns)):
        records = list(zip(*(each.tolist() for each in columns), strict=True))
        return list(zip(records if len(parts) == 2 else [one for (one,) in records], diff.tolist(), strict=True))
    key, *values = (each.astype(np.int64, copy=False) for each in columns)
    return [Rows(key, values[0] if values else constant(NOTHING, len(diff)), diff)]


def _stand_for_themselves(column: npt.NDArray[Any]) -> bool:
    """True for a column of integers usable as their own codes."""
    if column.dtype.kind not in "iu" or not len(column):
        return column.dtype.kind in "iu"
    return int(column.min()) >= LEAST and int(column.max()) < 1 << 63


def of_key(record: Any) -> tuple[Any, bool]:
    """Key of a record, and True if the record is a pair; others are their own key."""
    if type(record) is tuple and len(record) == 2:
        return record[0], True
    return record, False


def as_key(key: Any) -> Any:
    """Record of a key without a value; a key that is a pair becomes (key, None)."""
    return (key, None) if of_key(key)[1] else key


def split(batch: Batch) -> tuple[list[tuple[Any, int]], list[Rows], int]:
    """Single changes of a batch, its columns, and the number of changes in all."""
    assert isinstance(batch, list)
    if not any(type(item) is Rows for item in batch):
        return list(batch), [], len(batch)
    pairs: list[tuple[Any, int]] = []
    columns: list[Rows] = []
    for item in batch:
        if type(item) is Rows:
            columns.append(item)
        else:
            pairs.append(item)
    return pairs, columns, len(pairs) + sum(map(len, columns))


def as_pairs(batch: Batch) -> list[tuple[Any, int]]:
    """All changes of a batch as pairs (record, difference)."""
    assert isinstance(batch, list)
    if any(type(item) in _COLUMNS for item in batch):
        return [pair for item in batch for pair in (item.pairs() if type(item) in _COLUMNS else (item,))]
    return list(batch)


def summed(columns: Sequence[I64], diff: I64, runs: bool = False) -> tuple[list[I64], I64]:
    """Sorted distinct rows with the sum of their differences, without those of sum 0.

    Columns whose ranges fit are packed into one integer a row, together with the difference, and sorted as such: that is much
    faster than sorting by several columns. `runs`: the rows are a few sequences, each in order.
    """
    count = len(diff)
    if count < 2:
        keep = diff != 0
        return [column[keep] for column in columns], diff[keep]
    lows, highs = zip(*map(range_of, (*columns, diff)), strict=True)
    bits = [(high - low).bit_length() for low, high in zip(lows, highs, strict=True)]
    if sum(bits[:-1]) < 63 and 1 << sum(bits[:-1]) <= count:
        return _counted(columns, diff, lows, bits)
    if sum(bits) < 64:
        return _packed(columns, diff, lows, bits, runs)
    order = np.lexsort(tuple(reversed(columns)))
    columns = [column[order] for column in columns]
    new = np.zeros(count, np.bool_)
    new[0] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return _added(columns, diff[order], np.flatnonzero(new))


def range_of(column: I64) -> tuple[int, int]:
    """Least and greatest number of a column that is not empty."""
    return (int(column[0]),) * 2 if is_constant(column) else (int(column.min()), int(column.max()))


def _words(columns: Sequence[I64], lows: Sequence[int], bits: Sequence[int]) -> npt.NDArray[np.uint64]:
    """Numbers of each row packed into one unsigned word, the first column uppermost."""
    word: npt.NDArray[np.uint64] | None = None
    for column, low, width in zip(columns, lows, bits, strict=True):
        if width:
            above = (column - low).view(np.uint64)
            if word is None:
                word = above
            else:
                word <<= np.uint64(width)
                word |= above
    return np.zeros(len(columns[0]), np.uint64) if word is None else word


def _unpacked(word: npt.NDArray[np.uint64], lows: Sequence[int], bits: Sequence[int]) -> list[I64]:
    """Columns unpacked from words; the words are overwritten."""
    found: list[I64] = []
    for low, width in zip(reversed(lows), reversed(bits), strict=True):
        if not width:
            found.append(np.full(len(word), low, np.int64))
            continue
        column = (word & np.uint64((1 << width) - 1)).view(np.int64)
        column += low
        found.append(column)
        word >>= np.uint64(width)
    return found[::-1]


def _counted(columns: Sequence[I64], diff: I64, lows: Sequence[int], bits: Sequence[int]) -> tuple[list[I64], I64]:
    """`summed` by counting, without a sort, for fewer possible records than rows."""
    word = _words(columns, lows[:-1], bits[:-1]).view(np.int64)
    if bits[-1]:
        sums = np.zeros(1 << sum(bits[:-1]), np.int64)
        np.add.at(sums, word, diff)
    else:
        sums = np.bincount(word) * lows[-1]
    there = np.flatnonzero(sums)
    sums = sums[there]
    return _unpacked(there.view(np.uint64), lows[:-1], bits[:-1]), sums


def _packed(
    columns: Sequence[I64], diff: I64, lows: Sequence[int], bits: Sequence[int], runs: bool
) -> tuple[list[I64], I64]:
    word = _words((*columns, diff), lows, bits)
    of_diff = np.uint64(bits[-1])
    first = word[:_FIRST] >> of_diff
    if (first[1:] > first[:-1]).all():
        record = word >> of_diff
        if (record[1:] > record[:-1]).all():  # in order already, each once
            keep = diff != 0
            return ([*columns], diff) if keep.all() else ([column[keep] for column in columns], diff[keep])
    word.sort(kind="stable" if runs else None)
    if bits[-1]:
        differences = (word & np.uint64((1 << bits[-1]) - 1)).view(np.int64)
        differences += lows[-1]
        word >>= of_diff
    else:
        differences = constant(lows[-1], len(word))
    new = np.empty(len(word), np.bool_)
    new[0] = True
    np.not_equal(word[1:], word[:-1], out=new[1:])
    if not new.all():
        starts = np.flatnonzero(new)
        if bits[-1]:
            differences = np.add.reduceat(differences, starts)
        else:
            differences = np.diff(starts, append=len(word))
            differences *= lows[-1]
        word = word[starts]
    if not (lows[-1] if is_constant(differences) else differences.all()):
        keep = differences != 0
        differences, word = differences[keep], word[keep]
    return _unpacked(word, lows[:-1], bits[:-1]), differences


def _added(columns: Sequence[I64], diff: I64, starts: npt.NDArray[np.intp]) -> tuple[list[I64], I64]:
    sums = np.add.reduceat(diff, starts)
    keep = sums != 0
    return [column[starts[keep]] for column in columns], sums[keep]


def distinct(numbers: I64) -> I64:
    """Distinct numbers, rising.

    `np.unique` of NumPy 2.3 hashes, which takes longer.
    """
    ordered = np.sort(numbers)
    new = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return ordered[new]


def groups(rising: I64, *further: I64) -> tuple[I64, npt.NDArray[np.intp]]:
    """Distinct numbers with the start of each, and the end; by further columns, too."""
    new = np.ones(len(rising), np.bool_)
    np.not_equal(rising[1:], rising[:-1], out=new[1:])
    for each in further:
        new[1:] |= each[1:] != each[:-1]
    starts = np.flatnonzero(new)
    return rising[starts], np.append(starts, len(rising))


def joined(columns: Sequence[I64]) -> I64:
    """Concatenated columns; a single one as it is."""
    if len(columns) == 1:
        return columns[0]
    if not columns:
        return np.zeros(0, np.int64)
    if all(map(is_constant, columns)) and len({int(column[0]) for column in columns}) == 1:
        return constant(int(columns[0][0]), sum(map(len, columns)))
    return np.concatenate(columns)


def constant(value: int, count: int) -> I64:
    """Read-only column of one repeated number, without memory of its own."""
    return np.ndarray((count,), np.int64, np.int64(value).tobytes(), strides=(0,))


def is_constant(column: I64) -> bool:
    """True for a column made by `constant` that has a row."""
    return column.strides == (0,) and len(column) > 0
