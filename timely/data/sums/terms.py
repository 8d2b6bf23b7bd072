"""Exact sums of floats: each is a row of *terms*, rounded only for output.

Floats that are added one after the other are rounded at each step, so that their sum depends on their order. Here what a step
would round off is kept in a further term, and the sum is rounded once, when it is shown: the float that is nearest to the
sum of all values, whatever their order and grouping (Shewchuk, *Adaptive Precision Floating-Point Arithmetic*, 1997).

An array (rows, width) holds the terms of as many sums. An even width, or 1, is of that many terms. An odd one has three *far*
terms at the end: they count 2**128 times, for values from 2**960 up, whose sums could leave the floats on the way; the first of
them holds NaN and infinities, too, and then is the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite, nan
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timely.data.kernels.tables import MANY, Ids, are_loaded, compiled_loops, read_only
from timely.data.sums.split import split_sums
from timely.errors import CodecError

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[Any]

TERMS = pa.list_(pa.float64())
"""Column type of exact sums."""

_WIDTH = 2
"""Initial number of terms: enough for 106 bits from first to last digit."""

_WIDEST = 64
"""Most terms of a sum: 40 cover all floats, the rest are far ones.

40 of 53 bits each reach from the least float to the greatest.
"""

_FAR = 3
_HUGE = 2.0**960
_SHIFT = 128
_UNIT = 1 << 1074
"""Every float is a multiple of 2**-1074."""

_WHOLE = 1 << 53
"""Bound of consecutive integers exactly representable as floats."""

_FEW = 64
"""Least rows for compiled loops; NumPy adds fewer."""

_VERY_FEW = 8
"""Least rows for NumPy; fewer are added by Python."""


def is_terms(kind: pa.DataType) -> bool:
    """True for the column type of exact sums."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def blank(rows: int) -> Floats:
    """Sums of nothing."""
    return np.zeros((rows, _WIDTH))


def terms_of(column: pa.Array) -> Floats:
    """Terms of a column without nulls, padded to one width.

    Raises:
        CodecError: for what is no column of sums: without terms, with more than a sum can have, or with nulls among them.
    """
    if not len(column):
        return blank(0)
    if not pa.types.is_float64(column.type.value_type):
        raise CodecError(f"a damaged sum of floats: its terms are {column.type.value_type}")
    offsets = column.offsets.to_numpy()
    given = column.values.slice(offsets[0], offsets[-1] - offsets[0])
    widths = np.diff(offsets)
    if given.null_count or widths.min() < 1 or widths.max() > _WIDEST:
        raise CodecError("a damaged sum of floats: it has no terms, or too many, or one that is no float")
    values = given.to_numpy()
    first = int(widths[0])
    if (widths == first).all():
        alike: Floats = values.reshape(len(column), first)
        return alike
    found = blank(len(column))
    for width in np.unique(widths).tolist():
        rows = np.flatnonzero(widths == width)
        found = assigned(found, rows, values[(offsets[rows] - offsets[0])[:, None] + np.arange(width)])
    return found


