"""Rows by key: append-only columns, with an index from the hash of a key to the rows that have it.

Rows are numbered as they come, and lie in pieces, each many times as long as the next: few enough to be looked into one by
one, and each row is copied O(log n) times in all (O'Neil et al., *The Log-Structured Merge-Tree*, 1996). A piece has its
hashes sorted, from when a small batch first looks into it. So what a batch of rows costs to look up and to add grows with the
batch, and hardly with what is there. Hashes only choose candidates; whether keys are equal is for Polars to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import polars as pl

from timely.data.batch import as_polars, concat
from timely.data.codec.hashing import Hashes, hash_columns
from timely.data.kernels.tables import Ids

ColumnList: TypeAlias = list[pl.Series]
"""The columns of some rows. A frame of them costs more to make than a few rows do to take."""

_STEP = 8
"""A piece is at least so many times as long as the next; and a batch that is longer than this part of it reads all of it."""

_SMALL = 1024
"""Shorter pieces are merged in any case."""

_MANY = 4096
"""From here on Polars' hash join is faster than sorting."""

_SORTED_FIRST = 256
"""From here on sorting what is looked up pays: the search then goes through memory in order."""


class KeyedFrame:
    """A frame with the hash of each row's key."""

    def __init__(self, frame: pl.DataFrame, keys: Sequence[str]) -> None:
        self.frame = frame
        columns = [frame[key] for key in keys]
        holes = [column.is_null().to_numpy() for column in columns if column.null_count()]
        self.hashes = hash_columns(columns if holes else [_plain(column) for column in columns])
        self.places: Ids | None = np.flatnonzero(~np.logical_or.reduce(holes)) if holes else None
        """The rows without a null in their key, which matches nothing; None: all."""

    def take(self, rows: Ids) -> ColumnList:
        """The columns of the rows of these numbers."""
        return take(self.frame.get_columns(), rows)


def _plain(column: pl.Series) -> object:
    """Numbers without the way through Arrow, which costs more than hashing a few of them."""
    return column.to_numpy() if column.dtype.is_integer() or column.dtype.is_float() else column


def take(columns: ColumnList, rows: Ids) -> ColumnList:
    """The rows of these numbers. Column by column: work of a frame goes through Polars' threads, which few rows feel."""
    numbers = pl.Series(rows.astype(np.uint32))
    return [column[numbers] for column in columns]


def take_or_null(columns: ColumnList, rows: Ids) -> ColumnList:
    """The same, and nulls for the numbers below 0."""
    numbers = pl.Series(rows)
    numbers = numbers.set(numbers < 0, None).cast(pl.UInt32)
    return [column[numbers] for column in columns]


def joined(many: Sequence[ColumnList]) -> ColumnList:
    """All rows in order, in one piece of memory."""
    if len(many) == 1:
        return many[0]
    columns = list(zip(*many, strict=True))
    if all(part.dtype == parts[0].dtype for parts in columns for part in parts[1:]):
        return [pl.concat(parts, rechunk=True) for parts in columns]
    return as_polars(concat([pl.DataFrame(parts) for parts in many])).rechunk().get_columns()


@dataclass(slots=True)
class Met:
    """Rows that were looked up (their places) and rows with their keys (their numbers, and their columns), in pairs."""

    places: Ids
    rows: Ids
    columns: ColumnList

    def choose(self, chosen: Ids) -> None:
        """Keep these pairs, in this order."""
        self.places, self.rows = self.places[chosen], self.rows[chosen]
        self.columns = take(self.columns, chosen)


class _Piece:
    __slots__ = ("_order", "_sorted", "columns", "hashes", "start")

    def __init__(self, start: int, columns: ColumnList, hashes: Hashes) -> None:
        self.start = start
        self.columns = columns
        self.hashes = hashes
        self._sorted: Hashes | None = None
        self._order: Ids | None = None

    def __len__(self) -> int:
        return len(self.hashes)

    def index(self) -> tuple[Hashes, Ids]:
        """The hashes in order, and the row of each."""
        if self._sorted is None or self._order is None:
            self._order = np.argsort(self.hashes, kind="stable")
            self._sorted = self.hashes[self._order]
        return self._sorted, self._order

    def merged(self, newer: _Piece) -> _Piece:
        piece = _Piece(self.start, joined([self.columns, newer.columns]), np.concatenate([self.hashes, newer.hashes]))
        if self._sorted is not None:
            pairs = [self.index(), newer.index()]
            hashes = np.concatenate([pair[0] for pair in pairs])
            order = np.argsort(hashes, kind="stable")  # a merge, as it notices that both halves are sorted
            piece._sorted = hashes[order]
            piece._order = np.concatenate([pairs[0][1], pairs[1][1] + len(self)])[order]
        return piece

    def cut(self, count: int) -> _Piece:
        return _Piece(self.start, [column.head(count) for column in self.columns], self.hashes[:count])

    def find(self, hashes: Hashes) -> tuple[Ids, Ids]:
        """The pairs of equal hashes: place and row here, in this order."""
        if len(hashes) >= _MANY and len(self) <= _STEP * len(hashes) and self._sorted is None:
            return self._find_all(hashes)
        known, order = self.index()
        first, last = _ranges(known, hashes)
        counts = last - first
        hit = np.flatnonzero(counts)
        counts = counts[hit]
        if not len(hit):
            return hit, hit
        ends = np.cumsum(counts)
        at = np.arange(ends[-1]) + np.repeat(first[hit] - ends + counts, counts)
        return np.repeat(hit, counts), order[at]

    def _find_all(self, hashes: Hashes) -> tuple[Ids, Ids]:
        sides = (pl.DataFrame({"hash": each}).with_row_index("row") for each in (hashes, self.hashes))
        left, right = sides
        pairs = left.join(right, on="hash", maintain_order="left_right")
        return pairs["row"].to_numpy().astype(np.intp), pairs["row_right"].to_numpy().astype(np.intp)


