"""Exact conversion of records to columns; lossy values and odd fields are errors.

Polars and Arrow look at the first records, or at the types that they are given, and make the others fit: a float loses its
fraction, a field that comes later is left out. Here each column has all its values, and the type that all of them need; where
that is not what they surely are, what was made is compared with what was given.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
from collections.abc import Callable, Mapping, Sequence
from operator import countOf, itemgetter
from typing import Any

import polars as pl
import pyarrow as pa

from timely.data.kernels.series import frame_of, series_of_values
from timely.errors import error_text, shown

_NONE = type(None)


def frame_of_records(records: Sequence[Any], types: Mapping[str, Any] | None = None) -> pl.DataFrame:
    """Dicts, tuples, data classes or single values as a frame.

    `types` gives Polars' types of columns by name.

    Without `types` the fields are those of the first record, and their types what all values need.

    Raises:
        TypeError: names the column and the value that does not fit it, or the record whose fields are others, and says what
            to do.

    >>> frame_of_records([{"n": 1}, {"n": 2.5}]).rows()
    [(1.0,), (2.5,)]
    """
    if not records:
        return pl.DataFrame(schema=types)
    columns = _fields(records, None if types is None else list(types))
    return frame_of([_series(name, values, types and types[name]) for name, values in columns.items()])


def frame_as(frame: pl.DataFrame, types: Mapping[str, Any]) -> pl.DataFrame:
    """`frame` with the columns and types of `types`.

    Raises:
        TypeError: for columns that are not those, and for numbers and times that would become others.

    >>> frame_as(pl.DataFrame({"b": [1.0], "a": ["x"]}), {"a": pl.String, "b": pl.Int64}).rows()
    [('x', 1)]
    """
    if set(frame.columns) != set(types):
        raise TypeError(
            f"the types name {_listed(list(types))}, and the columns are {_listed(frame.columns)}: select those"
        )
    made = frame.select(list(types)).cast(pl.Schema(types))
    for column in made:
        before = frame.get_column(column.name)
        if before.dtype != column.dtype and _is_measured(before.dtype) and _is_measured(column.dtype):
            again = column.cast(before.dtype, strict=False)
            changed = again.ne_missing(before)
            if changed.any() and column.dtype != pl.Float32:
                place = changed.to_list().index(True)
                raise _other_value(column.name, before[place], column[place], str(column.dtype))
    return made


def table_of_records(records: Sequence[dict[str, Any]], schema: pa.Schema | None = None) -> pa.Table:
    """Dicts as an Arrow table.

    `schema` gives columns and types; without it they are found as by `frame_of_records`.

    Raises:
        TypeError: as `frame_of_records`.

    >>> table_of_records([{"n": 1}, {"n": 2.5}])["n"].to_pylist()
    [1.0, 2.5]
    """
    if schema is None:
        columns = _fields(records, None)
        return pa.table({name: _array(name, values, None) for name, values in columns.items()})
    columns = _fields(records, schema.names) if records else {name: [] for name in schema.names}
    arrays = [_array(field.name, columns[field.name], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


# ---------------------------------------------------------------------------------------------------- fields


def _fields(records: Sequence[Any], names: list[str] | None) -> dict[str, list[Any]]:
    """The values of each field, by its name."""
    first = records[0]
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        records = [dataclasses.asdict(each) if isinstance(each, type(first)) else each for each in records]
        first = records[0]
    if isinstance(first, dict):
        return _of_dicts(records, names)
    if isinstance(first, tuple | list):
        return _of_tuples(records, names)
    if names is not None and len(names) != 1:
        raise TypeError(
            f"a record must be a dict, or a tuple of {len(names)} values, and {shown(first, 100)} is neither"
        )
    return {names[0] if names else "column_0": list(records)}


def _of_dicts(records: Sequence[Any], names: list[str] | None) -> dict[str, list[Any]]:
    by = "the first record of its batch has" if names is None else "the types name"
    wanted = list(records[0]) if names is None else names
    if not wanted:
        raise TypeError(
            "a record without a field would be no row of columns: filter such out before, or give it a field"
        )
    if countOf(map(type, records), dict) == len(records) == countOf(map(len, records), len(wanted)):
        try:
            columns = {name: list(map(itemgetter(name), records)) for name in wanted}
        except KeyError:
            pass
        else:
            if set(map(type, columns)) <= {str}:
                return columns
    for record in records:
        if not isinstance(record, dict):
            raise TypeError(
                f"records must be dicts, as the first one is, to become columns, and {shown(record, 100)} is none"
            )
        for name in record:
            if not isinstance(name, str):
                raise TypeError(f"names of columns are text, and a record has the field {shown(name, 100)}")
            if name not in wanted:
                raise TypeError(
                    f"a record has a field {name!r}, and {by} only {_listed(wanted)}: give all records the same fields (None "
                    f"where there is no value)\n  the record: {shown(record)}"
                )
        for name in wanted:
            if name not in record:
                raise TypeError(
                    f"a record has no field {name!r}, which {by}: give all records the same fields (None where there is no "
                    f"value)\n  the record: {shown(record)}"
                )
    return {name: [record[name] for record in records] for name in wanted}


def _of_tuples(records: Sequence[Any], names: list[str] | None) -> dict[str, list[Any]]:
    if names is None:
        names = list(getattr(records[0], "_fields", ())) or [f"column_{i}" for i in range(len(records[0]))]
    for record in records:
        if not isinstance(record, tuple | list) or len(record) != len(names):
            raise TypeError(
                f"a record must be a tuple of {len(names)} values ({_listed(names)}), and {shown(record, 100)} is none"
            )
    return dict(zip(names, map(list, zip(*records)), strict=True))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


# ---------------------------------------------------------------------------------------------------- values


def _is_measured(kind: pl.DataType) -> bool:
    """True for numeric and temporal types: a cast between them may change values."""
    return kind.is_numeric() or kind.is_temporal()


_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
_EXACT: dict[Any, set[type]] = {
    **{kind: {int, _NONE} for kind in _INTEGERS},
    pl.Float64: {float, _NONE},
    pl.String: {str, _NONE},
    pl.Boolean: {bool, _NONE},
    pl.Binary: {bytes, _NONE},
    pl.Date: {dt.date, _NONE},
    pl.Duration: {dt.timedelta, _NONE},
    pl.Null: {_NONE},
}
"""Python types held exactly, or refused, by a Polars column type."""

_NUMBERS = {int, float, _NONE}
_INSTANTS = {dt.datetime, _NONE}


def _series(name: str, values: list[Any], kind: Any) -> pl.Series:
    types = set(map(type, values))
    zones = {value.tzinfo for value in values if value is not None} if types <= _INSTANTS else {None}
    if zones == {None} and (made := series_of_values(name, values, types, kind)) is not None:
        return made
    if kind is None and float in types and types <= _NUMBERS:
        kind = pl.Float64
    exact = kind == pl.Float64 and types <= _NUMBERS and all(abs(v) <= 1 << 53 for v in values if type(v) is int)
    try:
        made = pl.Series(name, values, dtype=kind, strict=not exact)
    except Exception:  # whatever it is: without being strict it may be done, and then all are compared
        try:
            made = pl.Series(name, values, dtype=kind, strict=False)
        except Exception as error:
            raise _no_column(name, values, error) from error
    else:
        if (kind is None or made.dtype == kind) and (exact or _holds(made.dtype, types, zones)):
            return made
    if kind is not None and made.dtype != kind:  # Polars has another one where it likes that better
        try:
            made = made.cast(kind)
        except Exception as error:
            raise _no_column(name, values, error) from error
    if made.dtype == pl.Object:
        raise TypeError(f"column {name!r}: columns do not hold {_odd(values)}: {_ADVICE}")
    _compare(name, values, made.to_list, str(made.dtype), _rounding(str(made.dtype)))
    return made


def _holds(kind: pl.DataType, types: set[type], zones: set[Any]) -> bool:
    """True if a strict column of type `kind` surely holds values of these types."""
    if isinstance(kind, pl.Datetime):
        if kind.time_unit != "us" or not types <= _INSTANTS:
            return False
        return zones == {None} if kind.time_zone is None else None not in zones
    if isinstance(kind, pl.Duration) and kind.time_unit != "us":
        return False
    return types <= _EXACT.get(type(kind), set())


_EXACT_IN_ARROW: dict[int, set[type]] = {
    **{kind.id: {int, _NONE} for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{kind.id: {int, _NONE} for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    **{kind.id: {str, _NONE} for kind in (pa.string(), pa.large_string())},
    pa.float64().id: _NUMBERS,
    pa.bool_().id: {bool, _NONE},
    pa.binary().id: {bytes, _NONE},
    pa.date32().id: {dt.date, _NONE},
    pa.null().id: {_NONE},
}
"""Python types held exactly, or refused, by an Arrow type, by its id.

