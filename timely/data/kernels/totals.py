"""Aggregates in two steps: batches become *partial* tables, and partial tables are added up.

A *part* is what must be kept of a column so that partial results can be combined in any order and grouping: the
number of rows or of values, a sum, a minimum, a maximum, the squares of distances from the mean, the number of distinct
values, a sketch (`timely.data.kernels.sketches`) of observations. A partial table holds key columns, then a column a part.
NaN loses against any number in a minimum or maximum, as in Polars.

Integer sums are exact. They are 64-bit integers while they fit, and Python's own integers (arrays of objects, and columns of
type `EXACT`) from where one does not: that is found out from bounds, and costs next to nothing while nothing is near them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from timely.data.batch import Columns, as_arrow
from timely.data.kernels import sketches
from timely.data.kernels.columns import (
    PLAIN,
    TINY,
    Numbers,
    Scratch,
    column_of,
    comparable,
    comparable_type,
    is_number,
    numbers,
    objects,
    pooled_empty,
    pooled_full,
    pooled_take,
    scratch,
    whole,
    whole_type,
)
from timely.data.kernels.index import KeyIndex, bits
from timely.data.kernels.series import frame_of, series_of
from timely.data.kernels.tables import Ids, IntTable, compiled_loops, distinct, read_only

Kind = Literal["rows", "values", "sum", "min", "max", "squares", "distinct", "sketch"]


class Part(NamedTuple):  # of which the hash costs little
    """One partial aggregate of `column` (of the rows themselves where it is None)."""

    kind: Kind
    column: str | None = None

    @property
    def name(self) -> str:
        """Its column in a partial table."""
        return name_of(self.kind, self.column)


@cache
def name_of(kind: Kind, column: str | None = None) -> str:
    """The column of such a part in a partial table."""
    return f"{kind}({column or ''})"


EXACT = pa.decimal256(76, 0)
"""The type of a column of integer sums of which some are beyond 64 bits."""

_LIMIT = 1 << 63

_ADDS = ("rows", "values", "sum", "squares", "distinct")

_SPARSE = 8
"""Integers whose range is less than so many times their number are group numbers as they are, with gaps."""

_MANY = 8192
"""From here on compiled loops pay for a group-by; smaller batches are NumPy's."""


def _identity(kind: Kind, dtype: np.dtype[Any]) -> Any:
    """The identity of an aggregate. Floats start from NaN, which `fmin` and `fmax` give up for any number."""
    if kind in _ADDS:
        return 0
    if dtype.kind == "O":
        return None
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
    return _reduce_all(kind, [groups], count, [values])


def _reduce_all(kind: Kind, groups: Sequence[Ids], count: int, values: Sequence[Numbers]) -> Numbers:
    """The same of several pieces."""
    if sum(map(len, groups)) >= _MANY and values[0].dtype.kind != "O":
        result = _compiled_reduce(kind, groups, count, values)
        if result is not None:
            return result
    return _plain_reduce(kind, _flat(groups), count, _flat(values))


def _flat(pieces: Sequence[Numbers]) -> Numbers:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _plain_reduce(kind: Kind, groups: Ids, count: int, values: Numbers) -> Numbers:
    if kind == "sum" and values.dtype.kind == "f":
        # Without any values the weights are ignored, and counts come out.
        return np.bincount(groups, values, count).astype(np.float64, copy=False)
    if kind == "sum" and values.dtype.kind == "i" and _reach(values) * len(values) >= _LIMIT:
        return _exact_sums(groups, count, values)
    result = np.full(count, _identity(kind, values.dtype), values.dtype)
    _ufunc(kind, values.dtype).at(result, groups, values)
    return result


def _squares(groups: Ids, count: int, values: Numbers) -> Numbers:
    """The sum of the squares of the distances from the mean, of each group."""
    values = values.astype(np.float64, copy=False)
    means = np.bincount(groups, values, count) / np.maximum(np.bincount(groups, minlength=count), 1)
    return np.bincount(groups, (values - means[groups]) ** 2, count).astype(np.float64, copy=False)


