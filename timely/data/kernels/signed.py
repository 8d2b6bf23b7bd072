"""Columns of rows that have a sign, 1 where one comes and -1 where one is taken back, as columns that are added up.

Sums of floats are exact (`timely.data.kernels.terms`), so numbers cancel to nothing in whatever order they come. What is left
when an infinity is taken back from another is no number: so *special* values, infinities and NaN, are left out of a sum, and
counted, as a sketch (`timely.data.kernels.sketches`) counts observations: a bucket each.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timely.data.kernels.added import present_values
from timely.data.kernels.columns import Numbers, numbers
from timely.data.kernels.sketches import Integers, Sketches, pairs_of
from timely.errors import CodecError

What = Literal["number", "sum", "special"]
"""Of the values of a column: how many there are, the sum of those that are finite, and observations of the others."""

_INFINITY, _MINUS_INFINITY, _NAN = range(3)
"""Buckets."""


def signed(column: pa.Array, signs: pa.Array, what: What) -> pa.Array:
    """The terms of a sum of a column of numbers or decimals, by their signs. Null is no value.

    Raises:
        OverflowError: if a number, or its negative, is beyond 64 bits.
    """
    kind = column.type
    if what == "number":
        there = column.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(np.where(there, numbers(signs), 0))
    if what == "special" and not pa.types.is_floating(kind):
        return pa.nulls(len(column), pa.int64())
    if pa.types.is_null(kind):
        return column
    if pa.types.is_decimal(kind):
        return pc.if_else(pc.less(signs, 0), pc.negate(column), column)
    present, valid = present_values(column)
    values, by = numbers(present), numbers(signs)
    by = by if valid is None else by[valid]
    if what == "special":
        return _observed(values, by, np.ones(len(column), np.bool_) if valid is None else valid)
    found = _by_sign(values, by)
    if valid is None:
        return pa.array(found)
    filled = np.zeros(len(column), found.dtype)
    filled[valid] = found
    return pa.array(filled, mask=~valid)


def _by_sign(values: Numbers, signs: Numbers) -> Numbers:
    if values.dtype.kind == "f":
        finite: Numbers = np.where(np.isfinite(values), values, 0.0) * signs
        return finite
    least = np.iinfo(np.int64).min
    if ((values == least) & (signs < 0)).any():
        raise OverflowError(
            f"{least} is taken back, and its negative is beyond 64-bit integers; cast the column before: "
            "with_columns(pl.col(...).cast(pl.Decimal(38, 0))) is exact, pl.Float64 rounds"
        )
    found: Numbers = values * signs
    return found


def _observed(values: Numbers, signs: Integers, valid: npt.NDArray[np.bool_]) -> pa.Array:
    """A column of the observations of what is special, null elsewhere; the values are those of its valid rows."""
    special = ~np.isfinite(values)
    if not special.any():
        return pa.nulls(len(valid), pa.int64())
    rows, odd = np.flatnonzero(valid)[special], values[special]
    buckets = np.where(np.isnan(odd), _NAN, np.where(odd > 0, _INFINITY, _MINUS_INFINITY))
    found, none = np.zeros(len(valid), np.int64), np.ones(len(valid), np.bool_)
    found[rows], none[rows] = 2 * buckets + (signs[special] < 0), False
    return pa.array(found, mask=none)


def with_special(sums: npt.NDArray[np.float64], special: Sketches | None) -> npt.NDArray[np.float64]:
    """Sums of finite floats, with the special values that were counted beside each.

    Raises:
        CodecError: for bytes that count something else.
    """
    some = np.flatnonzero([each is not None for each in special.tolist()] if special is not None else [])
    if special is None or not len(some):
        return sums
    pairs, lengths = pairs_of(special[some])
    if len(pairs) and not 0 <= pairs[:, 0].min() <= pairs[:, 0].max() <= _NAN:
        raise CodecError("a damaged sum: it counts values that are not special")
    counts = np.zeros((len(some), 3), np.int64)
    counts[np.repeat(np.arange(len(some)), lengths), pairs[:, 0]] = pairs[:, 1]
    there = counts > 0
    sums = sums.copy()
    for bucket, value in ((_INFINITY, np.inf), (_MINUS_INFINITY, -np.inf)):
        sums[some[there[:, bucket]]] = value
    sums[some[there[:, _NAN] | (there[:, _INFINITY] & there[:, _MINUS_INFINITY])]] = np.nan
    return sums
