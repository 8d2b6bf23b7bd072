"""Append-only columns with random access to rows by number.

Rows wait as they came until somebody takes some. Then columns of numbers without nulls are copied to arrays that grow, so that
taking rows of them is one step; others lie in pieces, each many times as long as the next: few enough that rows of all of
them are taken one piece after the other, and each row is copied O(log n) times in all (O'Neil et al., *The Log-Structured
Merge-Tree*, 1996).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import pairwise
from typing import TypeAlias, TypeVar

import numpy as np
import polars as pl

from timely.data.batch import as_polars, concat
from timely.data.kernels.series import Array, frame_of, gathered, rows_at, series_of, stacked
from timely.data.kernels.tables import Ids

ColumnList: TypeAlias = list[pl.Series]
"""Columns of some rows.

A frame of them costs more to make than a few rows do to take.
"""

_STEP = 8
"""Least ratio of the lengths of neighbouring pieces."""

UNSETTLED = 64
"""Most short pieces waiting for a merge."""

SMALL = 1024
"""Minimum length of a piece; shorter ones are always merged."""

_LEAST = 1 << 14
"""Minimum length of a settled piece; shorter ones are merged.

To take rows of two pieces costs more than to copy so many at times. They need no sorting.
"""

_CHUNKS = 8
"""Most chunks of a piece before they are copied into one.