def _compiled_reduce(kind: Kind, groups: Sequence[Ids], count: int, values: Sequence[Numbers]) -> Numbers | None:
    """The same for many rows; None if there are NaNs, which minima and maxima must pass over, or a sum left 64 bits."""
    loops, dtype = compiled_loops(), values[0].dtype
    if kind == "sum":
        loop = loops.sum_groups if dtype.kind == "f" else loops.sum_integers
        result = pooled_full(count, 0, dtype)
    else:
        limits = (np.inf, -np.inf) if dtype.kind == "f" else (np.iinfo(np.int64).max, np.iinfo(np.int64).min)
        loop = loops.min_groups if kind == "min" else loops.max_groups
        result = pooled_full(count, limits[0] if kind == "min" else limits[1], dtype)
    for of, given in zip(groups, values, strict=True):
        if loop(read_only(of), read_only(np.ascontiguousarray(given)), result):
            return None
    return result


def _reach(values: Numbers) -> int:
    """The greatest distance from zero of the integers `values`."""
    return max(int(values.max()), -int(values.min())) if len(values) else 0


def _exact_sums(groups: Ids, count: int, values: Numbers) -> Numbers:
    """Sums of 64-bit integers, whatever their size: Python's integers if one of them is beyond 64 bits."""
    low, high = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(low, groups, values & 0xFFFFFFFF)
    np.add.at(high, groups, values >> 32)
    high += low >> 32
    low &= 0xFFFFFFFF
    if not len(high) or (high.max() < 1 << 31 and high.min() >= -(1 << 31)):
        return (high << 32) | low
    exact: Numbers = high.astype(object) * (1 << 32) + low.astype(object)
    return exact


def _count_rows(groups: Ids, count: int) -> tuple[Numbers, Ids]:
    """Number of rows in each group, and the groups that have any."""
    if len(groups) < _MANY:
        rows: Numbers = np.bincount(groups, minlength=count)
        return rows, np.flatnonzero(rows)
    return _count_all([groups], count)


def _count_all(groups: Sequence[Ids], count: int) -> tuple[Numbers, Ids]:
    """The same of several pieces."""
    rows, present = pooled_full(count, 0, np.int64), pooled_empty(count, np.intp)
    loops = compiled_loops()
    for of in groups:
        loops.count_rows(read_only(of), rows)
    return rows, present[: loops.present_groups(rows, present)]


def partial(table: pa.Table, keys: Sequence[str], parts: Sequence[Part]) -> pa.Table:
    """The partial table of a batch: keys, then parts. A dictionary-encoded key keeps its dictionary.

    Raises:
        TypeError: if a column cannot be a key, or cannot be added up or compared as a number.
    """
    if len(table) < TINY:
        return combine([ungrouped(table, keys, parts)], keys, parts)
    if len(table) >= _MANY and (found := _regroup([ungrouped(table, keys, parts)], keys, parts)) is not None:
        return pa.Table.from_arrays(list(found.values()), list(found))
    groups, count, keys_of = _group([whole(table[key]) for key in keys])
    rows, present = _count_rows(groups, count)
    full = len(present) == count
    rows_column = pa.array(rows if full else pooled_take(rows, present))
    of_column: dict[str, _Column] = {}
    columns = []
    for part in parts:
        if part.column is None:
            columns.append(rows_column)
            continue
        of = of_column.get(part.column)
        if of is None:
            of = of_column[part.column] = _Column(whole(table[part.column]), part.column, groups, count)
        filled = None if of.filled is None else (of.filled if full else of.filled[present])
        if part.kind == "values":
            columns.append(rows_column if filled is None else pa.array(filled))
            continue
        if part.kind == "squares":
            result = _squares(of.groups, count, of.to_add())
            columns.append(pa.array(result if full else result[present]))
            continue
        if part.kind == "sketch":
            made = sketches.of_groups(of.groups, count, of.to_add())
            columns.append(pa.array((made if full else made[present]).tolist(), sketches.KIND))
            continue
        result = _reduce(part.kind, of.groups, count, of.to_add() if part.kind == "sum" else of.to_compare())
        if not full:
            result = pooled_take(result, present) if result.dtype.kind != "O" else result[present]
        empty = None if filled is None else filled == 0
        columns.append(_sums(result, of.kind) if part.kind == "sum" else of.compared(result, empty))
    names = [*keys, *(part.name for part in parts)]
    return pa.table([*keys_of(present), *columns], names)


def sum_kind(kind: pa.DataType, name: str) -> pa.DataType:
    """The type of sums of a column `name` of type `kind`.

    Raises:
        TypeError: if it cannot be added up.
    """
    if pa.types.is_decimal(kind):
        return pa.decimal128(38, kind.scale)
    if pa.types.is_null(kind):
        return kind
    if not is_number(kind):
        raise TypeError(
            f"column {name!r} of type {kind} cannot be added up: agg.sum and agg.mean take numbers and decimals"
        )
    return pa.float64() if pa.types.is_floating(kind) else pa.int64()


