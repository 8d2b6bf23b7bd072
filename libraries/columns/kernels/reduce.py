"""Aggregation by group number: sums, minima, maxima, counts.

Sums are exact. Of floats see `timely.data.sums.terms`. Integers are 64-bit while they fit, and Python's own (arrays of
objects, and columns of type `EXACT`) from where one does not: that is found out from bounds, and costs next to nothing while
nothing is near them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from libraries.columns.kernels.parts import LIMIT, Kind, identity, ufunc_of
from timely.data.kernels.columns import (
    Numbers,
    pooled_empty,
    pooled_full,
)
from timely.data.kernels.tables import MANY, Ids, compiled_loops, read_only
from timely.data.sums.terms import sums


def reduce(kind: Kind, groups: Ids, count: int, values: Numbers, rows: Numbers | None = None) -> Numbers:
    """Aggregate `values` by `groups`: one result for each of `count` groups."""
    return reduce_pieces(kind, [groups], count, [values], rows)


def reduce_pieces(
    kind: Kind, groups: Sequence[Ids], count: int, values: Sequence[Numbers], rows: Numbers | None = None
) -> Numbers:
    """Aggregate several pieces by group.

    Sums of floats are cheaper if it is known that groups have no more than `rows` values.
    """
    if kind == "sum" and values[0].dtype.kind == "f":
        return sums(groups, count, values, None if rows is None else int(rows.max(initial=1)))
    if sum(map(len, groups)) >= MANY and values[0].dtype.kind != "O":
        result = _compiled_reduce(kind, groups, count, values)
        if result is not None:
            return result
    return _plain_reduce(kind, _flat(groups), count, _flat(values))


def _flat(pieces: Sequence[Numbers]) -> Numbers:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _plain_reduce(kind: Kind, groups: Ids, count: int, values: Numbers) -> Numbers:
    if kind == "sum" and values.dtype.kind == "i" and reach_of(values) * len(values) >= LIMIT:
        return _exact_sums(groups, count, values)
    result = np.full(count, identity(kind, values.dtype), values.dtype)
    ufunc_of(kind, values.dtype).at(result, groups, values)
    return result


def _compiled_reduce(kind: Kind, groups: Sequence[Ids], count: int, values: Sequence[Numbers]) -> Numbers | None:
    """Compiled aggregation for many rows; None on NaN, or on overflow of a sum."""
    loops, dtype = compiled_loops(), values[0].dtype
    if kind == "sum":
        loop = loops.sum_integers
        result = pooled_full(count, 0, dtype)
    else:
        limits = (np.inf, -np.inf) if dtype.kind == "f" else (np.iinfo(np.int64).max, np.iinfo(np.int64).min)
        loop = loops.min_groups if kind == "min" else loops.max_groups
        result = pooled_full(count, limits[0] if kind == "min" else limits[1], dtype)
    for of, given in zip(groups, values, strict=True):
        if loop(read_only(of), read_only(np.ascontiguousarray(given)), result):
            return None
    return result


def reach_of(values: Numbers) -> int:
    """Greatest magnitude of integers."""
    return max(int(values.max()), -int(values.min())) if len(values) else 0


def _exact_sums(groups: Ids, count: int, values: Numbers) -> Numbers:
    """Integer sums by group, as Python integers if one exceeds 64 bits."""
    low, high = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(low, groups, values & 0xFFFFFFFF)
    np.add.at(high, groups, values >> 32)
    high += low >> 32
    low &= 0xFFFFFFFF
    if not len(high) or (high.max() < 1 << 31 and high.min() >= -(1 << 31)):
        return (high << 32) | low
    exact: Numbers = high.astype(object) * (1 << 32) + low.astype(object)
    return exact


def count_rows(groups: Ids, count: int) -> tuple[Numbers, Ids]:
    """Rows in each group, and the groups that have any."""
    if len(groups) < MANY:
        rows: Numbers = np.bincount(groups, minlength=count)
        return rows, np.flatnonzero(rows)
    return count_pieces([groups], count)


def count_pieces(groups: Sequence[Ids], count: int) -> tuple[Numbers, Ids]:
    """`count_rows` of several pieces."""
    rows, present = pooled_full(count, 0, np.int64), pooled_empty(count, np.intp)
    loops = compiled_loops()
    for of in groups:
        loops.count_rows(read_only(of), rows)
    return rows, present[: loops.present_groups(rows, present)]
