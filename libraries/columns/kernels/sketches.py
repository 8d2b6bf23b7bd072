"""Quantile sketches with relative error (DDSketch): counts by logarithmic bucket.

Buckets are as wide as an allowed relative error: with `error` e and g = (1 + e) / (1 - e), the numbers x with
g^(i-1) < x <= g^i are in one, which stands for 2 g^i / (g + 1). Negative numbers have buckets of their own, and so have 0, the
infinities, and NaN, which is behind all. (Masson, Rim and Lee, *DDSketch*, VLDB 2019.) Counts are added, and taken back, in any
order. The number of buckets in use grows with the logarithm of the range, not with the number of rows: about 350 for a factor
of 1,000, at an error of 0.01.

A sketch is the bytes of pairs of little-endian 64-bit integers, (bucket, count), with rising buckets; None if there are none.
An *observation* is one integer: twice the number of the bucket, and 1 more for a value that is taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, log1p
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timely.errors import CodecError

Interpolation = Literal["nearest", "lower", "higher", "midpoint", "linear"]

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Sketches = npt.NDArray[Any]
"""Array of bytes, or None."""

LEAST_ERROR, GREATEST_ERROR = 1e-4, 0.5
"""Bounds of the relative error."""

KIND = pa.binary()
"""Column type of sketches."""

_SMALLEST = float(np.finfo(np.float64).tiny)
"""Least magnitude not counted as 0."""

_GREATEST = float(np.finfo(np.float64).max)
_PAIR = 16
_SHIFT = np.int64(1 << 31)


def sketched_kind(kind: pa.DataType, name: str) -> pa.DataType:
    """Type of the quantiles of a column `name` of type `kind`.

    Raises:
        TypeError: if it has none.
    """
    types = pa.types
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind)):
        raise TypeError(
            f"column {name!r} of type {kind} has no quantiles: agg.quantile and agg.median take numbers and decimals; cast it"
        )
    return pa.float64()


def observations(column: pa.Array, error: float, signs: pa.Array | None = None) -> pa.Array:
    """Observations of a column, null for null; negative `signs` retract.

    Raises:
        TypeError: for what is no number.
    """
    sketched_kind(column.type, "v")
    valid = None
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        column = pa.array(np.zeros(len(column))) if pa.types.is_null(column.type) else pc.fill_null(column, 0)
    if not pa.types.is_float64(column.type):
        column = column.cast(pa.float64(), safe=False)
    found = _buckets(column.to_numpy(zero_copy_only=False), error) * 2
    if signs is not None:
        found += signs.to_numpy(zero_copy_only=False) < 0
    return pa.array(found, mask=None if valid is None else ~valid)


def _buckets(values: Floats, error: float) -> Integers:
    """Bucket number of each value, in value order."""
    width = _width(error)
    zero = _offset(width)
    size = np.abs(values)
    with np.errstate(divide="ignore"):
        found = np.ceil(np.log(size) / width) + zero
    found[size < _SMALLEST] = 0
    found[size == np.inf] = 2 * zero
    found = np.copysign(found, values)
    found[np.isnan(values)] = 2 * zero + 1
    buckets: Integers = found.astype(np.int64)
    return buckets


def _width(error: float) -> float:
    """Logarithm of the factor between buckets."""
    return log1p(2 * error / (1 - error))


def _offset(width: float) -> int:
    """Bucket number of 1, above those of all smaller magnitudes."""
    return ceil(710 / width) + 1


def _values(buckets: Integers, error: float) -> Floats:
    """Representative value of each bucket."""
    width = _width(error)
    zero = _offset(width)
    size = np.abs(buckets)
    with np.errstate(over="ignore", under="ignore"):
        found = np.exp((size - zero) * width) * (1 - error)  # which is 2 / (g + 1)
    found = np.clip(found, _SMALLEST, _GREATEST)
    found[size == 0] = 0
    found[size == 2 * zero] = np.inf
    found = np.copysign(found, buckets)
    found[buckets == 2 * zero + 1] = np.nan
    return found


def of_groups(groups: npt.NDArray[np.intp], count: int, observed: Integers) -> Sketches:
    """Sketch of each of `count` groups, from observations."""
    return of_pairs(groups, count, observed >> 1, 1 - 2 * (observed & 1))


def of_rows(observed: Integers) -> Sketches:
    """Sketch for each observation."""
    pairs = np.stack([observed >> 1, 1 - 2 * (observed & 1)], axis=1)
    return _cut(pairs, np.arange(len(observed) + 1))


def merged(groups: npt.NDArray[np.intp], count: int, sketches: Sketches) -> Sketches:
    """Sketch of each of `count` groups, merged from sketches."""
    pairs, lengths = pairs_of(sketches)
    return of_pairs(np.repeat(groups, lengths), count, pairs[:, 0], pairs[:, 1])


def pairs_of(sketches: Sketches) -> tuple[Integers, npt.NDArray[np.intp]]:
    """All (bucket, count) pairs of some sketches, and the pairs of each.

    The latter as a number.

    Raises:
        CodecError: for bytes that are no sketch. Some come from other workers, and from stores.
    """
    held = [sketch or b"" for sketch in sketches.tolist()]
    sizes = np.fromiter(map(len, held), np.intp, len(held))
    if (sizes % _PAIR).any():
        raise CodecError("a damaged sketch: it ends within a pair of bucket and count")
    lengths = sizes // _PAIR
    pairs = np.frombuffer(b"".join(held), "<i8").reshape(-1, 2)
    buckets = pairs[:, 0]
    rises = buckets[1:] > buckets[:-1]
    rises[np.cumsum(lengths[lengths > 0])[:-1] - 1] = True
    if not rises.all() or (len(buckets) and not -_SHIFT <= buckets.min() <= buckets.max() < _SHIFT):
        raise CodecError("a damaged sketch: its buckets do not rise, or there are no such buckets")
    return pairs, lengths


def of_pairs(groups: npt.NDArray[np.intp], count: int, buckets: Integers, counts: Integers) -> Sketches:
    """Sketch of each of `count` groups, from (bucket, count) pairs."""
    place = (groups.astype(np.int64) << 32) + (buckets + _SHIFT)
    order = np.argsort(place, kind="stable")
    place = place[order]
    begins = np.flatnonzero(np.diff(place, prepend=-1))
    sums = np.add.reduceat(counts[order], begins) if len(begins) else counts[:0]
    there = sums != 0
    place, sums = place[begins][there], sums[there]
    pairs = np.stack([(place & 0xFFFFFFFF) - _SHIFT, sums], axis=1)
    return _cut(pairs, np.searchsorted(place >> 32, np.arange(count + 1)))


def _cut(pairs: Integers, ends: npt.NDArray[np.intp]) -> Sketches:
    """Encode pairs as sketches, divided at `ends`."""
    data = pairs.astype("<i8", copy=False).tobytes()
    at = (ends * _PAIR).tolist()
    found = np.empty(len(at) - 1, object)
    found[:] = [data[begin:end] or None for begin, end in pairwise(at)]
    return found


def quantiles(sketches: Sketches, quantile: float, interpolation: Interpolation, error: float) -> pa.Array:
    """Quantile of each sketch, null for an empty one."""
    pairs, lengths = pairs_of(sketches)
    there = np.flatnonzero(lengths)
    if not len(there):
        return pa.nulls(len(lengths), pa.float64())
    reached = np.cumsum(pairs[:, 1])
    ends = np.cumsum(lengths)
    upto = reached[ends[there] - 1]
    before = np.concatenate([[0], upto[:-1]])
    rank = (upto - before - 1) * quantile
    low, high = np.floor(rank), np.ceil(rank)
    if interpolation == "nearest":
        low = high = np.floor(rank + 0.5)
    elif interpolation in ("lower", "higher"):
        low = high = low if interpolation == "lower" else high
    least, most = (
        _values(pairs[np.searchsorted(reached[:-1], before + at.astype(np.int64), side="right"), 0], error)
        for at in (low, high)
    )
    chosen = least
    if low is not high:
        with np.errstate(invalid="ignore", over="ignore"):
            between = (least + most) / 2 if interpolation == "midpoint" else least + (rank - low) * (most - least)
        chosen = np.where(least == most, least, between)
    found = np.zeros(len(lengths))
    found[there] = chosen
    return pa.array(found, mask=lengths == 0)


def size_of(sketches: Sketches) -> int:
    """Estimate of the bytes of sketches."""
    some: Sequence[bytes | None] = sketches[:: max(1, len(sketches) // 64)].tolist()
    return sum(len(each or b"") + 33 for each in some) * len(sketches) // max(1, len(some))