def squared_kind(kind: pa.DataType, name: str) -> pa.DataType:
    """The type of the variance of a column `name` of type `kind`.

    Raises:
        TypeError: if it has none.
    """
    types = pa.types
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind)):
        raise TypeError(f"column {name!r} of type {kind} has no variance: agg.var and agg.std take numbers; cast it")
    return pa.float64()


def compared_kind(kind: pa.DataType, name: str) -> pa.DataType:
    """The type of the least and the greatest value of a column `name` of type `kind`.

    Raises:
        TypeError: if there is no such thing.
    """
    if is_number(kind) or pa.types.is_null(kind):
        return kind
    compared = comparable_type(kind.value_type if pa.types.is_dictionary(kind) else kind)
    if compared is None:
        raise TypeError(
            f"column {name!r} of type {kind} cannot be compared: agg.min, max, first and last take numbers, decimals, "
            "text, bytes, dates and times"
        )
    return compared


class _Column:
    """The values of a column in groups: `filled` is how many each group has (None: as many as rows)."""

    def __init__(self, column: pa.Array, name: str, groups: Ids, count: int) -> None:
        self.kind = column.type
        self._name = name
        self._column, valid = _present(column)
        self.groups = groups if valid is None else groups[valid]
        self.filled = None if valid is None else np.bincount(self.groups, minlength=count)
        self._numbers: Numbers | None = None
        self._places: Numbers | None = None
        self._ranked: pa.Array | None = None

    def to_add(self) -> Numbers:
        """The values as numbers that can be added up.

        Raises:
            TypeError: if they cannot.
        """
        sum_kind(self.kind, self._name)
        return self._as_numbers()

    def to_compare(self) -> Numbers:
        """Numbers in the order of the values: for text, bytes and decimals their places among all, sorted.

        Raises:
            TypeError: if they have no order.
        """
        compared_kind(self.kind, self._name)
        if is_number(self.kind) or pa.types.is_null(self.kind):
            return self._as_numbers()
        if self._places is None:
            self._places, self._ranked = comparable(self._column)
        return self._places

    def _as_numbers(self) -> Numbers:
        if self._numbers is None:
            self._numbers = _plain(self._column)
        return self._numbers

    def compared(self, chosen: Numbers, empty: npt.NDArray[np.bool_] | None) -> pa.Array:
        """A column of the values that stand behind such numbers, null where `empty`."""
        if self._ranked is None:
            return column_of(chosen, self.kind, empty)
        return self._ranked.take(pa.array(chosen if empty is None else np.where(empty, 0, chosen), mask=empty))


def _sums(sums: Numbers, kind: pa.DataType) -> pa.Array:
    """Sums of values of type `kind` as a column."""
    if pa.types.is_null(kind):
        return pa.nulls(len(sums))
    if sums.dtype.kind != "O":
        return pa.array(sums)
    return column_of(sums, pa.decimal128(38, kind.scale) if pa.types.is_decimal(kind) else EXACT)


@dataclass(frozen=True, slots=True)
class Added:
    """Rows that are to be added up, grouped by key already or not: of each part its type, values, and who has one."""

    keys: list[pa.Array]
    kinds: list[pa.DataType]
    values: list[Numbers]
    """Of the rows that have one: see `valid`."""
    valid: list[npt.NDArray[np.bool_] | None]
    """A mask of the rows that have a value; None if all have."""

    def __len__(self) -> int:
        return len(self.keys[0])


Values: TypeAlias = tuple[pa.DataType, Numbers, npt.NDArray[np.bool_] | None]
"""The type of a part, its values, and the mask of those rows that have one: see `Added`."""


def without(part: Part, kind: pa.DataType, rows: int) -> Values:
    """A part of rows without any value of its column, which do not count themselves."""
    if part.kind in ("rows", "values"):
        return kind, np.zeros(rows, np.int64), None
    return kind, np.zeros(0, _dtype(kind)), np.zeros(rows, np.bool_)


def grouped(table: pa.Table, keys: Sequence[str], parts: Sequence[Part]) -> Added:
    """The rows of a partial table."""
    columns = [whole(table[part.name]) for part in parts]
    found = [_present(column) for column in columns]
    return Added(
        [whole(table[key]) for key in keys],
        [column.type for column in columns],
        [_plain(column) for column, _ in found],
        [valid for _, valid in found],
    )


