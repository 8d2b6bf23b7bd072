"""Input rows of aggregations: keys and values per part, from batches or partials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from libraries.columns.kernels import sketches
from libraries.columns.kernels.parts import Part, dtype_of, kind_of
from timely.data.batch import Columns, as_array, as_arrow
from timely.data.kernels.columns import (
    PLAIN,
    TINY,
    BeyondSigned,
    Numbers,
    column_of,
    in_their_order,
    is_number,
    numbers,
    objects,
    to_add,
    whole,
)
from timely.data.sums.terms import is_terms, squares, terms_of


@dataclass(frozen=True, slots=True)
class Added:
    """Input rows of an aggregation: keys; per part type, values and validity."""

    keys: list[pa.Array]
    kinds: list[pa.DataType]
    values: list[Numbers]
    """Values of each part, for valid rows only: see `valid`."""
    valid: list[npt.NDArray[np.bool_] | None]
    """Validity mask of each part; None if all rows have a value."""

    def __len__(self) -> int:
        return len(self.keys[0])


Values: TypeAlias = tuple[pa.DataType, Numbers, npt.NDArray[np.bool_] | None]
"""Type, values and validity mask of one part: see `Added`."""


def without(part: Part, kind: pa.DataType, rows: int) -> Values:
    """Part for rows without its column: zero counts, or no values."""
    if part.kind in ("rows", "values"):
        return kind, np.zeros(rows, np.int64), None
    return kind, np.zeros(0, dtype_of(kind)), np.zeros(rows, np.bool_)


def grouped(table: pa.Table, keys: Sequence[str], parts: Sequence[Part]) -> Added:
    """Rows of a partial table, each already one group."""
    columns = [whole(table[part.name]) for part in parts]
    found = [present_values(column) for column in columns]
    return Added(
        [whole(table[key]) for key in keys],
        [column.type for column in columns],
        [plain_values(column) for column, _ in found],
        [valid for _, valid in found],
    )


class RowReader:
    """Reader of batches of one schema as ungrouped aggregation input.

    For a few rows that costs much less than their partial table.

    Raises:
        TypeError: as `partial` does.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str], parts: Sequence[Part]) -> None:
        self._keys = list(keys)
        self._parts = [(part.kind, part.column) for part in parts]
        self._columns = list(dict.fromkeys(part.column for part in parts if part.column is not None))
        self._kinds = [kind_of(part, schema) for part in parts]
        self._as_it_is = {name: schema.field(name).type.id in PLAIN for name in self._columns}
        self._unsigned = {name for name in self._columns if pa.types.is_uint64(schema.field(name).type)}

    def read(self, batch: Columns) -> Added:
        """Read the rows of a table or frame."""
        ones = _ones(len(batch))
        at = batch.get_column if isinstance(batch, pl.DataFrame) else batch.column
        masks: dict[str, npt.NDArray[np.bool_] | None] = {}
        plain: dict[str, Numbers] = {}
        for name in self._columns:
            column = at(name)
            if self._as_it_is[name] and isinstance(column, pl.Series) and not column.null_count():
                plain[name], masks[name] = column.to_numpy(), None  # Arrow is a detour
                continue
            present, masks[name] = present_values(_array(column))
            plain[name] = plain_values(present)
        values: list[Numbers] = []
        valid: list[npt.NDArray[np.bool_] | None] = []
        for kind, of in self._parts:
            mask = None if of is None else masks[of]
            if of is None or kind == "values":
                values.append(ones if mask is None else mask.astype(np.int64))
                valid.append(None)
            else:
                given = plain[of]
                if of in self._unsigned and kind not in ("min", "max"):
                    try:
                        given = to_add(given)
                    except BeyondSigned as error:
                        row = error.row if mask is None else int(np.flatnonzero(mask)[error.row])
                        raise error.of(of, _key_at(row, {key: _array(at(key)) for key in self._keys})) from None
                if kind == "sketch":
                    given = sketches.of_rows(given)
                values.append(squares(given) if kind == "squares" else given)
                valid.append(mask)
        return Added([_array(at(key)) for key in self._keys], self._kinds, values, valid)


def _key_at(row: int, keys: Mapping[str, pa.Array]) -> str:
    """Key of a row as text for errors; empty for totals over all rows."""
    named = ", ".join(f"{name}={column[row].as_py()!r}" for name, column in keys.items() if not name.endswith("()"))
    return f" for {named}" if named else ""


def _array(column: pa.ChunkedArray | pl.Series) -> pa.Array:
    return whole(as_array(column) if isinstance(column, pl.Series) else column)


class RowReaders:
    """Cache of the row reader for the current schema."""

    def __init__(self, keys: Sequence[str], parts: Sequence[Part]) -> None:
        self._keys = keys
        self._parts = parts
        self._last: Columns | None = None
        self._schema: Any = None
        self._reader: RowReader | None = None

    def of(self, batch: Columns) -> RowReader:
        """Row reader for the columns of this batch.

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
    """Read-only array of `count` ones; a large one is a view of a single element."""
    return _ONES[:count] if count <= TINY else np.ndarray(count, np.int64, _ONES, 0, (0,))


def are_ones(values: Numbers) -> bool:
    """True for a large array made by `_ones`."""
    return values.strides == (0,)


def ungrouped(table: pa.Table, keys: Sequence[str], parts: Sequence[Part]) -> Added:
    """Rows of a batch as ungrouped aggregation input.

    Raises:
        TypeError: as `partial` does.
    """
    return RowReader(table.schema, keys, parts).read(table)


def table_of(added: Added, keys: Sequence[str], parts: Sequence[Part]) -> pa.Table:
    """Ungrouped rows as a partial table; keys may repeat."""
    columns = [*added.keys]
    for kind, values, valid in zip(added.kinds, added.values, added.valid, strict=True):
        if valid is not None:  # places without a value get any
            filled = np.zeros((len(valid), *values.shape[1:]), values.dtype)
            filled[valid] = values
            values = filled
        columns.append(column_of(values, kind, None if valid is None else ~valid))
    return pa.Table.from_arrays(columns, [*keys, *(part.name for part in parts)])


def present_values(column: pa.Array) -> tuple[pa.Array, npt.NDArray[np.bool_] | None]:
    """Non-null values of a column, and their validity mask (None without nulls)."""
    if not column.null_count:
        return column, None
    return column.drop_null(), column.is_valid().to_numpy(zero_copy_only=False)


def plain_values(column: pa.Array) -> Numbers:
    """Values without nulls as ordered numbers, as sums, or as comparable objects."""
    if is_number(column.type):
        return in_their_order(column)
    if is_terms(column.type):
        return terms_of(column)
    return np.zeros(0, np.int64) if pa.types.is_null(column.type) else objects(column)


def values_to_add(column: pa.Array) -> Numbers:
    """Values without nulls as addable numbers, else as by `plain_values`.

    Raises:
        OverflowError: for unsigned integers beyond those with a sign.
    """
    return numbers(column) if is_number(column.type) else plain_values(column)