Arrow refuses an integer that no float equals.
"""


def _array(name: str, values: list[Any], kind: pa.DataType | None) -> pa.Array:
    try:
        made = pa.array(values, type=kind)
    except Exception as error:  # Python's, Arrow's, and those of objects that are asked for an array
        raise _no_column(name, values, error) from error
    if not set(map(type, values)) <= _EXACT_IN_ARROW.get(made.type.id, set()):
        if kind is None and pa.types.is_temporal(made.type) and int in map(type, values):
            raise TypeError(f"column {name!r}: {shown(values, 100)} are times and numbers: {_ADVICE}")
        _compare(name, values, made.to_pylist, str(made.type), _rounding(str(made.type)))
    return made


_USUAL = ("builtins", "datetime", "decimal")

_ADVICE = "convert it before, or give the column another type with schema="


def _no_column(name: str, values: list[Any], error: Exception) -> TypeError:
    return TypeError(f"column {name!r}: its values, as {_odd(values)}, make no column: {error_text(error)}: {_ADVICE}")


def _odd(values: list[Any]) -> str:
    there = [value for value in values if value is not None]
    value = next((value for value in there if type(value).__module__ not in _USUAL), there[0])
    return f"{type(value).__name__} ({shown(value, 100)})"


def _other_value(name: str, value: Any, held: Any, kind: str) -> TypeError:
    return TypeError(
        f"column {name!r} is of type {kind}, which holds {shown(value, 100)} as {shown(held, 100)}: {_ADVICE}"
    )


def _compare(name: str, values: list[Any], kept: Callable[[], list[Any]], kind: str, rounding: float) -> None:
    """Raise TypeError for the first value changed by its column of type `kind`."""
    try:
        found = kept()
    except (Exception, pl.exceptions.PanicException) as error:  # a time before the year 1, or after 9999
        raise _no_column(name, values, error) from error
    for value, held in zip(values, found, strict=True):
        if value is not held and not _same(value, held, rounding):
            raise _other_value(name, value, held, kind)


def _rounding(kind: str) -> float:
    """Relative tolerance of a type with fewer digits than Python's floats."""
    if "Float16" in kind or "halffloat" in kind:
        return 1e-3
    return 1e-6 if "Float32" in kind or "float" in kind else 0.0  # Arrow's names: float has 32 bits, and double 64