class RowReader:
    """Reads the rows of tables or frames of one schema, each a group of its own: for a few rows that costs much less than their
    partial table.

    Raises:
        TypeError: as `partial` does.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], parts: Sequence[Part]) -> None:
        self._keys = list(keys)
        self._parts = [(part.kind, part.column) for part in parts]
        self._columns = list(dict.fromkeys(part.column for part in parts if part.column is not None))
        self._kinds = [_kind_of(part, schema) for part in parts]
        self._as_it_is = {name: schema.field(name).type.id in PLAIN for name in self._columns}

    def read(self, batch: Columns) -> Added:
        """The rows of such a table or frame."""
        ones = _ones(len(batch))
        at = batch.get_column if isinstance(batch, pl.DataFrame) else batch.column
        masks: dict[str, npt.NDArray[np.bool_] | None] = {}
        plain: dict[str, Numbers] = {}
        for name in self._columns:
            column = at(name)
            if self._as_it_is[name] and isinstance(column, pl.Series) and not column.null_count():
                plain[name], masks[name] = column.to_numpy(), None  # Arrow is a detour
                continue
            present, masks[name] = _present(_array(column))
            plain[name] = _plain(present)
        values: list[Numbers] = []
        valid: list[npt.NDArray[np.bool_] | None] = []
        for kind, of in self._parts:
            mask = None if of is None else masks[of]
            if of is None or kind == "values":
                values.append(ones if mask is None else mask.astype(np.int64))
                valid.append(None)
            elif kind == "sketch":
                values.append(sketches.of_rows(plain[of]))
                valid.append(mask)
            else:
                values.append(np.zeros(len(plain[of])) if kind == "squares" else plain[of])
                valid.append(mask)
        return Added([_array(at(key)) for key in self._keys], self._kinds, values, valid)


def _array(column: pa.ChunkedArray | pl.Series) -> pa.Array:
    return whole(column.to_arrow() if isinstance(column, pl.Series) else column)


class RowReaders:
    """Readers of rows: one for the tables of a schema, kept while they have it."""

    def __init__(self, keys: Sequence[str], parts: Sequence[Part]) -> None:
        self._keys = keys
        self._parts = parts
        self._last: Columns | None = None
        self._schema: Any = None
        self._reader: RowReader | None = None

    def of(self, batch: Columns) -> RowReader:
        """The reader of batches with the columns of this one.

        Raises:
            TypeError: as `partial` does.
        """
        if self._reader is None or batch is not self._last:
            schema = batch.schema if isinstance(batch, pa.Table) else batch.dtypes
            if self._reader is None or schema != self._schema:
                self._reader = RowReader(as_arrow(batch[:0]).schema, self._keys, self._parts)
                self._schema = schema
            self._last = batch
        return self._reader


_ONES = np.ones(TINY, np.int64)
_ONES.flags.writeable = False


def _ones(count: int) -> Numbers:
    """Ones, `count` of them, that must not be written to: of many only one is in memory."""
    return _ONES[:count] if count <= TINY else np.ndarray(count, np.int64, _ONES, 0, (0,))


def _are_ones(values: Numbers) -> bool:
    """True for what `_ones` gives of many."""
    return values.strides == (0,)


def _kind_of(part: Part, schema: pa.Schema) -> pa.DataType:
    """The type of a column of such parts of a column in `schema`."""
    if part.column is None or part.kind in ("values", "distinct"):
        return pa.int64()
    if part.kind == "sketch":
        return sketches.KIND
    kind = whole_type(schema.field(part.column).type)
    if part.kind == "squares":
        return squared_kind(kind, part.column)
    return sum_kind(kind, part.column) if part.kind == "sum" else compared_kind(kind, part.column)


def ungrouped(table: pa.Table, keys: Sequence[str], parts: Sequence[Part]) -> Added:
    """The rows of a batch, each a group of its own.

    Raises:
        TypeError: as `partial` does.
    """
    return RowReader(table.schema, keys, parts).read(table)


def table_of(added: Added, keys: Sequence[str], parts: Sequence[Part]) -> pa.Table:
    """Ungrouped rows as a partial table, in which keys may come again."""
    columns = [*added.keys]
    for kind, values, valid in zip(added.kinds, added.values, added.valid, strict=True):
        if valid is not None:  # places without a value get any
            filled = np.zeros(len(valid), values.dtype)
            filled[valid] = values
            values = filled
        columns.append(column_of(values, kind, None if valid is None else ~valid))
    return pa.Table.from_arrays(columns, [*keys, *(part.name for part in parts)])


def _present(column: pa.Array) -> tuple[pa.Array, npt.NDArray[np.bool_] | None]:
    """The values of a column that are not null, and a mask of them; None if all are."""
    if not column.null_count:
        return column, None
    return column.drop_null(), column.is_valid().to_numpy(zero_copy_only=False)


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
    if len(columns[0]) >= TINY and all(is_number(column.type) and not column.null_count for column in columns):
        return _group_numbers(columns)
    index = KeyIndex(len(columns), expected=len(columns[0]) // 4)
    return index.ids(columns), len(index), lambda ids: index.keys(ids)


def _group_numbers(columns: list[pa.Array]) -> tuple[Ids, int, Keys]:
    """The same of columns of numbers: the groups of the first ones, and the values of the next, make those of both.

    Groups have gaps as long as there are not many more of them than rows.
    """
    rows = len(columns[0])
    groups, count = _codes(columns[0], rows)
    for column in columns[1:]:
        codes, width = _codes(column, rows)
        groups, count = groups * width + codes, count * width
        if count >= _SPARSE * rows:
            table = IntTable(rows // 4)
            groups = table.ids(groups)
            count = len(table)
    row = np.zeros(count, np.intp)
    row[groups[::-1]] = np.arange(rows - 1, -1, -1)  # the first one of each
    return groups, count, lambda ids: [_taken_of(column, row[ids]) for column in columns]


def _codes(column: pa.Array, rows: int) -> tuple[Ids, int]:
    """A number for each value, and below which these are."""
    values = bits(numbers(column))
    low, high = int(values.min()), int(values.max())
    if high - low < _SPARSE * rows:
        return values - low, high - low + 1
    table = IntTable(rows // 4)
    return table.ids(values), len(table)


def _taken_of(column: pa.Array, rows: Ids) -> pa.Array:
    return column_of(numbers(column)[rows], column.type)


def group_numbers(columns: list[pa.Array]) -> Ids:
    """A number for each row, the same for equal keys."""
    return _group(columns)[0]


def _encoded(ids: Ids, dictionary: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(ids.astype(np.int32)), dictionary, safe=False)


class Result(NamedTuple):
    """A result that is a part as it is, or divided by the number of values."""

    name: str
    part: int
    """Its number."""
    by: int | None = None
    """The number of the part by which it is divided."""


class Totals:
    """Parts added up over any number of partial tables: an index of keys, and a dense array a part."""

    def __init__(self, keys: Sequence[str], parts: Sequence[Part], expected: int = 0) -> None:
        self.keys = list(keys)
        self.parts = list(parts)
        self.index = KeyIndex(len(keys), expected)
        self._expected = expected
        self._arrays: list[Numbers] = []
        self._begun = 0
        """Of so many keys the arrays hold parts; what is behind them means nothing."""
        self._kinds: list[pa.DataType] = []
        self._reach: list[int] = [0] * len(self.parts)
        """Of integer sums: none is further from zero."""
        self._names = [part.name for part in self.parts]
        counts = {part.column: i for i, part in enumerate(self.parts) if part.kind == "values"}
        self._counts = [counts[part.column] if part.kind in ("min", "max") else None for part in self.parts]
        """Of a minimum or maximum: which of the parts is the number of values."""
        self._squares = [i for i, part in enumerate(self.parts) if part.kind == "squares"]

    def __len__(self) -> int:
        return len(self.index)

    def ids(self, keys: list[pa.Array], kinds: list[pa.DataType]) -> Ids:
        """The id of each row's key; new keys start from nothing. `kinds` of the parts that are to be added or put."""
        ids = self.index.ids(keys)
        if not self._arrays:
            self._kinds = kinds
            self._arrays = [np.zeros(0, _dtype(kind)) for kind in kinds]
            self._reach = [0] * len(kinds)
        elif kinds != self._kinds:
            self._widen(kinds)
        count = len(self.index)
        if count > len(self._arrays[0]):
            size = max(64, 2 * count, self._expected)
            for i, array in enumerate(self._arrays):
                larger = np.empty(size, array.dtype)  # which takes memory only from where it is written
                larger[: self._begun] = array[: self._begun]
                self._arrays[i] = larger
        if count > self._begun:
            for part, array in zip(self.parts, self._arrays, strict=True):
                array[self._begun : count] = _identity(part.kind, array.dtype)
            self._begun = count
        return ids

    def _widen(self, kinds: list[pa.DataType]) -> None:
        """Integers meet floats: go on in floats. Nulls meet anything. What else changes is an error."""
        for i, (old, new) in enumerate(zip(self._kinds, kinds, strict=True)):
            if old.equals(new):
                continue
            part = self.parts[i]
            if pa.types.is_null(new):
                continue
            if pa.types.is_null(old):
                dtype = np.dtype(_dtype(new))
                self._arrays[i] = np.full(len(self._arrays[i]), _identity(part.kind, dtype), dtype)
                self._kinds[i] = new
                continue
            if not all(pa.types.is_integer(k) or pa.types.is_floating(k) or k.equals(EXACT) for k in (old, new)):
                raise TypeError(f"column {part.column!r} was of type {old} and is now {new}; cast it to one type")
            if pa.types.is_floating(old) or pa.types.is_floating(new):
                self._to_floats(i)
            elif EXACT in (old, new):
                self._to_objects(i)
            else:
                self._kinds[i] = pa.int64()

    def _to_floats(self, i: int) -> None:
        array = self._arrays[i]
        if array.dtype.kind != "f":
            floats = array.astype(np.float64)
            if self.parts[i].kind in ("min", "max"):
                floats[array == _identity(self.parts[i].kind, array.dtype)] = np.nan
            self._arrays[i] = floats
        self._kinds[i] = pa.float64()

    def _to_objects(self, i: int) -> None:
        self._arrays[i] = self._arrays[i].astype(object, copy=False)
        self._kinds[i] = EXACT

    def add(self, ids: Ids, added: Added, unique: bool) -> None:
        """Add rows that have `ids`; `unique` if none occurs twice."""
        for i in self._squares:
            self._add_squares(i, ids, added)
        for i, (part, values, valid) in enumerate(zip(self.parts, added.values, added.valid, strict=True)):
            if part.kind == "squares":
                continue
            of = ids if valid is None else ids[valid]
            if part.kind == "sketch":
                _merge(self._arrays[i], of, values)
                continue
            if part.kind == "sum" and self._arrays[i].dtype.kind == "i":
                self._make_room(i, values, 1 if unique else len(values))
            array = self._arrays[i]
            if array.dtype.kind == "O" and part.kind in ("min", "max"):
                _improve(array, of, values, part.kind)
                continue
            ufunc = _ufunc(part.kind, array.dtype)
            if unique:
                array[of] = ufunc(array[of], values.astype(array.dtype, copy=False))
            else:
                ufunc.at(array, of, values.astype(array.dtype, copy=False))

    def _add_squares(self, i: int, ids: Ids, added: Added) -> None:
        """Add squares of distances from means, which move: before the numbers and sums that the means are made of.

        What the parts have of each other is their numbers times the squares of the distances of their means (Chan, Golub and
        LeVeque, *Updating Formulae*, 1979).
        """
        column = self.parts[i].column
        n_at, sum_at = self.parts.index(Part("values", column)), self.parts.index(Part("sum", column))
        some = added.values[n_at] > 0
        if (valid := added.valid[i]) is not None:
            some &= valid
        chosen = some if valid is None else some[valid]
        touched, at = np.unique(ids[some], return_inverse=True)
        numbers, sums = added.values[n_at][some].astype(np.float64), added.values[sum_at][chosen].astype(np.float64)
        there, of = self._arrays[n_at][touched].astype(np.float64), self._arrays[sum_at][touched].astype(np.float64)
        count = len(touched)
        means = (of + np.bincount(at, sums, count)) / (there + np.bincount(at, numbers, count))
        far = added.values[i][chosen] + numbers * (sums / numbers - means[at]) ** 2
        moved = there * (of / np.maximum(there, 1) - means) ** 2
        self._arrays[i][touched] += np.bincount(at, far, count) + moved

    def _make_room(self, i: int, values: Numbers, times: int) -> None:
        """Go on in Python's integers where `values`, of which so many may come to one key, could leave 64 bits."""
        further = _reach(values) * times
        if self._reach[i] + further >= _LIMIT:
            self._reach[i] = _reach(self._arrays[i][: len(self)])
            if self._reach[i] + further >= _LIMIT:
                self._to_objects(i)
        self._reach[i] += further

    def gather(self, ids: Ids) -> list[Numbers]:
        """The parts of `ids`, as copies."""
        return [array[ids] for array in self._arrays]

    def put(self, ids: Ids, values: Sequence[Numbers]) -> None:
        """Set the parts of `ids`."""
        for i, (array, new) in enumerate(zip(self._arrays, values, strict=True)):
            array[ids] = new
            self._reached(i, new)

    def _reached(self, i: int, values: Numbers) -> None:
        """Note that part `i` of some keys is now `values`."""
        if self.parts[i].kind == "sum" and values.dtype.kind == "i":
            self._reach[i] = max(self._reach[i], _reach(values))

    def clear(self, ids: Ids) -> None:
        """Give `ids` the parts of a key that has had no row."""
        for part, array in zip(self.parts, self._arrays, strict=True):
            array[ids] = _identity(part.kind, array.dtype)

    def of(self, part: Part) -> Numbers:
        """A part of all keys, by id. Valid until the next row is added."""
        return self._arrays[self.parts.index(part)][: len(self)] if self._arrays else np.zeros(0, np.int64)

    def put_table(self, ids: Ids, table: pa.Table) -> None:
        """Set the parts of `ids`, all different, to those of the partial `table`."""
        first, count = (int(ids[0]), len(ids)) if len(ids) else (0, 0)
        rising = count > 0 and int(ids[-1]) == first + count - 1 and bool((np.diff(ids) == 1).all())
        where: Ids | slice = slice(first, first + count) if rising else ids
        for i, (part, array) in enumerate(zip(self.parts, self._arrays, strict=True)):
            column = whole(table[part.name])
            if column.null_count:  # a group that had no values
                array[where] = _identity(part.kind, array.dtype)
                array[ids[column.is_valid().to_numpy(zero_copy_only=False)]] = _plain(column.drop_null())
                continue
            values = _plain(column)
            array[where] = values
            self._reached(i, values)

    def truncate(self, count: int) -> None:
        """Forget all but the first `count` keys."""
        self._begun = min(self._begun, count)
        self.index.truncate(count)

    def table(self, ids: Ids, values: Sequence[Numbers] | None = None) -> pa.Table:
        """The partial table of `ids`, with their parts now or the given ones."""
        columns = self.columns(ids, self.gather(ids) if values is None else values)
        return pa.Table.from_arrays(list(columns.values()), list(columns))

    def columns(
        self, ids: Ids | None, values: Sequence[Numbers], only: Collection[Part] | None = None
    ) -> dict[str, pa.Array]:
        """The columns of the partial table of `ids` (None: of all keys), whose parts have these values; `only`: of the parts,
        those."""
        result = dict(zip(self.keys, self.index.keys(ids), strict=True))
        for part, name, count, kind, array in zip(
            self.parts, self._names, self._counts, self._kinds, values, strict=True
        ):
            if only is None or part in only:
                result[name] = column_of(array, kind, None if count is None else values[count] == 0)
        return result

    def frame(self, ids: Ids, values: Sequence[Numbers], named: Sequence[Result]) -> pl.DataFrame | None:
        """The keys `ids`, and results that are made of their parts, which have these values, as a frame.

        For a few rows that costs much less than Arrow. None if there is more to it than 64-bit numbers and little text.
        """
        if any(self._kinds[result.part].id not in PLAIN for result in named):
            return None
        columns = self.index.series(self.keys, ids)
        if columns is None:
            return None
        for name, i, by in named:
            found, count = values[i], self._counts[i]
            if by is not None:
                count = by
                found = found.astype(np.float64) / np.maximum(values[by], 1)
            column = series_of(name, found)
            if count is not None and not values[count].all():
                column = column.set(series_of("", values[count] == 0), None)
            columns.append(column)
        return frame_of(columns)

    def nbytes(self) -> int:
        """Bytes held, roughly."""
        arrays = zip(self.parts, self._arrays, strict=bool(self._arrays))
        sketched = sum(sketches.size_of(array[: len(self)]) for part, array in arrays if part.kind == "sketch")
        return self.index.nbytes() + sum(array.nbytes for array in self._arrays) + sketched