def column_of_terms(terms: Floats, empty: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Column of exact sums, null by the mask `empty`.

    A plain array of floats gives one term a sum.
    """
    rows, width = len(terms), terms.shape[1] if terms.ndim > 1 else 1
    values = pa.array(np.ascontiguousarray(terms).reshape(-1))
    offsets = pa.array(np.arange(0, rows * width + 1, width, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, values, mask=None if empty is None else pa.array(empty))


def of_integers(values: Numbers) -> Floats:
    """Integers as exact sums."""
    if values.dtype.kind != "O":
        low = values & ((1 << 32) - 1)
        return np.stack([(values - low).astype(np.float64), low.astype(np.float64)], axis=1)
    found = np.zeros((len(values), 6))
    for row, value in enumerate(values.tolist()):
        left = value
        for place in range(found.shape[1]):
            found[row, place] = left
            left -= int(found[row, place])
    return found


def as_terms(values: Numbers) -> Floats:
    """Floats, integers or exact sums as exact sums."""
    if values.ndim == 2:
        return values.astype(np.float64, copy=False)
    if values.dtype.kind == "f":
        return values.astype(np.float64, copy=False).reshape(len(values), 1)
    return of_integers(values)


def sums(groups: Sequence[Ids], count: int, values: Sequence[Numbers], fullest: int | None = None) -> Floats:
    """Exact sum of each of `count` groups, from several pieces.

    Each of `groups` has the groups of the piece of `values`, floats or sums.

    Args:
        fullest: no group has more values than this; by default as many as there are.
    """
    found: Floats | None = None
    for of, given in zip(groups, values, strict=True):
        if given.dtype.kind == "f":
            most = len(given) if fullest is None else fullest
            for column in given.T if given.ndim > 1 and not _split(given.shape[1])[1] else [given]:
                found = _summed(found, of, count, column, most)
        else:
            found = added(blank(count) if found is None else found, of, given)
    return blank(count) if found is None else found


def _summed(terms: Floats | None, ids: Ids, count: int, values: Floats, fullest: int) -> Floats:
    """Sums with values added, floats or sums; None: from nothing."""
    if values.ndim > 1 or not len(ids) or (terms is not None and 2 * count > len(ids)):
        return added(blank(count) if terms is None else terms, ids, values)
    new, left = split_sums(ids, count, values, fullest)
    found = new if terms is None else added(terms, np.arange(count), new, unique=True)
    return added(found, ids[left], values[left])


def added(terms: Floats, ids: Ids, values: Numbers, unique: bool = False) -> Floats:
    """Sums with values added by id; maybe in another, wider array.

    `unique`: no id occurs twice.
    """
    if not len(ids):
        return terms
    if values.ndim == 1 and values.dtype.kind == "f":
        return _added(terms, ids, values.astype(np.float64, copy=False), unique)
    given = as_terms(values)
    near, far = _split(given.shape[1])
    for place in range(near):
        one = np.ascontiguousarray(given[:, place])
        if one.any():
            terms = _added(terms, ids, one, unique)
    if far:
        for row in np.flatnonzero(given[:, near:].any(axis=1)).tolist():
            terms = _with_far(terms)
            for value in given[row, near:].tolist():
                _add_far(terms[ids[row]], value)
    return terms


def _added(terms: Floats, ids: Ids, values: Floats, unique: bool) -> Floats:
    near, _ = _split(terms.shape[1])
    few = unique and len(ids) < _FEW if are_loaded() else len(ids) < MANY
    if few and (np.abs(values) < _HUGE).all():
        if unique and len(ids) >= _VERY_FEW:
            for place in range(near):
                values = _add_term(terms, place, ids, values)
            left = values.nonzero()[0]
            ids, values = ids[left], values[left]
        else:
            ids, values = _add_by_hand(terms, near, ids, values)
        if not len(ids):
            return terms
    loop = compiled_loops().add_terms
    of, given = read_only(ids), read_only(np.ascontiguousarray(values))
    row, far, rest = 0, np.empty(len(ids), np.int64), np.empty(1)
    while row < len(ids):
        row, found = loop(of, given, row, terms, near, far, rest)
        if found:
            terms = _with_far(terms)
            for at in far[:found].tolist():
                _add_far(terms[ids[at]], float(values[at]) * 2.0**-_SHIFT)
        if rest[0]:
            terms = _wider(terms, terms.shape[1] + 2)
            near += 2
            terms[ids[row - 1], near - 2] = rest[0]
    return terms


def _add_by_hand(terms: Floats, width: int, ids: Ids, values: Floats) -> tuple[Ids, Floats]:
    """Add values to terms in Python; returns ids and values without room."""
    given = ids.tolist()
    rows = dict(zip(given, terms[ids, :width].tolist()))
    left: list[tuple[int, float]] = []
    for at, value in zip(given, values.tolist()):
        row = rows[at]
        for place in range(width):
            before = row[place]
            row[place] = after = before + value
            part = after - before
            value = (before - (after - part)) + (value - part)
            if not value:
                break
        else:
            left.append((at, value))
    terms[list(rows), :width] = list(rows.values())
    return np.array([at for at, _ in left], np.intp), np.array([value for _, value in left])


def _add_term(terms: Floats, place: int, ids: Ids, values: Floats) -> Floats:
    """Add values to one term of each sum; returns the rounding errors."""
    before = terms[ids, place]
    after = before + values
    part = after - before
    terms[ids, place] = after
    rest: Floats = (before - (after - part)) + (values - part)
    return rest


def _add_far(row: Floats, value: float) -> None:
    """Add to the far terms of a sum."""
    if not isfinite(value) or not isfinite(row[-_FAR]):
        row[-_FAR] = float(row[-_FAR]) + value
        return
    left = sum(map(_units, row[-_FAR:].tolist())) + _units(value)
    for place in range(-_FAR, 0):
        row[place] = left / _UNIT
        left -= _units(float(row[place]))


def _units(value: float) -> int:
    above, below = value.as_integer_ratio()
    return above * (_UNIT // below)


def _split(width: int) -> tuple[int, int]:
    """Number of near and of far terms."""
    return (width - _FAR, _FAR) if width % 2 and width > 1 else (width, 0)


def _with_far(terms: Floats) -> Floats:
    near, far = _split(terms.shape[1])
    return terms if far else _wider(terms, max(near, _WIDTH) + _FAR)


def _wider(terms: Floats, width: int) -> Floats:
    """Copy of the sums in an array of this width, at least their own."""
    if width == terms.shape[1]:
        return terms
    near, far = _split(terms.shape[1])
    found = np.zeros((len(terms), width))
    found[:, :near] = terms[:, :near]
    if far:
        found[:, -_FAR:] = terms[:, -_FAR:]
    return found


def _shared(one: int, other: int) -> int:
    """Common width for sums of two widths."""
    (near, far), (more, others) = _split(one), _split(other)
    near = max(near, more, _WIDTH)
    return near + near % 2 + max(far, others)


def assigned(terms: Floats, where: Ids | slice, values: Numbers) -> Floats:
    """Sums with some replaced by `values`; maybe in another, wider array."""
    given = as_terms(values)
    width = _shared(terms.shape[1], given.shape[1])
    terms = _wider(terms, width)
    if given.shape[1] > 1 or (np.abs(given) < _HUGE).all():
        terms[where] = _wider(given, width)
        return terms
    ids = np.arange(where.start, where.stop) if isinstance(where, slice) else where
    terms[ids] = 0.0
    return added(terms, ids, given[:, 0])


def summed(many: Sequence[Numbers]) -> Floats:
    """Row-by-row sums of several arrays of numbers or sums."""
    first, *others = map(as_terms, many)
    found = assigned(blank(len(first)), slice(0, len(first)), first)
    for each in others:
        found = added(found, np.arange(len(each)), each, unique=True)
    return found


def stacked(many: Sequence[Numbers]) -> Numbers:
    """Concatenated arrays of numbers or sums; all as sums if one is."""
    if all(each.ndim == 1 for each in many) or len({each.shape[1:] for each in many}) == 1:
        return np.concatenate(many)
    given = list(map(as_terms, many))
    width = _WIDTH
    for each in given:
        width = _shared(width, each.shape[1])
    return np.concatenate([_wider(each, width) for each in given])


def rounded(terms: Floats) -> Floats:
    """Nearest floats to exact sums; 0.0, never -0.0."""
    near, far = _split(terms.shape[1])
    if near == 1:
        found: Floats = terms[:, 0] + 0.0
    elif near == _WIDTH or not terms[:, _WIDTH:near].any():
        found = terms[:, 0] + terms[:, 1]
        found += 0.0
    else:
        found = np.empty(len(terms))
        compiled_loops().round_terms(read_only(terms), near, found)
    if far:
        for row in np.flatnonzero(terms[:, near:].any(axis=1)).tolist():
            found[row] = _rounded_far(terms[row, :near].tolist(), terms[row, near:].tolist())
    none = found != found
    if none.any():
        found[none] = nan  # of which there are many
    return found


def means(terms: Numbers, counts: Numbers) -> Floats:
    """Sums divided by counts, as floats.

    Counts are 1 at least. A sum may be beyond floats.
    """
    if terms.ndim == 1:
        return terms.astype(np.float64) / counts
    found: Floats = rounded(terms) / counts
    near, _ = _split(terms.shape[1])
    for row in np.flatnonzero(np.isinf(found)).tolist():
        total = _exact(terms[row, :near].tolist(), terms[row, near:].tolist())
        if isinstance(total, int):
            found[row] = _divided(total, _UNIT * int(counts[row]))
    return found


def _exact(near: Sequence[float], far: Sequence[float]) -> int | float:
    """Exact sum in units of 2**-1074; a float if not finite."""
    odd = [value for value in (*near, *far) if not isfinite(value)]
    if odd:
        return float(sum(odd))
    return sum(map(_units, near)) + (sum(map(_units, far)) << _SHIFT)


def _rounded_far(near: Sequence[float], far: Sequence[float]) -> float:
    total = _exact(near, far)
    return total if isinstance(total, float) else _divided(total, _UNIT)


def _divided(above: int, below: int) -> float:
    try:
        return above / below
    except OverflowError:
        return inf if above > 0 else -inf


# Squares --------------------------------------------------------------------------------------------------------------


def squares(values: Numbers) -> Floats:
    """Square of each number as an exact sum.

    Of floats nearer to 0 than 1e-146 its last digits may be missing.
    """
    if values.dtype.kind == "f":
        return _squares(values.astype(np.float64, copy=False))
    low = values & 2047  # what is above has 53 bits
    high, rest = (values - low).astype(np.float64), low.astype(np.float64)
    if len(values) and max(int(values.max()), -int(values.min())) < _WHOLE:
        return _squares(values.astype(np.float64))
    own = rest * rest
    return np.stack([*_product(high, high), *_product(2 * high, rest), own, np.zeros_like(own)], axis=1)


def _squares(values: Floats) -> Floats:
    if len(values) < (_FEW if are_loaded() else MANY):
        return np.stack(_product(values, values)).T
    found = np.empty((2, len(values)))
    compiled_loops().square_terms(read_only(np.ascontiguousarray(values)), found)
    return found.T  # each of the two lies by itself


def _product(one: Numbers, other: Numbers) -> tuple[Floats, Floats]:
    """Product and its rounding error (Dekker)."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        product: Floats = one * other
        (a, b), (c, d) = _halves(one), _halves(other)
        rest: Floats = ((a * c - product) + a * d + b * c) + b * d
    rest[~np.isfinite(rest)] = 0.0
    return product, rest


def _halves(values: Numbers) -> tuple[Floats, Floats]:
    scaled = values * 134217729.0
    high: Floats = scaled - (scaled - values)
    return high, values - high


_SAFE = (2.0**-800, 2.0**480)
"""Safe range: squares above the first, sums below the second.

Their products are floats.
"""


def spreads(counts: npt.NDArray[np.int64], totals: Numbers, of_squares: Numbers) -> Floats:
    """Sums of squared deviations from the mean, from count, sum and squares."""
    total, square = as_terms(totals), as_terms(of_squares)
    (near, far), (width, others) = _split(total.shape[1]), _split(square.shape[1])
    found = np.zeros(len(counts))
    most, least = np.abs(total[:, :near]).max(axis=1, initial=0), np.abs(square[:, :width]).max(axis=1, initial=0)
    hard = ~(most < _SAFE[1]) | ((least > 0) & (least < _SAFE[0]))
    if far:
        hard |= total[:, near:].any(axis=1)
    if others:
        hard |= square[:, width:].any(axis=1)
    easy = np.flatnonzero(~hard & (counts > 0))
    if len(easy):
        made = np.empty(len(easy))
        compiled_loops().spread_terms(
            read_only(counts[easy]), _rows(total, easy, near), _rows(square, easy, width), made
        )
        found[easy] = made
    for row in np.flatnonzero(hard & (counts > 0)).tolist():
        found[row] = _spread(
            int(counts[row]),
            *(
                _exact(each[row, :some].tolist(), each[row, some:].tolist())
                for each, some in ((total, near), (square, width))
            ),
        )
    return found


def _rows(terms: Floats, rows: Ids, width: int) -> Floats:
    found: Floats = read_only(np.ascontiguousarray(terms[rows, :width]))
    return found


def _spread(count: int, total: int | float, square: int | float) -> float:
    if isinstance(total, float):
        return nan
    if isinstance(square, float):
        return nan if square != square else inf
    above = ((count * square) << 1074) - total * total
    return _divided(max(above, 0), count << 2148)
