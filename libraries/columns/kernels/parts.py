"""Parts of aggregates: partial results, combined in any order and grouping.

A *part* is the number of rows or of values, a sum, a minimum, a maximum, the sum of squares, the number of distinct values, or
a sketch (`sketches`) of observations. Here are their names, their types, and the values from which they
start. Sums of floats, and of squares, are not rounded (`timely.data.sums.terms`). NaN loses against any number in a minimum
or maximum, as in Polars.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from libraries.columns.kernels import sketches
from timely.data.kernels.columns import (
    Numbers,
    column_of,
    comparable_type,
    is_number,
    whole_type,
)
from timely.data.sums import terms

Kind = Literal["rows", "values", "sum", "min", "max", "squares", "distinct", "sketch"]


class Part(NamedTuple):  # of which the hash costs little
    """One partial aggregate of `column` (of whole rows if None)."""

    kind: Kind
    column: str | None = None

    @property
    def name(self) -> str:
        """Column name of the part in a partial table."""
        return name_of(self.kind, self.column)


@cache
def name_of(kind: Kind, column: str | None = None) -> str:
    """Column name of such a part in a partial table."""
    return f"{kind}({column or ''})"


EXACT = pa.decimal256(76, 0)
"""Type of integer sums with some beyond 64 bits."""

LIMIT = 1 << 63
"""Bound of 64-bit integers, exclusive."""

MADE = "()"
"""Name ending of intermediate columns made by an aggregate."""

ADDS = ("rows", "values", "sum", "squares", "distinct")
"""Kinds of parts combined by addition."""


def identity(kind: Kind, dtype: np.dtype[Any]) -> Any:
    """Identity element of a part.

    Floats start from NaN, which `fmin` and `fmax` give up for any number.
    """
    if kind in ADDS:
        return 0
    if dtype.kind == "O":
        return None
    if dtype.kind == "f":
        return np.nan
    return np.iinfo(np.int64).max if kind == "min" else np.iinfo(np.int64).min


def ufunc_of(kind: Kind, dtype: np.dtype[Any]) -> np.ufunc:
    """NumPy function to combine two values of a part."""
    if kind in ADDS:
        return np.add
    if dtype.kind == "f":
        return np.fmin if kind == "min" else np.fmax
    return np.minimum if kind == "min" else np.maximum


def sum_kind(kind: pa.DataType, name: str) -> pa.DataType:
    """Type of sums of a column `name` of type `kind`.

    Raises:
        TypeError: if it cannot be added up.
    """
    if pa.types.is_decimal(kind):
        return pa.decimal128(38, kind.scale)
    if pa.types.is_null(kind):
        return kind
    if not is_number(kind) or pa.types.is_temporal(kind):
        cast = "; cast it to pl.Int64 before" if pa.types.is_temporal(kind) else ""
        raise TypeError(
            f"column {name!r} of type {kind} cannot be added up: agg.sum and agg.mean take numbers and decimals{cast}"
        )
    return pa.float64() if pa.types.is_floating(kind) else pa.int64()


def squared_kind(kind: pa.DataType, name: str) -> pa.DataType:
    """Type of the variance of a column `name` of type `kind`.

    Raises:
        TypeError: if it has none.
    """
    types = pa.types
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind)):
        raise TypeError(f"column {name!r} of type {kind} has no variance: agg.var and agg.std take numbers; cast it")
    return pa.float64()


def compared_kind(kind: pa.DataType, name: str) -> pa.DataType:
    """Type of the minimum and maximum of a column `name` of type `kind`.

    Raises:
        TypeError: if there is no such thing.
    """
    if is_number(kind) or pa.types.is_null(kind):
        return kind
    if pa.types.is_struct(kind) and not name.endswith(MADE):
        raise TypeError(f"column {name!r} of type {kind} cannot be compared: unnest makes columns of a struct")
    compared = comparable_type(kind.value_type if pa.types.is_dictionary(kind) else kind)
    if compared is None:
        raise TypeError(
            f"column {name!r} of type {kind} cannot be compared: agg.min, max, first and last take numbers, decimals, "
            "text, bytes, dates and times"
        )
    return compared


def sums_column(sums: Numbers, kind: pa.DataType) -> pa.Array:
    """Column of sums of values of type `kind`; sums of floats stay unrounded."""
    if pa.types.is_null(kind):
        return pa.nulls(len(sums))
    if sums.ndim > 1:
        return terms.column_of_terms(sums)
    if sums.dtype.kind != "O":
        return pa.array(sums)
    return column_of(sums, pa.decimal128(38, kind.scale) if pa.types.is_decimal(kind) else EXACT)


def kind_of(part: Part, schema: pa.Schema) -> pa.DataType:
    """Column type of a part over `schema`."""
    if part.column is None or part.kind in ("values", "distinct"):
        return pa.int64()
    if part.kind == "sketch":
        return sketches.KIND
    kind = whole_type(schema.field(part.column).type)
    if part.kind == "squares":
        squared_kind(kind, part.column)
        return terms.TERMS
    if part.kind == "sum":
        kind = sum_kind(kind, part.column)
        return terms.TERMS if pa.types.is_floating(kind) else kind
    return compared_kind(kind, part.column)


def dtype_of(kind: pa.DataType) -> npt.DTypeLike:
    """NumPy type for values of type `kind`: 64-bit numbers, or objects."""
    if pa.types.is_floating(kind) or terms.is_terms(kind):
        return np.float64
    return np.int64 if is_number(kind) or pa.types.is_null(kind) else object