def _plain(column: pa.Array) -> Numbers:
    """The values of a column without nulls, as numbers or as objects in their own order."""
    if is_number(column.type):
        return numbers(column)
    return np.zeros(0, np.int64) if pa.types.is_null(column.type) else objects(column)


def _dtype(kind: pa.DataType) -> npt.DTypeLike:
    if pa.types.is_floating(kind):
        return np.float64
    return np.int64 if is_number(kind) or pa.types.is_null(kind) else object


def _merge(held: Numbers, ids: Ids, values: Numbers) -> None:
    """Add sketches to those that `held` has for `ids`."""
    touched, at = np.unique(ids, return_inverse=True)
    groups = np.concatenate([np.arange(len(touched)), at])
    held[touched] = sketches.merged(groups, len(touched), np.concatenate([held[touched], values]))


def _improve(held: Numbers, ids: Ids, values: Numbers, kind: Kind) -> None:
    """Lower or raise what `held` has for `ids` to `values`, which have an order but are no numbers."""
    for at, value in zip(ids.tolist(), values, strict=True):
        before = held[at]
        if before is None or (value < before if kind == "min" else value > before):
            held[at] = value


def union(many: Sequence[Ids], count: int) -> Ids:
    """The distinct ids, all below `count`, in order."""
    if sum(map(len, many)) * 16 < count:
        return distinct(np.concatenate(many))
    seen = np.zeros(count, np.bool_)
    for ids in many:
        seen[ids] = True
    return seen.nonzero()[0]


