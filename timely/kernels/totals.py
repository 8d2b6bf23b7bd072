"""Aggregates in two steps: batches become *partial* tables, and partial tables are added up.

A *part* is what must be kept of a column so that partial results can be combined in any order and grouping: the
number of rows or of values, a sum, a minimum, a maximum. A partial table holds key columns, then a column a part.
Integer sums wrap at 64 bits. NaN loses against any number in a minimum or maximum, as in Polars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timely.kernels.columns import (
    Numbers,
    column_of,
    is_number,
    numbers,
    pooled_empty,
    pooled_full,
    pooled_take,
    whole,
)
from timely.kernels.index import TINY, KeyIndex
from timely.kernels.tables import Ids, IntTable, compiled_loops, read_only

Kind = Literal["rows", "values", "sum", "min", "max"]


@dataclass(frozen=True, slots=True)
class Part:
    """What is kept of `column` (of the rows themselves where it is None)."""

    kind: Kind
    column: str | None = None

    @property
    def name(self) -> str:
        """Its column in a partial table."""
        return f"{self.kind}({self.column or ''})"


_ADDS = ("rows", "values", "sum")

_SPARSE = 8
"""Integers whose range is less than so many times their number are group numbers as they are, with gaps."""

_MANY = 8192
"""From here on compiled loops pay for a group-by; smaller batches are NumPy's."""


def _identity(kind: Kind, dtype: np.dtype[Any]) -> Any:
    """What changes nothing. Floats start from NaN, which `fmin` and `fmax` give up for any number."""
    if kind in _ADDS:
        return 0
    if dtype.kind == "f":
        return np.nan
    return np.iinfo(np.int64).max if kind == "min" else np.iinfo(np.int64).min


def _ufunc(kind: Kind, dtype: np.dtype[Any]) -> np.ufunc:
    if kind in _ADDS:
        return np.add
    if dtype.kind == "f":
        return np.fmin if kind == "min" else np.fmax
    return np.minimum if kind == "min" else np.maximum


def _reduce(kind: Kind, groups: Ids, count: int, values: Numbers) -> Numbers:
    """One result for each of `count` groups; groups (n) says to which each of values (n) belongs."""
    if len(groups) >= _MANY:
        result = _compiled_reduce(kind, groups, count, values)
        if result is not None:
            return result
    if kind == "sum" and values.dtype.kind == "f":
        # Without any values the weights are ignored, and counts come out.
        return np.bincount(groups, values, count).astype(np.float64, copy=False)
    result = np.full(count, _identity(kind, values.dtype), values.dtype)
    _ufunc(kind, values.dtype).at(result, groups, values)
    return result


def _compiled_reduce(kind: Kind, groups: Ids, count: int, values: Numbers) -> Numbers | None:
    """The same for many rows; None if there are NaNs, which minima and maxima must pass over."""
    loops = compiled_loops()
    groups, values = read_only(groups), read_only(values)
    if kind == "sum":
        result = pooled_full(count, 0, values.dtype)
        loops.sum_groups(groups, values, result)
        return result
    floats = values.dtype.kind == "f"
    limits = (np.inf, -np.inf) if floats else (np.iinfo(np.int64).max, np.iinfo(np.int64).min)
    result = pooled_full(count, limits[0] if kind == "min" else limits[1], values.dtype)
    met_nan = (loops.min_groups if kind == "min" else loops.max_groups)(groups, values, result)
    return None if met_nan else result


def _count_rows(groups: Ids, count: int) -> tuple[Numbers, Ids]:
    """How many rows each group has, and the groups that have any."""
    if len(groups) < _MANY:
        rows: Numbers = np.bincount(groups, minlength=count)
        return rows, np.flatnonzero(rows)
    rows = pooled_full(count, 0, np.int64)
    present = pooled_empty(count, np.intp)
    found = compiled_loops().count_rows(read_only(groups), rows, present)
    return rows, present[:found]


def partial(table: pa.Table, keys: Sequence[str], parts: Sequence[Part]) -> pa.Table:
    """The partial table of a batch: keys, then parts. A dictionary-encoded key keeps its dictionary.

    Raises:
        TypeError: if a column cannot be a key, or cannot be added up or compared as a number.
    """
    groups, count, keys_of = _group([whole(table[key]) for key in keys])
    rows, present = _count_rows(groups, count)
    full = len(present) == count
    rows_column = pa.array(rows if full else pooled_take(rows, present))
    valid: dict[str, tuple[Ids, Numbers, Numbers | None, pa.DataType]] = {}
    columns = []
    for part in parts:
        if part.column is None:
            columns.append(rows_column)
            continue
        if part.column not in valid:
            valid[part.column] = _values(whole(table[part.column]), part.column, groups, count)
        of, values, filled, kind = valid[part.column]
        if part.kind == "values":
            counts = None if filled is None else (filled if full else filled[present])
            columns.append(rows_column if counts is None else pa.array(counts))
            continue
        result = _reduce(part.kind, of, count, values)
        result = result if full else pooled_take(result, present)
        if part.kind == "sum":
            columns.append(pa.array(result))
        else:
            empty = None if filled is None else (filled if full else filled[present]) == 0
            columns.append(column_of(result, kind, empty))
    names = [*keys, *(part.name for part in parts)]
    return pa.table([*keys_of(present), *columns], names)