Polars takes rows of so many well.
"""

_NUMBERS = (pl.Int64, pl.Float64, pl.Int32, pl.Int8, pl.UInt32, pl.UInt64)
"""Column types stored as arrays."""

P = TypeVar("P", bound=Sized)


def in_few_pieces(pieces: Iterable[P], merged: Callable[[list[P]], P], least: int = SMALL) -> list[P]:
    """Merge neighbours until each piece is much longer than the next.

    Each has the `least` length then.
    """
    groups: list[list[P]] = []
    lengths: list[int] = []
    for piece in pieces:
        group, count = [piece], len(piece)
        while groups and lengths[-1] < max(_STEP * count, least):
            group, count = groups.pop() + group, lengths.pop() + count
        groups.append(group)
        lengths.append(count)
    return [merged(group) if len(group) > 1 else group[0] for group in groups]


def take(columns: ColumnList, rows: Ids) -> ColumnList:
    """Columns at the given row numbers.

    Column by column: work of a frame goes through Polars' threads, which few rows feel.
    """
    numbers = rows_at(rows)
    return [gathered(column, numbers) for column in columns]


def take_or_null(columns: ColumnList, rows: Ids) -> ColumnList:
    """Columns at the given row numbers; null for numbers below 0."""
    numbers = series_of("", rows)
    numbers = numbers.set(numbers < 0, None).cast(pl.UInt32)
    return [gathered(column, numbers) for column in columns]


def joined(many: Sequence[ColumnList], alike: bool = False) -> ColumnList:
    """Concatenated columns in one piece of memory.

    `alike`: columns are surely of the same types.
    """
    if len(many) == 1:
        return many[0]
    columns = list(zip(*many, strict=True))
    if alike or all(part.dtype == parts[0].dtype for parts in columns for part in parts[1:]):
        return [stacked(parts) for parts in columns]
    return as_polars(concat([frame_of(parts) for parts in many])).rechunk().get_columns()


class _Piece:
    """Rows `start` to `end`: columns of a few chunks, of one schema version."""

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
        """Concatenation of adjacent pieces."""
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


class RowStore:
    """Append-only rows by number."""

    def __init__(self) -> None:
        self._count = 0
        self._waiting: list[_Piece] = []
        """The last rows, as they came."""
        self._short = 0
        """Number of short pieces in `_waiting`."""
        self._arrays: dict[int, Array] | None = None
        """Values of numeric columns by column number, with room for more.

        None: nothing was settled yet.
        """
        self._pieces: list[_Piece] = []
        """Other columns of the first rows."""
        self._names: list[str] = []
        self._version = 0

    def __len__(self) -> int:
        return self._count

    @property
    def _settled(self) -> int:
        """Number of settled rows, not waiting."""
        return self._waiting[0].start if self._waiting else self._count

    @property
    def waits(self) -> bool:
        """True if unsettled rows are held."""
        return bool(self._waiting)

    def append(self, columns: ColumnList, version: int) -> None:
        """Add rows, one at least, of the schema version.

        Columns are of the same types where the version is the same, and else of wider ones.
        """
        start, count = self._count, len(columns[0])
        self._count += count
        self._waiting.append(_Piece(start, self._count, columns, version))
        self._short += count < SMALL
        if self._short > UNSETTLED:
            self._settle()

    def take(self, rows: Ids) -> ColumnList:
        """Columns at the given row numbers."""
        if len(rows) > len(self._waiting) or self._short:
            self._settle()
            return self._take_settled(rows)
        return self._in_pieces(rows, self._waiting, self._settled)

    def truncate(self, count: int) -> None:
        """Forget all but the first `count` rows."""
        self._waiting = _first(self._waiting, count)
        self._pieces = _first(self._pieces, count)
        self._short = sum(len(piece) < SMALL for piece in self._waiting)
        self._count = min(self._count, count)

    def between(self, start: int, end: int) -> Iterator[pl.DataFrame]:
        """Rows by number range, in order, some at a time."""
        self._settle()
        while start < end:
            stop = end
            found: dict[int, pl.Series] = {}
            if self._pieces:
                piece = next(piece for piece in reversed(self._pieces) if piece.start <= start)
                stop = min(end, piece.end)
                of_piece = (column[start - piece.start : stop - piece.start] for column in piece.columns)
                found = dict(zip(self._others(), of_piece, strict=True))
            for number, array in (self._arrays or {}).items():
                # A copy, as a series shares the memory of its array: rows that come after a truncation are written there.
                found[number] = series_of(self._names[number], array[start:stop].copy())
            yield frame_of([found[number] for number in range(len(found))])
            start = stop

    def pieces(self) -> int:
        """Number of settled pieces."""
        self._settle()
        return max(1, len(self._pieces)) if self._count else 0

    def nbytes(self) -> int:
        """Estimate of bytes held by rows."""
        columns = (column for piece in (*self._pieces, *self._waiting) for column in piece.columns)
        return int(sum(column.estimated_size() for column in columns)) + sum(
            array.itemsize * self._settled for array in (self._arrays or {}).values()
        )

    def _others(self) -> list[int]:
        """Numbers of the columns not stored as arrays."""
        return [number for number in range(len(self._names)) if number not in (self._arrays or ())]

    def _settle(self) -> None:
        """Settle waiting rows into arrays and pieces."""
        waiting = self._waiting
        if not waiting:
            return
        if self._arrays is None:
            self._names, self._version = [column.name for column in waiting[0].columns], waiting[0].version
            kinds = [type(column.dtype) for column in waiting[0].columns]
            self._arrays = {number: np.empty(0) for number, kind in enumerate(kinds) if kind in _NUMBERS}
        arrays = self._arrays
        if arrays and (
            waiting[-1].version != self._version
            or any(piece.columns[number].null_count() for piece in waiting for number in arrays)
        ):
            self._give_up_arrays()
            arrays = {}
        start = waiting[0].start
        for number, array in arrays.items():
            if self._count > len(array):
                array = arrays[number] = _longer(array, start, 2 * self._count, waiting[0].columns[number])
            for piece in waiting:
                array[piece.start : piece.end] = piece.columns[number].to_numpy()
        if others := self._others():
            self._pieces += [
                _Piece(piece.start, piece.end, [piece.columns[number] for number in others], piece.version, piece.parts)
                for piece in waiting
            ]
            self._pieces = in_few_pieces(self._pieces, _Piece.merged, _LEAST)
        self._waiting, self._short = [], 0

    def _give_up_arrays(self) -> None:
        """Move array columns into pieces, after a change of type or a null."""
        held, others, end = self._arrays or {}, self._others(), self._settled
        self._arrays = {}
        if not end:
            return
        columns: dict[int, pl.Series] = {
            number: series_of(self._names[number], array[:end]) for number, array in held.items()
        }
        pieces = self._pieces
        if others:
            alike = all(piece.version == pieces[0].version for piece in pieces)
            columns.update(zip(others, joined([piece.columns for piece in pieces], alike), strict=True))
        version = pieces[-1].version if pieces else self._version
        self._pieces = [_Piece(0, end, [columns[number] for number in range(len(self._names))], version)]

    def _take_settled(self, rows: Ids) -> ColumnList:
        """Columns of settled rows."""
        arrays, names = self._arrays or {}, self._names
        if len(arrays) == len(names):
            return [series_of(name, arrays[number][rows]) for number, name in enumerate(names)]
        others = iter(self._in_pieces(rows, self._pieces, 0))
        return [
            series_of(name, arrays[number][rows]) if number in arrays else next(others)
            for number, name in enumerate(names)
        ]

    def _in_pieces(self, rows: Ids, pieces: Sequence[_Piece], settled: int) -> ColumnList:
        """Columns of rows in `pieces`; rows before them are the first `settled`."""
        if len(pieces) == 1 and not settled:
            return take(pieces[0].columns, rows)
        at = np.searchsorted([piece.start for piece in pieces], rows, side="right") - 1
        order = None if (at[1:] >= at[:-1]).all() else at.argsort(kind="stable")
        if order is not None:
            at, rows = at[order], rows[order]
        begins = np.flatnonzero(np.append(True, at[1:] != at[:-1])).tolist()
        taken, versions = [], set()
        for begin, end in pairwise([*begins, len(rows)]):
            if at[begin] < 0:
                taken.append(self._take_settled(rows[begin:end]))
                versions.add(self._pieces[-1].version if self._pieces else self._version)
            else:
                piece = pieces[at[begin]]
                versions.add(piece.version)
                taken.append(take(piece.columns, rows[begin:end] - piece.start))
        columns = joined(taken, len(versions) == 1)
        if order is None:
            return columns
        place = np.empty(len(order), np.intp)
        place[order] = np.arange(len(order))
        return take(columns, place)


def _first(pieces: list[_Piece], count: int) -> list[_Piece]:
    """Pieces of the first `count` rows."""
    pieces = [piece for piece in pieces if piece.start < count]
    if pieces and pieces[-1].end > count:
        last = pieces.pop()
        kept = [column.head(count - last.start) for column in last.columns]
        pieces.append(_Piece(last.start, count, kept, last.version, last.parts))
    return pieces


def _longer(array: Array, used: int, size: int, like: pl.Series) -> Array:
    """Larger array with the used values copied."""
    larger = np.empty(size, like.to_numpy().dtype)  # which takes memory only from where it is written
    larger[:used] = array[:used]
    return larger