def combine(many: Sequence[Added], keys: Sequence[str], parts: Sequence[Part]) -> pa.Table:
    """One partial table, each key once, for several."""
    columns = combined(many, keys, parts)
    return pa.Table.from_arrays(list(columns.values()), list(columns))


def combined(
    many: Sequence[Added], keys: Sequence[str], parts: Sequence[Part], only: Collection[Part] | None = None
) -> dict[str, pa.Array]:
    """The columns of that table by name; `only`: of the parts, at least those."""
    regrouped = _regroup(many, keys, parts) if sum(map(len, many)) >= _MANY else None
    if regrouped is not None:
        return regrouped
    totals = Totals(keys, parts, expected=max(map(len, many), default=0))
    for added in many:
        totals.add(totals.ids(added.keys, added.kinds), added, unique=False)
    return totals.columns(None, [array[: len(totals)].copy() for array in totals._arrays], only)


def _regroup(many: Sequence[Added], keys: Sequence[str], parts: Sequence[Part]) -> dict[str, pa.Array] | None:
    """The same for many rows with one integer key and no nulls, without an index; None where that does not apply."""
    many = [added for added in many if len(added)]
    first = many[0]
    if len(keys) > 1 or not pa.types.is_integer(first.keys[0].type) or any(part.kind == "squares" for part in parts):
        return None
    for added in many:
        alike = added.keys[0].type.equals(first.keys[0].type) and added.kinds == first.kinds
        full = not added.keys[0].null_count and all(valid is None for valid in added.valid)
        if not alike or not full or not all(map(is_number, added.kinds)):
            return None
    with scratch() as room:
        groups, values, rows = _group_integers([numbers(added.keys[0]) for added in many], room)
        columns = {keys[0]: column_of(values, first.keys[0].type)}
        counted: pa.Array | None = None
        for i, part in enumerate(parts):
            given = [added.values[i] for added in many]
            if all(map(_are_ones, given)):
                if counted is None:
                    counted = column_of(rows, pa.int64())
                columns[part.name] = counted
                continue
            kind: Kind = "sum" if part.kind in _ADDS else part.kind
            result = _reduce_all(kind, groups, len(rows), given)
            if result.dtype.kind == "O":
                columns[part.name] = _sums(result, pa.int64())
            else:
                columns[part.name] = column_of(result, first.kinds[i])
    return columns


