"""Types of Polars and Spark, and SQL literals."""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl
import pyarrow as pa

from libraries.spark.engine.refused import Refused

EPOCH = "epoch()"
"""Name of the epoch column."""

_PLAIN: dict[Any, tuple[str, pa.DataType]] = {
    pl.Boolean: ("boolean", pa.bool_()),
    pl.Int8: ("tinyint", pa.int8()),
    pl.Int16: ("smallint", pa.int16()),
    pl.Int32: ("int", pa.int32()),
    pl.Int64: ("bigint", pa.int64()),
    # Spark has no unsigned integers: they are held by wider ones, and nothing is computed with them.
    pl.UInt8: ("smallint", pa.int16()),
    pl.UInt16: ("int", pa.int32()),
    pl.UInt32: ("bigint", pa.int64()),
    pl.Float32: ("float", pa.float32()),
    pl.Float64: ("double", pa.float64()),
    pl.String: ("string", pa.string()),
    pl.Binary: ("binary", pa.binary()),
    pl.Date: ("date", pa.date32()),
}

INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64)
UNSIGNED = (pl.UInt8, pl.UInt16, pl.UInt32)
FLOATS = (pl.Float32, pl.Float64)
_EPOCH_0 = dt.date(1970, 1, 1)
_MICROSECOND = dt.timedelta(microseconds=1)


def _carried(kind: Any) -> tuple[str, pa.DataType]:
    if isinstance(kind, pl.Datetime) and kind.time_unit != "ns":
        zone = None if kind.time_zone is None else "UTC"
        return ("timestamp_ntz" if zone is None else "timestamp"), pa.timestamp("us", zone)
    if isinstance(kind, pl.Decimal) and kind.precision is not None:
        return f"decimal({kind.precision}, {kind.scale})", pa.decimal128(kind.precision, kind.scale)
    found = _PLAIN.get(kind.base_type())
    if found is None:
        raise Refused(f"type {kind}")
    return found


def spark_type(kind: Any) -> str:
    """Spark's type for the values of a Polars type; Refused if there is none."""
    return _carried(kind)[0]


def arrow_schema(schema: pl.Schema) -> pa.Schema:
    """Arrow types of rows on their way to Spark and back."""
    return pa.schema([(name, _carried(kind)[1]) for name, kind in schema.items()])


def declared(schema: pl.Schema) -> str:
    """Columns in Spark's DDL."""
    return ", ".join(f"{quoted(name)} {spark_type(kind)}" for name, kind in schema.items())


def quoted(name: str) -> str:
    """Quoted column name in SQL.

    >>> quoted("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def listed(*parts: str) -> str:
    """Comma-separated SQL list of the non-empty items."""
    return ", ".join(part for part in parts if part)


def literal(value: Any, kind: Any) -> str:
    """SQL literal for a value of a Polars type.

    >>> literal(3, pl.Int8())
    'cast(3L as tinyint)'

    Raises:
        Refused: if Spark does not have it.
    """
    if value is None:
        return f"cast(null as {spark_type(kind)})"
    match kind.base_type():
        case pl.Boolean:
            return "true" if value else "false"
        case pl.Float64:
            return f"double('{value!r}')"
        case pl.String:
            return text(value)
        case pl.Date:
            return f"date_from_unix_date({(value - _EPOCH_0).days})"
        case pl.Datetime if kind.time_unit != "ns":
            zone = None if value.tzinfo is None else dt.UTC
            return instant(f"{(value - dt.datetime(1970, 1, 1, tzinfo=zone)) // _MICROSECOND}L", kind)
        case base if base in INTEGERS or base in UNSIGNED:
            return f"cast({value}L as {spark_type(kind)})" if abs(value) < 1 << 63 else "(-9223372036854775807L - 1L)"
    raise Refused(f"a literal of type {kind}")


def instant(microseconds: str, kind: Any) -> str:
    """SQL time of type `kind`, from microseconds since 1970."""
    return f"cast(timestamp_micros({microseconds}) as {spark_type(kind)})"


def microseconds(column: str) -> str:
    """SQL for the microseconds of a time since 1970."""
    return f"unix_micros(cast({column} as timestamp))"


def text(value: str) -> str:
    """SQL string literal, safe for any content.

    >>> text("it's")
    "'it\\\\u0027s'"
    """
    return "'" + "".join(map(_character, value)) + "'"


def _character(one: str) -> str:
    if one.isascii() and (one.isalnum() or one in " _-.,:;()[]=<>/+*%&|!?#@^~"):
        return one
    return f"\\u{ord(one):04X}" if ord(one) < 1 << 16 else f"\\U{ord(one):08X}"