def _same(given: Any, held: Any, rounding: float) -> bool:
    """True if `held` is the column's form of `given`, within `rounding`."""
    if held is None or given is None:
        return given is held
    if isinstance(given, dict):
        fields = dict(held) if isinstance(held, list) else held  # a map is a list of pairs
        return isinstance(fields, dict) and all(
            _same(given.get(key), fields.get(key), rounding) for key in {**given, **fields}
        )
    if isinstance(held, list):
        items = (
            list(given) if isinstance(given, list | tuple | set | frozenset) or hasattr(given, "__array__") else None
        )
        return (
            items is not None and len(items) == len(held) and all(_same(*pair, rounding) for pair in zip(items, held))
        )
    if isinstance(given, enum.Enum):
        given = given.value
    if type(given) is int and isinstance(held, dt.date | dt.time | dt.timedelta):
        return True  # so many days or microseconds: asked for by the type
    if type(given) is dt.date and isinstance(held, dt.datetime):
        return held == dt.datetime.combine(given, dt.time(), held.tzinfo)
    try:
        if given == held or (given != given and held != held):
            return True
        close = isinstance(held, float) and math.isfinite(held) and rounding > 0
        return close and math.isclose(given, held, rel_tol=rounding, abs_tol=1e-7 if rounding > 1e-4 else 1e-37)
    except (TypeError, ValueError, OverflowError):
        return False
