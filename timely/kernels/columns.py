"""Columns as 64-bit NumPy arrays and back: what the kernels count, add and compare."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from timely.batch import Batch, as_arrow

Numbers = npt.NDArray[Any]
"""An int64 or float64 array."""


def select(batch: Batch, names: list[str]) -> pa.Table:
    """The named columns of a batch as an Arrow table; only they are converted.

    Raises:
        KeyError: if a column is missing; the message lists those that exist.
        TypeError: for records, which have no column names.
    """
    if isinstance(batch, pl.DataFrame | pa.Table):
        have = batch.columns if isinstance(batch, pl.DataFrame) else batch.column_names
        missing = [name for name in names if name not in have]
        if missing:
            raise KeyError(f"no column {missing[0]!r}; this batch has {', '.join(map(repr, have))}")
        return as_arrow(batch.select(names))
    return as_arrow(batch)


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array. Chunks with dictionaries of their own come to share one."""
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            return column.chunk(0)
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            return column.chunk(0) if column.num_chunks else pa.array([], column.type)
    return column


def is_text(kind: pa.DataType) -> bool:
    """Whether `kind` is one of Arrow's string types, or a dictionary of one."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether `numbers` takes a column of this type."""
    types = pa.types
    return bool(
        types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_temporal(kind)
    ) and not types.is_interval(kind)


def numbers(column: pa.Array) -> Numbers:
    """Integers, truth values and temporal values as int64, floats as float64. The column must have no nulls.

    Raises:
        TypeError: for any other type.
    """
    kind = column.type
    types = pa.types
    if not is_number(kind):
        raise TypeError(f"a column of type {kind} is not numeric")
    if types.is_floating(kind):
        floats: Numbers = column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        return floats
    if types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif types.is_uint64(kind):
        column = column.cast(pa.int64())  # Refuses what is too large instead of wrapping it round.
    integers: Numbers = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return integers


def column_of(values: Numbers, kind: pa.DataType, empty: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """The inverse of `numbers`: a column of type `kind`, null where `empty`."""
    types = pa.types
    if empty is not None and not empty.any():
        empty = None
    if empty is not None:
        values = np.where(empty, 0, values)
    if types.is_floating(kind):
        return pa.array(values, mask=empty).cast(kind) if kind.bit_width != 64 else pa.array(values, mask=empty)
    plain = pa.array(values.astype(np.int64, copy=False), mask=empty)
    if types.is_int64(kind):
        return plain
    if types.is_temporal(kind):
        return plain.view(kind) if kind.bit_width == 64 else plain.cast(pa.int32()).view(kind)
    return plain.cast(kind)


def pooled_empty(count: int, dtype: npt.DTypeLike) -> Numbers:
    """An array in Arrow's memory pool, which keeps freed memory at hand.

    Fresh memory from the system costs a page fault every 4 KiB: for 100,000 groups that is more than adding them up.
    """
    dtype = np.dtype(dtype)
    return np.frombuffer(pa.allocate_buffer(count * dtype.itemsize), dtype)


def pooled_full(count: int, value: Any, dtype: npt.DTypeLike) -> Numbers:
    """The same, filled with `value`."""
    array = pooled_empty(count, dtype)
    array.fill(value)
    return array


def pooled_take(array: Numbers, ids: npt.NDArray[np.intp]) -> Numbers:
    """`array[ids]` in Arrow's memory pool; ids must be valid."""
    return np.take(array, ids, out=pooled_empty(len(ids), array.dtype), mode="clip")