def _values(column: pa.Array, name: str, groups: Ids, count: int) -> tuple[Ids, Numbers, Numbers | None, pa.DataType]:
    """Groups and numbers of the values that are not null, how many a group has (None: as rows), and their type."""
    kind = column.type
    if pa.types.is_null(kind):
        column = column.cast(pa.int64())
    elif not is_number(kind):
        raise TypeError(f"column {name!r} of type {kind} cannot be aggregated here; use a Polars expression")
    if not column.null_count:
        return groups, numbers(column), None, kind
    groups = groups[column.is_valid().to_numpy(zero_copy_only=False)]
    return groups, numbers(column.drop_null()), np.bincount(groups, minlength=count), column.type


Keys = Callable[[Ids], list[pa.Array]]


def _group(columns: list[pa.Array]) -> tuple[Ids, int, Keys]:
    """A group number for each row, how many there may be, and how to get the keys of some of them.

    Codes of a dictionary and integers in a narrow range are group numbers already; other keys are looked up.
    """
    if len(columns) == 1 and len(columns[0]) >= TINY and not columns[0].null_count:
        column = columns[0]
        if pa.types.is_dictionary(column.type):
            dictionary = column.dictionary
            codes = column.indices.to_numpy().astype(np.intp)
            if len(dictionary) <= 2 * len(column):
                return codes, len(dictionary), lambda ids: [_encoded(ids, dictionary)]
            if not dictionary.null_count:
                table = IntTable(len(codes) // 4)
                groups = table.ids(codes)
                return groups, len(table), lambda ids: [_encoded(table.values()[ids], dictionary)]
        elif is_number(column.type) and not pa.types.is_floating(column.type):
            kind, values = column.type, numbers(column)
            low, high = int(values.min()), int(values.max())
            if high - low < _SPARSE * len(values):
                # In key order, so equal input gives equal output.
                return (
                    values - low,
                    high - low + 1,
                    lambda ids: [column_of(np.add(ids, low, out=pooled_empty(len(ids), np.int64)), kind)],
                )
    index = KeyIndex(len(columns), expected=len(columns[0]) // 4)
    return index.ids(columns), len(index), lambda ids: index.keys(ids)


def _encoded(ids: Ids, dictionary: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(ids.astype(np.int32)), dictionary, safe=False)


class Totals:
    """Parts added up over any number of partial tables: an index of keys, and a dense array a part."""

    def __init__(self, keys: Sequence[str], parts: Sequence[Part], expected: int = 0) -> None:
        self.keys = list(keys)
        self.parts = list(parts)
        self.index = KeyIndex(len(keys), expected)
        self._expected = expected
        self._arrays: list[Numbers] = []
        self._kinds: list[pa.DataType] = []

    def __len__(self) -> int:
        return len(self.index)

    def ids(self, table: pa.Table) -> Ids:
        """The id of each row's key; new keys start from nothing."""
        ids = self.index.ids([whole(table[key]) for key in self.keys])
        kinds = [table.schema.field(part.name).type for part in self.parts]
        if not self._arrays:
            self._kinds = kinds
            self._arrays = [np.zeros(0, _dtype(kind)) for kind in kinds]
        elif kinds != self._kinds:
            self._widen(kinds)
        count = len(self.index)
        if count > len(self._arrays[0]):
            size = max(64, 2 * count, self._expected)
            for i, (part, array) in enumerate(zip(self.parts, self._arrays, strict=True)):
                larger = np.full(size, _identity(part.kind, array.dtype), array.dtype)
                larger[: len(array)] = array
                self._arrays[i] = larger
        return ids

    def _widen(self, kinds: list[pa.DataType]) -> None:
        """Integers meet floats: go on in floats. Anything else that changes is an error."""
        for i, (old, new) in enumerate(zip(self._kinds, kinds, strict=True)):
            if old.equals(new):
                continue
            part = self.parts[i]
            plain = [pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (old, new)]
            if not all(plain):
                raise TypeError(f"column {part.column!r} was of type {old} and is now {new}; cast it to one type")
            wide = pa.float64() if pa.types.is_floating(old) or pa.types.is_floating(new) else pa.int64()
            if wide == pa.float64() and self._arrays[i].dtype.kind == "i":
                array = self._arrays[i]
                floats = array.astype(np.float64)
                if part.kind in ("min", "max"):
                    floats[array == _identity(part.kind, array.dtype)] = np.nan
                self._arrays[i] = floats
            self._kinds[i] = wide

    def add(self, ids: Ids, table: pa.Table, unique: bool) -> None:
        """Add the partial `table`, whose rows have `ids`; `unique` if none occurs twice."""
        for part, array in zip(self.parts, self._arrays, strict=True):
            column = whole(table[part.name])
            of = ids
            if column.null_count:  # a group that had no values
                of = ids[column.is_valid().to_numpy(zero_copy_only=False)]
                column = column.drop_null()
            values = numbers(column)
            ufunc = _ufunc(part.kind, array.dtype)
            if unique:
                array[of] = ufunc(array[of], values)
            else:
                ufunc.at(array, of, values.astype(array.dtype, copy=False))

    def gather(self, ids: Ids) -> list[Numbers]:
        """The parts of `ids`, as copies."""
        return [array[ids] for array in self._arrays]

    def put(self, ids: Ids, values: Sequence[Numbers]) -> None:
        """Set the parts of `ids`."""
        for array, new in zip(self._arrays, values, strict=True):
            array[ids] = new

    def put_table(self, ids: Ids, table: pa.Table) -> None:
        """Set the parts of `ids`, all different, to those of the partial `table`."""
        first, count = (int(ids[0]), len(ids)) if len(ids) else (0, 0)
        rising = count > 0 and int(ids[-1]) == first + count - 1 and bool((np.diff(ids) == 1).all())
        where: Ids | slice = slice(first, first + count) if rising else ids
        for part, array in zip(self.parts, self._arrays, strict=True):
            column = whole(table[part.name])
            if column.null_count:  # a group that had no values
                array[where] = _identity(part.kind, array.dtype)
                array[ids[column.is_valid().to_numpy(zero_copy_only=False)]] = numbers(column.drop_null())
            else:
                array[where] = numbers(column)

    def truncate(self, count: int) -> None:
        """Forget all but the first `count` keys."""
        for part, array in zip(self.parts, self._arrays, strict=True):
            array[count:] = _identity(part.kind, array.dtype)
        self.index.truncate(count)

    def table(self, ids: Ids, values: Sequence[Numbers] | None = None) -> pa.Table:
        """The partial table of `ids`, with their parts now or the given ones."""
        values = self.gather(ids) if values is None else values
        counts = {part.column: v for part, v in zip(self.parts, values, strict=True) if part.kind == "values"}
        columns = []
        for part, kind, array in zip(self.parts, self._kinds, values, strict=True):
            empty = counts[part.column] == 0 if part.kind in ("min", "max") else None
            columns.append(column_of(array, kind, empty))
        return pa.table([*self.index.keys(ids), *columns], [*self.keys, *(part.name for part in self.parts)])

    def nbytes(self) -> int:
        """Bytes held, roughly."""
        return self.index.nbytes() + sum(array.nbytes for array in self._arrays)


def _dtype(kind: pa.DataType) -> npt.DTypeLike:
    return np.float64 if pa.types.is_floating(kind) else np.int64


def repeats(ids: Ids, count: int) -> bool:
    """Whether an id below `count` occurs twice in `ids`."""
    if len(ids) * 16 < count:
        return len(set(ids.tolist())) < len(ids)
    seen = np.zeros(count, np.bool_)
    seen[ids] = True
    return int(np.count_nonzero(seen)) < len(ids)


def union(many: Sequence[Ids], count: int) -> Ids:
    """The distinct ids, all below `count`, in order."""
    if sum(map(len, many)) * 16 < count:
        return np.array(sorted({i for ids in many for i in ids.tolist()}), np.intp)
    seen = np.zeros(count, np.bool_)
    for ids in many:
        seen[ids] = True
    return np.flatnonzero(seen)


def combine(tables: Iterable[pa.Table], keys: Sequence[str], parts: Sequence[Part]) -> pa.Table:
    """One partial table, each key once, for several."""
    tables = list(tables)
    regrouped = _regroup(tables, keys, parts) if sum(map(len, tables)) >= _MANY else None
    if regrouped is not None:
        return regrouped
    totals = Totals(keys, parts, expected=max((len(table) for table in tables), default=0))
    for table in tables:
        totals.add(totals.ids(table), table, unique=False)
    return totals.table(np.arange(len(totals), dtype=np.intp))


def _regroup(tables: list[pa.Table], keys: Sequence[str], parts: Sequence[Part]) -> pa.Table | None:
    """The same for many rows with one integer key and no nulls, without an index; None where that does not apply."""
    schema = tables[0].schema
    if len(keys) > 1 or not pa.types.is_integer(schema.field(keys[0]).type) or any(t.schema != schema for t in tables):
        return None
    table = pa.concat_tables(tables)
    if any(column.null_count for column in table.columns):
        return None
    groups, count, keys_of = _group([whole(table[keys[0]])])
    _, present = _count_rows(groups, count)
    columns = []
    for part in parts:
        kind: Kind = "sum" if part.kind in _ADDS else part.kind
        result = _reduce(kind, groups, count, numbers(whole(table[part.name])))
        columns.append(column_of(pooled_take(result, present), schema.field(part.name).type))
    return pa.table([*keys_of(present), *columns], [*keys, *(part.name for part in parts)])
