"""Signed rows (1 insertion, -1 retraction) as terms of exact sums.

Sums of floats are exact (`timely.data.sums.terms`), so numbers cancel to nothing in whatever order they come. What is left
when an infinity is taken back from another is no number: so *special* values, infinities and NaN, are left out of a sum, and
counted, as a sketch (`libraries.columns.kernels.sketches`) counts observations: a bucket each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from libraries.columns.kernels.added import present_values
from libraries.columns.kernels.sketches import Integers, Sketches, pairs_of
from timely.data.kernels.columns import Numbers, numbers
from timely.data.sums.terms import squares
from timely.errors import CodecError

What = Literal["number", "sum", "special", "squares", "rests", "ends", "vast"]
"""Kind of term: count, sum of finite values, observations of special ones.

Of squares: three floats that have the square as their sum ("squares", "rests", "ends"), and observations of values
whose squares are no floats ("vast").
"""

_INFINITY, _MINUS_INFINITY, _NAN, _LARGE = range(4)
"""Buckets."""

_PLACES: Mapping[What, int] = {"squares": 0, "rests": 1, "ends": 2}

_ROOT = 2.0**511
"""Magnitude limit of values with a finite square."""


def signed(column: pa.Array, signs: pa.Array, what: What) -> pa.Array:
    """Signed terms of a column of numbers or decimals; null is no value.

    Raises:
        OverflowError: if a number, or its negative, is beyond 64 bits.
    """
    kind = column.type
    if what == "number":
        there = column.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(np.where(there, numbers(signs), 0))
    if what in ("special", "vast") and not pa.types.is_floating(kind):
        return pa.nulls(len(column), pa.int64())
    if pa.types.is_null(kind):
        return column
    if pa.types.is_decimal(kind):
        return pc.if_else(pc.less(signs, 0), pc.negate(column), column)
    present, valid = present_values(column)
    values, by = numbers(present), numbers(signs)
    by = by if valid is None else by[valid]
    if what in ("special", "vast"):
        return _observed(values, by, np.ones(len(column), np.bool_) if valid is None else valid, what == "vast")
    if what in _PLACES:
        found = _square(values, _PLACES[what])
        if found is None:
            return pa.nulls(len(column), pa.float64())
        found *= by
    else:
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


def _square(values: Numbers, place: int) -> Numbers | None:
    """One of three floats adding up to the square; None if 0 everywhere."""
    if values.dtype.kind == "f":
        values = np.where(np.abs(values) < _ROOT, values, 0.0)
    found = squares(values)
    if found.shape[1] == 2:
        return None if place > 1 else found[:, place].copy()
    left = [int(value) ** 2 for value in values.tolist()]
    for _ in range(place):
        left = [each - int(float(each)) for each in left]
    return np.array(left, np.float64)


def _observed(values: Numbers, signs: Integers, valid: npt.NDArray[np.bool_], vast: bool) -> pa.Array:
    """Observations of special or `vast` values, null elsewhere.

    The values are those of the valid rows.
    """
    special = ~(np.abs(values) < _ROOT) if vast else ~np.isfinite(values)
    if not special.any():
        return pa.nulls(len(valid), pa.int64())
    rows, odd = np.flatnonzero(valid)[special], values[special]
    buckets = np.where(np.isnan(odd), _NAN, np.where(odd > 0, _INFINITY, _MINUS_INFINITY))
    buckets[np.isfinite(odd)] = _LARGE
    found, none = np.zeros(len(valid), np.int64), np.ones(len(valid), np.bool_)
    found[rows], none[rows] = 2 * buckets + (signs[special] < 0), False
    return pa.array(found, mask=none)


def with_special(sums: npt.NDArray[np.float64], special: Sketches | None) -> npt.NDArray[np.float64]:
    """Sums of finite floats, corrected by the counted special values.

    Raises:
        CodecError: for bytes that count something else.
    """
    if special is None:
        return sums
    there = _counted(special, _NAN)
    sums = sums.copy()
    for bucket, value in ((_INFINITY, np.inf), (_MINUS_INFINITY, -np.inf)):
        sums[there[:, bucket]] = value
    sums[there[:, _NAN] | (there[:, _INFINITY] & there[:, _MINUS_INFINITY])] = np.nan
    return sums


def with_vast(spreads: npt.NDArray[np.float64], vast: Sketches) -> npt.NDArray[np.float64]:
    """Variances of moderate floats, corrected by the counted vast values.

    Or their roots.

    Raises:
        CodecError: for bytes that count something else.
    """
    there = _counted(vast, _LARGE)
    spreads = np.where(there[:, _LARGE], np.inf, spreads)
    spreads[there[:, :_LARGE].any(axis=1)] = np.nan
    return spreads


def _counted(special: Sketches, last: int) -> npt.NDArray[np.bool_]:
    """Non-empty buckets of each sketch, up to the last one."""
    there = np.zeros((len(special), last + 1), np.bool_)
    some = np.flatnonzero([each is not None for each in special.tolist()])
    if not len(some):
        return there
    pairs, lengths = pairs_of(special[some])
    if len(pairs) and not 0 <= pairs[:, 0].min() <= pairs[:, 0].max() <= last:
        raise CodecError("a damaged sum: it counts values that are not special")
    there[np.repeat(some, lengths), pairs[:, 0]] = pairs[:, 1] > 0
    return there
