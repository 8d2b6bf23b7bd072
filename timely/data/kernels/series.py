"""Short Polars series made, gathered and stacked without the overhead of its API.

Those find out what they were given, or make a plan of a frame: that costs ten times as much as a few rows do. What of Polars'
own parts is used instead is tried when this is loaded; where a version lacks them the public functions are used.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

Array: TypeAlias = npt.NDArray[Any]


def series_of(name: str, values: pl.Series | Array) -> pl.Series:
    """Series over an array, sharing its memory."""
    if isinstance(values, pl.Series):
        return values if values.name == name else values.alias(name)
    make = _MAKERS.get(values.dtype.char)
    return pl.Series(name, values) if make is None else pl.Series._from_pyseries(make(name, values, False))


def series_of_values(name: str, values: list[Any], types: set[type], kind: Any = None) -> pl.Series | None:
    """Series of Python values of known types; None if Polars must convert them.

    `kind` is the type that it is to have, None: the one that fits.

    Datetimes must all be without a time zone.

    None where it takes more than to put them one after the other.
    """
    for held, (given, make) in _OF_VALUES.items():
        if types <= given and held in types and (kind is None or kind == _KINDS[held]):
            try:
                return pl.Series._from_pyseries(make(name, values, True))
            except (TypeError, OverflowError, ValueError):
                return None
    return None


def rows_at(rows: npt.NDArray[np.integer[Any]]) -> pl.Series:
    """Row numbers as a series, for `gathered`."""
    return series_of("", rows.astype(np.uint32))


def gathered(column: pl.Series, rows: pl.Series) -> pl.Series:
    """Values at `rows`, null for a null row number."""
    if _GATHERS:
        return pl.Series._from_pyseries(column._s.gather_with_series(rows._s))
    return column[rows]


def stacked(parts: Sequence[pl.Series]) -> pl.Series:
    """Concatenated series of one type, in one piece of memory."""
    if len(parts) == 1:
        return parts[0]
    whole = parts[0].clone()
    for part in parts[1:]:
        whole.append(part)
    return whole.rechunk(in_place=True)


def stacked_of(frames: Sequence[pl.DataFrame], name: str) -> pl.Series:
    """Concatenated column of several frames, in one piece of memory.

    Raises:
        TypeError: if it has decimals of several scales. Polars would cut digits off, where it refuses all other types.
    """
    kind = frames[0].get_column(name).dtype
    if _has_decimals(kind) and any(frame.get_column(name).dtype != kind for frame in frames):
        raise TypeError(f"the column {name!r} is not of one type")
    if not _STACKS:
        return stacked([frame.get_column(name) for frame in frames])
    whole = frames[0].get_column(name).clone()
    append = whole._s.append
    for frame in frames[1:]:
        append(frame._df.get_column(name))
    return whole.rechunk(in_place=True)


def _has_decimals(kind: pl.DataType) -> bool:
    if isinstance(kind, pl.Struct):
        return any(_has_decimals(field.dtype) for field in kind.fields)  # type: ignore[arg-type]
    if isinstance(kind, pl.List | pl.Array):
        return _has_decimals(kind.inner)  # type: ignore[arg-type]
    return isinstance(kind, pl.Decimal)


def frame_of(columns: Sequence[pl.Series]) -> pl.DataFrame:
    """Frame of columns of one length and of different names."""
    return columns[0].to_frame().hstack(list(columns[1:])) if columns else pl.DataFrame()


def _makers() -> Mapping[str, Callable[[str, Array, bool], Any]]:
    names = {"?": "bool", "b": "i8", "i": "i32", "l": "i64", "I": "u32", "L": "u64", "d": "f64"}
    try:
        from polars._plr import PySeries

        made = {char: getattr(PySeries, f"new_{name}") for char, name in names.items()}
        for char, make in made.items():
            given = np.ones(2, char)
            found = pl.Series._from_pyseries(make("x", given, False))
            if not found.equals(pl.Series("x", given), check_dtypes=True):
                return {}
        return made
    except (ImportError, AttributeError, TypeError):
        return {}


_KINDS: dict[type, Any] = {
    int: pl.Int64,
    float: pl.Float64,
    str: pl.String,
    bool: pl.Boolean,
    dt.datetime: pl.Datetime("us"),
}


def _of_values() -> Mapping[type, tuple[set[type], Callable[[str, list[Any], bool], Any]]]:
    names = {int: "opt_i64", float: "opt_f64", str: "str", bool: "opt_bool", dt.datetime: "from_any_values"}
    try:
        from polars._plr import PySeries

        made = {kind: ({kind, type(None)}, getattr(PySeries, f"new_{name}")) for kind, name in names.items()}
        for kind, (_, make) in made.items():
            values = [dt.datetime(2024, 1, 2, microsecond=3) if kind is dt.datetime else kind(1), None]
            found = pl.Series._from_pyseries(make("x", values, True))
            if found.to_list() != values or found.dtype != _KINDS[kind] or found.name != "x":
                return {}
        return made
    except (ImportError, AttributeError, TypeError, ValueError):
        return {}


def _gathers() -> bool:
    try:
        rows = pl.Series([2, None], dtype=pl.UInt32)
        found = pl.Series._from_pyseries(pl.Series("x", [1, 2, 3])._s.gather_with_series(rows._s))
        return found.to_list() == [3, None] and found.name == "x"
    except (AttributeError, TypeError):
        return False


def _stacks() -> bool:
    try:
        whole = pl.Series("x", [1, None])
        whole._s.append(pl.DataFrame({"x": [2]})._df.get_column("x"))
        return whole.to_list() == [1, None, 2]
    except (AttributeError, TypeError):
        return False


_MAKERS = _makers()
_OF_VALUES = _of_values()
_GATHERS = _gathers()
_STACKS = _stacks()
