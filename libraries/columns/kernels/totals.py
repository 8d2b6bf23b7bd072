"""Running aggregates by key, over any number of batches and partial tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from libraries.columns.kernels import sketches
from libraries.columns.kernels.added import Added, plain_values
from libraries.columns.kernels.index import KeyIndex
from libraries.columns.kernels.parts import EXACT, LIMIT, MADE, Kind, Part, dtype_of, identity, ufunc_of
from libraries.columns.kernels.reduce import reach_of
from timely.data.kernels.columns import (
    PLAIN,
    Numbers,
    column_of,
    whole,
)
from timely.data.kernels.series import frame_of, series_of
from timely.data.kernels.tables import Ids
from timely.data.sums import terms


class Result(NamedTuple):
    """Result column: a part, maybe divided by the count of its values."""

    name: str
    part: int
    """Index of the part."""
    by: int | None = None
    """Index of the part to divide by."""
    whole: bool = False
    """True if the part serves as the result for integers only."""


class Totals:
    """Parts by key, added up: an index of keys, and a dense array a part."""

    def __init__(self, keys: Sequence[str], parts: Sequence[Part], expected: int = 0) -> None:
        self.keys = list(keys)
        self.parts = list(parts)
        self.index = KeyIndex(len(keys), expected, [None if key.endswith(MADE) else key for key in keys])
        self._expected = expected
        self._arrays: list[Numbers] = []
        self._begun = 0
        """Number of keys with initialised parts; the rest of an array means nothing."""
        self._kinds: list[pa.DataType] = []
        self._reach: list[int] = [0] * len(self.parts)
        """Bound on the magnitude of each integer sum."""
        self._names = [part.name for part in self.parts]
        counts = {part.column: i for i, part in enumerate(self.parts) if part.kind == "values"}
        self._counts = [counts[part.column] if part.kind in ("min", "max") else None for part in self.parts]
        """Index of the part counting the values of a minimum or maximum."""

    def __len__(self) -> int:
        return len(self.index)

    def ids(self, keys: list[pa.Array], kinds: list[pa.DataType]) -> Ids:
        """Id of each row's key; new keys start from identities.

        `kinds`: the types of the parts that are to be added or put.
        """
        ids = self.index.ids(keys)
        if not self._arrays:
            self._kinds = kinds
            self._arrays = [_nothing(kind) for kind in kinds]
            self._reach = [0] * len(kinds)
        elif kinds != self._kinds:
            self._widen(kinds)
        count = len(self.index)
        if count > len(self._arrays[0]):
            size = max(64, 2 * count, self._expected)
            for i, array in enumerate(self._arrays):
                # Memory is taken only from where it is written.
                larger = np.empty((size, *array.shape[1:]), array.dtype)
                larger[: self._begun] = array[: self._begun]
                self._arrays[i] = larger
        if count > self._begun:
            for part, array in zip(self.parts, self._arrays, strict=True):
                array[self._begun : count] = identity(part.kind, array.dtype)
            self._begun = count
        return ids

    def _widen(self, kinds: list[pa.DataType]) -> None:
        """Widen part types: integers to floats, nulls to anything; else TypeError."""
        for i, (old, new) in enumerate(zip(self._kinds, kinds, strict=True)):
            if old.equals(new):
                continue
            part = self.parts[i]
            if pa.types.is_null(new):
                continue
            if pa.types.is_null(old):
                dtype = np.dtype(dtype_of(new))
                rows = len(self._arrays[i])
                none = terms.blank(rows) if terms.is_terms(new) else np.full(rows, identity(part.kind, dtype), dtype)
                self._arrays[i] = none
                self._kinds[i] = new
                continue
            # The least and the greatest of unsigned integers are held in a form of their own: see `in_their_order`.
            apart = part.kind in ("min", "max") and (pa.types.is_uint64(old) or pa.types.is_uint64(new))
            if apart or not all(map(_adds_up, (old, new))):
                raise TypeError(f"column {part.column!r} was of type {old} and is now {new}; cast it to one type")
            if terms.is_terms(old):  # which takes integers as well
                continue
            if terms.is_terms(new):
                self._arrays[i] = self._as_terms(self._arrays[i])
                self._kinds[i] = terms.TERMS
            elif pa.types.is_floating(old) or pa.types.is_floating(new):
                self._to_floats(i)
            elif EXACT in (old, new):
                self._to_objects(i)
            else:
                self._kinds[i] = pa.int64()

    def _as_terms(self, array: Numbers) -> Numbers:
        return terms.assigned(terms.blank(len(array)), slice(0, self._begun), array[: self._begun])

    def _to_floats(self, i: int) -> None:
        array = self._arrays[i]
        if array.dtype.kind != "f":
            count = self._counts[i]
            assert count is not None, "sums of floats are no floats"
            some = self._arrays[count][: self._begun] > 0
            floats = np.full(len(array), np.nan)
            floats[: self._begun][some] = _as_floats(array[: self._begun][some], str(self.parts[i].column))
            self._arrays[i] = floats
        self._kinds[i] = pa.float64()

    def _to_objects(self, i: int) -> None:
        self._arrays[i] = self._arrays[i].astype(object, copy=False)
        self._kinds[i] = EXACT

    def add(self, ids: Ids, added: Added, unique: bool) -> None:
        """Add rows by their keys' ids; `unique` if none occurs twice."""
        for i, (part, values, valid) in enumerate(zip(self.parts, added.values, added.valid, strict=True)):
            of = ids if valid is None else ids[valid]
            if self._arrays[i].ndim > 1:
                self._arrays[i] = terms.added(self._arrays[i], of, values, unique)
                continue
            if part.kind == "sketch":
                _merge(self._arrays[i], of, values)
                continue
            if part.kind == "sum" and self._arrays[i].dtype.kind == "i":
                self._make_room(i, values, 1 if unique else len(values))
            array = self._arrays[i]
            if array.dtype.kind == "O" and part.kind in ("min", "max"):
                _improve(array, of, values, part.kind)
                continue
            ufunc = ufunc_of(part.kind, array.dtype)
            if array.dtype.kind == "f":
                values = _as_floats(values, str(part.column))
            elif array.dtype != values.dtype:
                values = values.astype(array.dtype)
            if unique:
                array[of] = ufunc(array[of], values)
            else:
                ufunc.at(array, of, values)

    def _make_room(self, i: int, values: Numbers, times: int) -> None:
        """Switch to Python integers if sums of `values` could leave 64 bits.

        `times`: the most values for one key.
        """
        further = reach_of(values) * times
        if self._reach[i] + further >= LIMIT:
            self._reach[i] = reach_of(self._arrays[i][: len(self)])
            if self._reach[i] + further >= LIMIT:
                self._to_objects(i)
        self._reach[i] += further

    def gather(self, ids: Ids) -> list[Numbers]:
        """Copies of the parts of `ids`."""
        return [array.take(ids, axis=0) for array in self._arrays]

    def values(self) -> list[Numbers]:
        """Copies of the parts of all keys, by id."""
        return [array[: len(self)].copy() for array in self._arrays]

    def put(self, ids: Ids, values: Sequence[Numbers]) -> None:
        """Set the parts of `ids`."""
        for i, new in enumerate(values):
            self._set(i, ids, new)

    def _set(self, i: int, ids: Ids | slice, values: Numbers) -> None:
        """Set part `i` of some keys."""
        if self._arrays[i].ndim > 1:
            self._arrays[i] = terms.assigned(self._arrays[i], ids, values)
            return
        self._arrays[i][ids] = values
        self._reached(i, values)

    def _reached(self, i: int, values: Numbers) -> None:
        """Update the magnitude bound of part `i` for `values`."""
        if self.parts[i].kind == "sum" and values.dtype.kind == "i":
            self._reach[i] = max(self._reach[i], reach_of(values))

    def clear(self, ids: Ids) -> None:
        """Reset the parts of `ids` to identities."""
        for part, array in zip(self.parts, self._arrays, strict=True):
            array[ids] = identity(part.kind, array.dtype)

    def of(self, part: Part) -> Numbers:
        """One part of all keys, by id, valid until rows are added."""
        return self._arrays[self.parts.index(part)][: len(self)] if self._arrays else np.zeros(0, np.int64)

    def put_table(self, ids: Ids, table: pa.Table) -> None:
        """Set the parts of distinct `ids` from a partial table."""
        first, count = (int(ids[0]), len(ids)) if len(ids) else (0, 0)
        rising = count > 0 and int(ids[-1]) == first + count - 1 and bool((np.diff(ids) == 1).all())
        where: Ids | slice = slice(first, first + count) if rising else ids
        for i, part in enumerate(self.parts):
            column, at = whole(table[part.name]), where
            if column.null_count:  # a group that had no values
                array = self._arrays[i]
                array[where] = identity(part.kind, array.dtype)
                at = ids[column.is_valid().to_numpy(zero_copy_only=False)]
                column = column.drop_null()
            self._set(i, at, plain_values(column))

    def truncate(self, count: int) -> None:
        """Forget all but the first `count` keys."""
        self._begun = min(self._begun, count)
        self.index.truncate(count)

    def table(self, ids: Ids, values: Sequence[Numbers] | None = None) -> pa.Table:
        """Partial table of `ids`, with their current parts or the given ones."""
        columns = self.columns(ids, self.gather(ids) if values is None else values)
        return pa.Table.from_arrays(list(columns.values()), list(columns))

    def columns(
        self, ids: Ids | None, values: Sequence[Numbers], only: Collection[Part] | None = None
    ) -> dict[str, pa.Array]:
        """Columns of a partial table of `ids` (None: all keys) with these part values.

        `only`: just those of the parts.
        """
        result = dict(zip(self.keys, self.index.keys(ids), strict=True))
        for part, name, count, kind, array in zip(
            self.parts, self._names, self._counts, self._kinds, values, strict=True
        ):
            if only is None or part in only:
                result[name] = column_of(array, kind, None if count is None else values[count] == 0)
        return result

    def frame(self, ids: Ids, values: Sequence[Numbers], named: Sequence[Result]) -> pl.DataFrame | None:
        """Keys `ids` and results of their part values, as a frame.

        For a few rows that costs much less than Arrow. None if there is more to it than 64-bit numbers and little text.
        """
        kinds = [(self._kinds[result.part], result.whole) for result in named]
        if not all(kind.id in PLAIN or (terms.is_terms(kind) and not whole) for kind, whole in kinds):
            return None
        columns = self.index.series(self.keys, ids)
        if columns is None:
            return None
        for name, i, by, _ in named:
            found, count = values[i], self._counts[i]
            if by is not None:
                count = by
                found = terms.means(found, np.maximum(values[by], 1))
            elif found.dtype.kind == "f":
                found = terms.rounded(found) if found.ndim > 1 else found + 0.0  # one zero
            column = series_of(name, found)
            if count is not None and not values[count].all():
                column = column.set(series_of("", values[count] == 0), None)
            columns.append(column)
        return frame_of(columns)

    def nbytes(self) -> int:
        """Estimate of bytes held."""
        arrays = zip(self.parts, self._arrays, strict=bool(self._arrays))
        sketched = sum(sketches.size_of(array[: len(self)]) for part, array in arrays if part.kind == "sketch")
        return self.index.nbytes() + sum(array.nbytes for array in self._arrays) + sketched