def _group_integers(pieces: list[Numbers], room: Scratch) -> tuple[list[Ids], Numbers, Numbers]:
    """A group number for each value, maybe in `room`, and the value and the number of rows of each group.

    Integers in a narrow range are numbered in their order: so equal input gives equal output.
    """
    low, high = min(int(piece.min()) for piece in pieces), max(int(piece.max()) for piece in pieces)
    total, loops = sum(map(len, pieces)), compiled_loops()
    if high - low >= _SPARSE * total:
        table = IntTable(total // 4)
        found = [table.ids(piece) for piece in pieces]
        return found, table.values(), _count_all(found, len(table))[0]
    # One of several workers has few of the values of a range: numbered, what is added up lies close together.
    places = room.room("places", high - low + 1, np.int32)
    places.fill(0)
    for piece in pieces:
        loops.count_values(read_only(piece), low, places)
    present = room.room("present", len(places) + 1, np.int64)
    rows = pooled_empty(min(len(places), total) + 1, np.int64)
    count = loops.number_values(places, present, rows)
    given, groups = room.room("groups", total, np.intp), []
    for piece in pieces:
        groups.append(given[: len(piece)])
        given = given[len(piece) :]
        loops.numbers_of_values(read_only(piece), low, places, groups[-1])
    return groups, np.add(present[:count], low, out=pooled_empty(count, np.int64)), rows[:count]
