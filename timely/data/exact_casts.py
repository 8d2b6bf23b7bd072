"""Exact Arrow casts: each value is kept, or the cast fails.

Arrow's own safe casts make numbers of text, days of instants and rounded floats of decimals.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa


def cast_exactly(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The same values in another type.

    Raises:
        TypeError: types mean something else, or one of the values would be another one.

    >>> cast_exactly(pa.chunked_array([[1, None]]), pa.float32()).to_pylist()
    [1.0, None]
    """
    if column.type.equals(kind):
        return column
    if not may_become(column.type, kind):
        raise TypeError(f"{column.type} is not {kind}")
    try:
        made = column.cast(kind)
        same = not _may_round(kind) or _equal(made.cast(column.type), column)
    except pa.ArrowException as error:
        raise TypeError(f"a value of {column.type} that {kind} does not hold: {error}") from error
    if not same:
        raise TypeError(f"a value of {column.type} that {kind} does not hold")
    return made


def may_become(kind: pa.DataType, other: pa.DataType) -> bool:
    """True if values of one type are, or may be, values of the other."""
    types = pa.types
    if types.is_dictionary(kind):
        return may_become(kind.value_type, other)
    if types.is_dictionary(other):
        return may_become(kind, other.value_type)
    if kind.equals(other) or types.is_null(kind):
        return True
    if is_list(kind) and is_list(other):
        return may_become(kind.value_type, other.value_type)
    if types.is_struct(kind) and types.is_struct(other):
        names = {field.name for field in kind} == {field.name for field in other}
        return names and all(may_become(kind.field(field.name).type, field.type) for field in other)
    if types.is_timestamp(other):
        if types.is_date(kind):
            return other.tz is None
        return types.is_timestamp(kind) and (kind.tz is None) == (other.tz is None)
    if types.is_decimal(other):
        return bool(types.is_decimal(kind) or types.is_integer(kind))
    if types.is_floating(other):
        return bool(types.is_floating(kind) or types.is_integer(kind))
    same = (types.is_integer, types.is_map, types.is_date, types.is_time, types.is_duration, is_text, is_bytes)
    return any(test(kind) and test(other) for test in same)


def is_text(kind: pa.DataType) -> bool:
    """True for Arrow's types of text, dictionaries not among them."""
    return any((pa.types.is_string(kind), pa.types.is_large_string(kind), pa.types.is_string_view(kind)))


def is_bytes(kind: pa.DataType) -> bool:
    """True for Arrow's types of bytes."""
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(test(kind) for test in tests)


def is_list(kind: pa.DataType) -> bool:
    """True for lists of any length."""
    return any((pa.types.is_list(kind), pa.types.is_large_list(kind)))


def _may_round(kind: pa.DataType) -> bool:
    """True if a cast to `kind` may round without a word."""
    if pa.types.is_nested(kind):
        return any(_may_round(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def _equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """True for equal values; NaN equals NaN."""
    return bool(one.equals(other)) or pl.DataFrame(pa.table({"": one})).equals(pl.DataFrame(pa.table({"": other})))