def _ranges(known: Hashes, hashes: Hashes) -> tuple[Ids, Ids]:
    if len(hashes) < _SORTED_FIRST:
        return np.searchsorted(known, hashes), np.searchsorted(known, hashes, side="right")
    order = np.argsort(hashes)
    first, last = np.empty(len(hashes), np.intp), np.empty(len(hashes), np.intp)
    first[order] = np.searchsorted(known, hashes[order])
    last[order] = np.searchsorted(known, hashes[order], side="right")
    return first, last


class KeyedRows:
    """Rows, by the key that they have in the columns `keys`."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = list(keys)
        self._pieces: list[_Piece] = []
        self._empty: pl.DataFrame | None = None

    def __len__(self) -> int:
        return self._pieces[-1].start + len(self._pieces[-1]) if self._pieces else 0

    def append(self, given: KeyedFrame) -> None:
        """Add rows.

        Raises:
            TypeError: if their columns are not those of the rows that are there.
        """
        frame = given.frame
        if not len(frame):
            return
        if self._empty is None:
            self._empty = frame.clear()
        elif frame.dtypes != self._empty.dtypes or frame.columns != self._empty.columns:
            self._empty = as_polars(concat([self._empty, frame.clear()]))
            frame = frame.select(self._empty.columns)
        newest = _Piece(len(self), frame.get_columns(), given.hashes)
        while self._pieces and len(self._pieces[-1]) < max(_STEP * len(newest), _SMALL):
            newest = self._pieces.pop().merged(newest)
        self._pieces.append(newest)

    def truncate(self, count: int) -> None:
        """Forget all but the first `count` rows."""
        while self._pieces and self._pieces[-1].start >= count:
            self._pieces.pop()
        if count < len(self):
            last = self._pieces.pop()
            self._pieces.append(last.cut(count - last.start))

    def meet(self, given: KeyedFrame, by_row: bool = False) -> Met | None:
        """The rows with the keys of `given`, in the order of its rows, or (by_row) of theirs; None: there are none.

        Raises:
            TypeError: if a key column is of another type there.
        """
        hashes = given.hashes if given.places is None else given.hashes[given.places]
        if self._empty is None or not len(hashes):
            return None
        for key in self._keys:
            here, there = self._empty[key].dtype, given.frame[key].dtype
            if here != there:
                raise TypeError(
                    f"the key column {key!r} is {here} on one side and {there} on the other; cast it to one type"
                )
        places, rows, many = [], [], []
        for piece in self._pieces:
            at, found = piece.find(hashes)
            if len(at):
                if by_row:
                    order = np.argsort(found, kind="stable")
                    at, found = at[order], found[order]
                places.append(at)
                rows.append(found + piece.start)
                many.append(take(piece.columns, found))
        if not many:
            return None
        met = Met(np.concatenate(places), np.concatenate(rows), joined(many))
        if len(many) > 1 and not by_row:
            met.choose(np.argsort(met.places, kind="stable"))
        if given.places is not None:
            met.places = given.places[met.places]
        self._keep_equal(given, met)
        return met if len(met.rows) else None

    def _keep_equal(self, given: KeyedFrame, met: Met) -> None:
        """Drop the pairs of which only the hashes are equal."""
        names = self._empty.columns if self._empty is not None else []
        for key in self._keys:
            theirs = met.columns[names.index(key)]
            equal = take([given.frame[key]], met.places)[0] == theirs
            if theirs.null_count():
                equal = equal.fill_null(False)
            if not equal.all():
                met.choose(np.flatnonzero(equal.to_numpy()))

    def between(self, start: int, end: int) -> Iterator[tuple[pl.DataFrame, Hashes]]:
        """The rows of these numbers in order, with their hashes, some at a time."""
        while start < end:
            piece = next(piece for piece in reversed(self._pieces) if piece.start <= start)
            first = start - piece.start
            count = min(len(piece) - first, end - start)
            yield (
                pl.DataFrame([column.slice(first, count) for column in piece.columns]),
                piece.hashes[first : first + count],
            )
            start += count

    def columns(self) -> pl.DataFrame | None:
        """The columns of the rows, without any row; None if there never were rows."""
        return self._empty

    def pieces(self) -> int:
        """Number of pieces."""
        return len(self._pieces)

    def nbytes(self) -> int:
        """Bytes of the rows, roughly, with what it takes to find them."""
        columns = (column for piece in self._pieces for column in piece.columns)
        return int(sum(column.estimated_size() for column in columns)) + 24 * len(self)
