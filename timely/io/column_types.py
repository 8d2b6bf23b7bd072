"""Column types as written by users: Arrow, Polars or Python types in any schema."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa

from timely.data.batch import check_for_polars
from timely.errors import GraphError, at_line, shown

Schema: TypeAlias = pa.Schema | pl.Schema | Mapping[str, Any]
"""Column types by name: `pa.int64()`, `pl.Int64` or `int`."""


def arrow_types(schema: Schema, what: str = "schema") -> dict[str, pa.DataType]:
    """Column types as Arrow types.

    Text is `string`, whatever Polars would make of it.

    >>> arrow_types({"a": pl.Int32, "b": str, "c": pa.float64()})
    {'a': DataType(int32), 'b': DataType(string), 'c': DataType(double)}

    Raises:
        GraphError: with the user's line, for what is no schema, or a type that none of the three knows.
    """
    return {name: _arrow(name, kind, what) for name, kind in _items(schema, what)}


def polars_types(schema: Schema, what: str = "schema") -> dict[str, Any]:
    """Column types as Polars types.

    Raises:
        GraphError: as `arrow_types`.
    """
    return {name: _polars(name, kind, what) for name, kind in _items(schema, what)}


def polars_schema(schema: pa.Schema) -> pl.Schema | None:
    """Polars schema of an Arrow table; None if Polars lacks a type."""
    try:
        check_for_polars(schema)
        # Not `empty_table()`: Arrow loads all of pandas before it makes an array of Python's values, also of none.
        frame = pl.from_arrow(pa.Table.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema))
    except (TypeError, ValueError, pa.ArrowException, pl.exceptions.PolarsError):
        return None
    return frame.schema if isinstance(frame, pl.DataFrame) else None


@cache
def arrow_form(kind: pl.DataType) -> pa.DataType | None:
    """Arrow type of a Polars column; None if there is none (Int128, Object)."""
    if kind == pl.Object:  # of which Polars gives the addresses
        return None
    try:
        return pl.DataFrame(schema={"column": kind}).to_arrow().schema.field(0).type
    except pa.ArrowException:
        return None


def _items(schema: Any, what: str) -> list[tuple[str, Any]]:
    if isinstance(schema, pa.Schema):
        return list(zip(schema.names, schema.types, strict=True))
    if isinstance(schema, Mapping) and all(isinstance(name, str) for name in schema):
        return list(schema.items())
    raise GraphError(
        at_line(
            f'{what}={shown(schema)}: give types by name, as in {{"amount": int, "at": pl.Datetime}}, or an Arrow schema'
        )
    )


def _polars(name: str, kind: Any, what: str) -> Any:
    try:
        if isinstance(kind, pa.DataType):
            made = pl.from_arrow(pa.nulls(0, kind))
            return made.dtype if isinstance(made, pl.Series) else None
        found = pl.Series([], dtype=kind).dtype
    except Exception:  # each library has exceptions of its own for what it does not know
        raise _unknown(name, kind, what) from None
    if kind is None or found == pl.Object:
        raise _unknown(name, kind, what)
    return found


def _arrow(name: str, kind: Any, what: str) -> pa.DataType:
    if isinstance(kind, pa.DataType):
        return kind
    found = arrow_form(_polars(name, kind, what))
    if found is None:
        raise GraphError(
            at_line(
                f"{what}: {shown(kind)} of the column {name!r} has no Arrow form; take pl.Int64 or pl.Decimal(38, 0)"
            )
        )
    return _plain(found)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Arrow type without the large variants preferred by Polars."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(pa.int32(), _plain(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    return kind


def _unknown(name: str, kind: Any, what: str) -> GraphError:
    return GraphError(
        at_line(
            f"{what}: {shown(kind)} is no type for the column {name!r}; take one of Python's (int, str, ...), Polars' "
            "(pl.Int64) or Arrow's (pa.int64())"
        )
    )
