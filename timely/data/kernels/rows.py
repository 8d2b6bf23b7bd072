"""Rows by key: append-only columns, with an index from the hash of a key to the rows that have it.

Rows are numbered as they come, and lie in pieces, each many times as long as the next: few enough that rows of all of them are
taken one piece after the other, and each row is copied O(log n) times in all (O'Neil et al., *The Log-Structured Merge-Tree*,
1996). So what a batch of rows costs to look up and to add grows with the batch, and hardly with what is there. Hashes only
choose candidates; whether keys are equal is for Polars to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias, TypeVar

import numpy as np
import polars as pl

from timely.data.batch import as_polars, concat
from timely.data.codec.hashing import Hashes, hash_columns
from timely.data.kernels.row_index import RowIndex
from timely.data.kernels.series import frame_of, gathered, rows_at, series_of, stacked
from timely.data.kernels.tables import Ids

ColumnList: TypeAlias = list[pl.Series]
"""The columns of some rows. A frame of them costs more to make than a few rows do to take."""

_STEP = 8
"""A piece is at least so many times as long as the next."""

UNSETTLED = 64
"""Pieces that may come until they are merged, though nobody takes rows of them."""

_SMALL = 1024
"""Shorter pieces are merged in any case."""

_CHUNKS = 8
"""The number of parts of a piece that lie side by side until they are copied to be one: Polars takes rows of so many well."""


P = TypeVar("P", bound=Sized)


def in_few_pieces(pieces: Iterable[P], merged: Callable[[list[P]], P]) -> list[P]:
    """Pieces in their order, neighbours merged until each is many times as long as the next."""
    groups: list[list[P]] = []
    lengths: list[int] = []
    for piece in pieces:
        group, count = [piece], len(piece)
        while groups and lengths[-1] < max(_STEP * count, _SMALL):
            group, count = groups.pop() + group, lengths.pop() + count
        groups.append(group)
        lengths.append(count)
    return [merged(group) if len(group) > 1 else group[0] for group in groups]


class KeyedFrame:
    """A frame with the hash of each row's key."""

    def __init__(self, frame: pl.DataFrame, keys: Sequence[str]) -> None:
        self.frame = frame
        columns = [frame.get_column(key) for key in keys]
        self.kinds = [column.dtype for column in columns]
        """The types of the key columns."""
        holes = [column.is_null().to_numpy() for column in columns if column.null_count()]
        self.numbers = [
            column.to_numpy() if is_plain(kind) and not column.null_count() else None
            for column, kind in zip(columns, self.kinds, strict=True)
        ]
        """Of the key columns that are numbers, without nulls: these. The way through Arrow costs more than hashing a few."""
        self.hashes: Hashes
        if not keys:  # one key for all
            self.hashes = np.zeros(len(frame), np.uint64)
        elif holes:
            self.hashes = hash_columns(columns)
        else:
            plain = zip(columns, self.numbers, strict=True)
            self.hashes = hash_columns([column if values is None else values for column, values in plain])
        self.places: Ids | None = np.flatnonzero(~np.logical_or.reduce(holes)) if holes else None
        """The rows without a null in their key, which matches nothing; None: all."""

    def chosen(self) -> Hashes:
        """The hashes of the rows at `places`."""
        return self.hashes if self.places is None else self.hashes[self.places]

    def take(self, rows: Ids) -> ColumnList:
        """The columns of the rows of these numbers."""
        return take(self.frame.get_columns(), rows)


def is_plain(kind: pl.DataType) -> bool:
    """True for the types of numbers."""
    return kind.is_integer() or kind.is_float()


def take(columns: ColumnList, rows: Ids) -> ColumnList:
    """The rows of these numbers. Column by column: work of a frame goes through Polars' threads, which few rows feel."""
    numbers = rows_at(rows)
    return [gathered(column, numbers) for column in columns]