def _nothing(kind: pa.DataType) -> Numbers:
    return terms.blank(0) if terms.is_terms(kind) else np.zeros(0, dtype_of(kind))


def _adds_up(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or kind.equals(EXACT) or terms.is_terms(kind))


def _as_floats(values: Numbers, column: str) -> Numbers:
    """Numbers as floats; TypeError if an integer is not exactly representable.

    For minima and maxima only: sums are not rounded.

    Raises:
        TypeError: if one would be another one.
    """
    if values.dtype.kind == "f":
        return values
    floats = values.astype(np.float64)
    for value in values[np.abs(floats) >= _WHOLE].tolist():
        if int(float(value)) != value:
            raise TypeError(
                f"column {column!r} was of integers, of floats, and has {value}, which is no float of 64 bits; cast it to one "
                "type"
            )
    return floats


_WHOLE = 2.0**53
"""Magnitude bound of integers certain to be exact as floats."""


def _merge(held: Numbers, ids: Ids, values: Numbers) -> None:
    """Merge sketches into those held for `ids`."""
    if not len(ids):
        return
    touched, at = np.unique(ids, return_inverse=True)
    groups = np.concatenate([np.arange(len(touched)), at])
    held[touched] = sketches.merged(groups, len(touched), np.concatenate([held[touched], values]))


def _improve(held: Numbers, ids: Ids, values: Numbers, kind: Kind) -> None:
    """Update minima or maxima of non-numeric values held for `ids`."""
    for at, value in zip(ids.tolist(), values, strict=True):
        before = held[at]
        if before is None or (value < before if kind == "min" else value > before):
            held[at] = value