def take_or_null(columns: ColumnList, rows: Ids) -> ColumnList:
    """The same, and nulls for the numbers below 0."""
    numbers = series_of("", rows)
    numbers = numbers.set(numbers < 0, None).cast(pl.UInt32)
    return [gathered(column, numbers) for column in columns]


def joined(many: Sequence[ColumnList], alike: bool = False) -> ColumnList:
    """All rows in order, in one piece of memory. `alike`: columns are surely of the same types."""
    if len(many) == 1:
        return many[0]
    columns = list(zip(*many, strict=True))
    if alike or all(part.dtype == parts[0].dtype for parts in columns for part in parts[1:]):
        return [stacked(parts) for parts in columns]
    return as_polars(concat([frame_of(parts) for parts in many])).rechunk().get_columns()


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


class RowsByKey:
    """The part that all kinds of rows by key have in common: the columns `keys` say which key a row has."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = list(keys)
        self._empty: pl.DataFrame | None = None
        self._names: list[str] = []
        self._kinds: list[pl.DataType] = []
        self._version = 0
        """The number of times that the types of columns have become wider."""

    def columns(self) -> pl.DataFrame | None:
        """The columns of the rows, without any row; None if there never were rows."""
        return self._empty

    def _accept(self, frame: pl.DataFrame) -> ColumnList:
        """The columns of new rows, in the order of those that are there, and of their types or wider ones.

        Raises:
            TypeError: if they are others.
        """
        if self._empty is None or frame.columns != self._names or frame.dtypes != self._kinds:
            self._empty = frame.clear() if self._empty is None else as_polars(concat([self._empty, frame.clear()]))
            self._version += self._empty.dtypes != self._kinds
            self._names, self._kinds = self._empty.columns, self._empty.dtypes
            frame = frame.select(self._names).cast(dict(zip(self._names, self._kinds, strict=True)))
        return frame.get_columns()

    def _check_types(self, given: KeyedFrame) -> None:
        for key, there in zip(self._keys, given.kinds, strict=True):
            self._check_type(key, there)

    def _check_type(self, column: str, there: pl.DataType) -> None:
        here = self._kinds[self._names.index(column)]
        if here != there:
            raise TypeError(
                f"the column {column!r} is {here} on one side and {there} on the other; cast it to one type"
            )

    def _keep_equal(self, given: KeyedFrame, met: Met) -> None:
        """Drop the pairs of which only the hashes are equal."""
        for key, kind, numbers in zip(self._keys, given.kinds, given.numbers, strict=True):
            theirs = met.columns[self._names.index(key)]
            if numbers is not None and kind.is_integer() and not theirs.null_count():
                same = numbers[met.places] == theirs.to_numpy()
            else:
                equal = gathered(given.frame.get_column(key), rows_at(met.places)) == theirs
                same = (equal.fill_null(False) if theirs.null_count() else equal).to_numpy()
            if not same.all():
                met.choose(np.flatnonzero(same))


class _Piece:
    """Rows from `start` on, and before `end`: columns of a few parts each, of the types of a version."""

    __slots__ = ("columns", "end", "parts", "start", "version")

    def __init__(self, start: int, end: int, columns: ColumnList, version: int, parts: int = 1) -> None:
        self.start = start
        self.end = end
        self.columns = columns
        self.version = version
        self.parts = parts

    def __len__(self) -> int:
        return self.end - self.start

    @classmethod
    def merged(cls, pieces: Sequence[_Piece]) -> _Piece:
        """One piece of several that follow each other."""
        first, last = pieces[0], pieces[-1]
        parts = sum(piece.parts for piece in pieces)
        alike = all(piece.version == first.version for piece in pieces)
        if parts > _CHUNKS or not alike:
            columns = joined([piece.columns for piece in pieces], alike)
            return cls(first.start, last.end, columns, last.version)
        for piece in pieces[1:]:
            for column, more in zip(first.columns, piece.columns, strict=True):
                column.append(more)
        return cls(first.start, last.end, first.columns, first.version, parts)


class KeyedRows(RowsByKey):
    """Rows, by the key that they have in the columns `keys`."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(keys)
        self._pieces: list[_Piece] = []
        self._unsettled = 0
        """The number of pieces that came since rows were taken: they are merged when somebody takes some."""
        self._index = RowIndex()

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._index)

    def append(self, given: KeyedFrame) -> None:
        """Add rows.

        Raises:
            TypeError: if their columns are not those of the rows that are there.
        """
        if not len(given.frame):
            return
        columns = self._accept(given.frame)
        start = len(self)
        self._index.add(given.hashes)
        self._pieces.append(_Piece(start, len(self), columns, self._version))
        self._unsettled += 1
        if self._unsettled > UNSETTLED:
            self._settle()

    def _settle(self) -> None:
        """Merge pieces, so that each is many times as long as the next."""
        if not self._unsettled:
            return
        self._pieces = in_few_pieces(self._pieces, _Piece.merged)
        self._unsettled = 0

    def truncate(self, count: int) -> None:
        """Forget all but the first `count` rows."""
        pieces = self._pieces
        while pieces and pieces[-1].start >= count:
            pieces.pop()
        if pieces and pieces[-1].end > count:
            last = pieces.pop()
            kept = [column.head(count - last.start) for column in last.columns]
            pieces.append(_Piece(last.start, count, kept, last.version, last.parts))
        self._index.truncate(count)

    def meet(self, given: KeyedFrame, by_row: bool = False) -> Met | None:
        """The rows with the keys of `given`, in the order of its rows, or (by_row) of theirs; None: there are none.

        Raises:
            TypeError: if a key column is of another type there.
        """
        if self._empty is None:
            return None
        self._check_types(given)
        places, rows = self._index.find(given.chosen())
        if not len(rows):
            return None
        if by_row:
            order = rows.argsort(kind="stable")
            places, rows = places[order], rows[order]
        met = Met(places if given.places is None else given.places[places], rows, self._take(rows))
        self._keep_equal(given, met)
        return met if len(met.rows) else None

    def _take(self, rows: Ids) -> ColumnList:
        """The columns of the rows of these numbers."""
        if len(rows) > self._unsettled:
            self._settle()
        pieces = self._pieces
        if len(pieces) == 1:
            return take(pieces[0].columns, rows)
        at = np.searchsorted([piece.start for piece in pieces], rows, side="right") - 1
        order = None if (at[1:] >= at[:-1]).all() else at.argsort(kind="stable")
        if order is not None:
            at, rows = at[order], rows[order]
        begins = np.flatnonzero(np.append(True, at[1:] != at[:-1])).tolist()
        taken = []
        alike = True
        for begin, end in pairwise([*begins, len(rows)]):
            piece = pieces[at[begin]]
            alike = alike and piece.version == pieces[at[0]].version
            taken.append(take(piece.columns, rows[begin:end] - piece.start))
        columns = joined(taken, alike)
        if order is None:
            return columns
        place = np.empty(len(order), np.intp)
        place[order] = np.arange(len(order))
        return take(columns, place)

    def between(self, start: int, end: int) -> Iterator[tuple[pl.DataFrame, Hashes]]:
        """The rows of these numbers in order, with their hashes, some at a time."""
        while start < end:
            piece = next(piece for piece in reversed(self._pieces) if piece.start <= start)
            stop = min(end, piece.end)
            first, last = start - piece.start, stop - piece.start
            yield frame_of([column[first:last] for column in piece.columns]), self._index.hashes(start, stop)
            start = stop

    def held(self) -> int:
        """Number of rows that are there."""
        return len(self)

    def pieces(self) -> int:
        """Number of pieces of which rows are taken one after the other."""
        self._settle()
        return len(self._pieces)

    def nbytes(self) -> int:
        """Bytes of the rows, roughly, with what it takes to find them."""
        columns = (column for piece in self._pieces for column in piece.columns)
        return int(sum(column.estimated_size() for column in columns)) + self._index.nbytes()
