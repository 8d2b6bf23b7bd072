"""Rows by key: append-only columns, with an index from the hash of a key to the rows that have it.

Rows are numbered as they come, and lie in pieces, each many times as long as the next: few enough to be looked into one by
one, and each row is copied O(log n) times in all (O'Neil et al., *The Log-Structured Merge-Tree*, 1996). A piece has its
hashes sorted, from when a small batch first looks into it. So what a batch of rows costs to look up and to add grows with the
batch, and hardly with what is there. Hashes only choose candidates; whether keys are equal is for Polars to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from timely.data.batch import as_polars, concat
from timely.data.codec.hashing import Hashes, hash_columns
from timely.data.kernels.series import frame_of, gathered, rows_at, series_of, stacked
from timely.data.kernels.tables import Ids

ColumnList: TypeAlias = list[pl.Series]
"""The columns of some rows. A frame of them costs more to make than a few rows do to take."""

Moments: TypeAlias = npt.NDArray[Any]
"""The places of rows in an order, as numbers of 64 bits or fewer."""

_STEP = 8
"""A piece is at least so many times as long as the next; and a batch that is longer than this part of it reads all of it."""

_UNSETTLED = 64
"""Pieces that may come until they are merged, though nobody looks into them."""

_FEW_ASKED = 16
"""The number of keys that are sought in a piece by reading all of it, until its hashes are sorted; sorting costs more."""

_LONG = 1 << 15
"""From so many rows on pieces are not merged for a few keys."""

_CACHED = 1 << 16
"""The number of hashes that are searched in any order: they are near anyway."""

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
        columns = [frame.get_column(key) for key in keys]
        holes = [column.is_null().to_numpy() for column in columns if column.null_count()]
        self.hashes: Hashes
        if not keys:  # one key for all
            self.hashes = np.zeros(len(frame), np.uint64)
        else:
            self.hashes = hash_columns(columns if holes else [_plain(column) for column in columns])
        self.places: Ids | None = np.flatnonzero(~np.logical_or.reduce(holes)) if holes else None
        """The rows without a null in their key, which matches nothing; None: all."""

    def chosen(self) -> Hashes:
        """The hashes of the rows at `places`."""
        return self.hashes if self.places is None else self.hashes[self.places]

    def take(self, rows: Ids) -> ColumnList:
        """The columns of the rows of these numbers."""
        return take(self.frame.get_columns(), rows)


def _plain(column: pl.Series) -> object:
    """Numbers without the way through Arrow, which costs more than hashing a few of them."""
    return column.to_numpy() if _is_plain(column.dtype) else column


def _is_plain(kind: pl.DataType) -> bool:
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


def joined(many: Sequence[ColumnList]) -> ColumnList:
    """All rows in order, in one piece of memory."""
    if len(many) == 1:
        return many[0]
    columns = list(zip(*many, strict=True))
    if all(part.dtype == parts[0].dtype for parts in columns for part in parts[1:]):
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


def moments(column: pl.Series) -> Moments:
    """Numbers, dates and instants as numbers that can be searched for.

    Raises:
        TypeError: for columns of anything else. ValueError: for nulls and NaN, which have no place in an order.
    """
    numbers = column.to_physical()
    if not _is_plain(numbers.dtype):
        raise TypeError(f"rows are ordered by numbers, dates or datetimes, and {column.name!r} is {column.dtype}")
    if numbers.null_count() or (numbers.dtype.is_float() and numbers.is_nan().any()):
        raise ValueError(f"null and NaN have no place in the order of {column.name!r}: filter such rows out before")
    return numbers.to_numpy()


class _Piece:
    __slots__ = (
        "_middle",
        "_numbers",
        "_order",
        "_ordered",
        "_read",
        "_sorted",
        "at",
        "columns",
        "end",
        "hashes",
        "start",
    )

    def __init__(
        self,
        start: int,
        end: int,
        columns: ColumnList,
        hashes: Hashes,
        at: Moments | None = None,
        numbers: Ids | None = None,
    ) -> None:
        self.start = start
        self.end = end
        self.columns = columns
        self.hashes = hashes
        self.at = at
        """The places of rows of one key in their order; None: they have none but their numbers."""
        self._sorted: Hashes | None = None
        self._order: Ids | None = None
        self._ordered: tuple[Moments, bool] | None = None
        self._numbers = numbers  # None: all from `start` to `end` are there
        self._middle: Any = None
        self._read = 0
        """The number of keys that were sought by reading all."""

    def __len__(self) -> int:
        return len(self.hashes)

    def index(self) -> tuple[Hashes, Ids]:
        """The hashes in order, and the row of each."""
        if self._sorted is None or self._order is None:
            at = self.at
            self._order = np.argsort(self.hashes, kind="stable") if at is None else np.lexsort((at, self.hashes))
            self._sorted = self.hashes[self._order]
        return self._sorted, self._order

    @classmethod
    def merged(cls, pieces: Sequence[_Piece]) -> _Piece:
        """One piece of several that follow each other."""
        oldest, newest = pieces[0], pieces[-1]
        hashes = np.concatenate([piece.hashes for piece in pieces])
        at = None if oldest.at is None else np.concatenate([piece.at for piece in pieces if piece.at is not None])
        whole = all(piece._numbers is None for piece in pieces)
        numbers = None if whole else np.concatenate([piece.numbers() for piece in pieces])
        merged = cls(oldest.start, newest.end, joined([piece.columns for piece in pieces]), hashes, at, numbers)
        if oldest._sorted is not None and at is None:
            indexes = [piece.index() for piece in pieces]
            hashes = np.concatenate([known for known, _ in indexes])
            order = hashes.argsort(kind="stable")  # a merge, as it notices that the parts are sorted
            merged._sorted = hashes[order]
            before = np.cumsum([0, *map(len, pieces[:-1])])
            merged._order = np.concatenate([rows + count for (_, rows), count in zip(indexes, before, strict=True)])[
                order
            ]
        return merged

    def numbers(self, rows: Ids | None = None) -> Ids:
        """The numbers of these rows; None: of all."""
        if rows is None:
            return np.arange(self.start, self.end) if self._numbers is None else self._numbers
        return rows + self.start if self._numbers is None else self._numbers[rows]

    def places(self, *numbers: int) -> list[int]:
        """The places here at which the rows from these numbers on begin."""
        if self._numbers is None:
            return [number - self.start for number in numbers]
        return [int(place) for place in np.searchsorted(self._numbers, numbers)]

    def cut(self, end: int) -> _Piece:
        """The rows with numbers below `end`."""
        [count] = self.places(end)
        at = None if self.at is None else self.at[:count]
        numbers = None if self._numbers is None else self._numbers[:count]
        return _Piece(
            self.start, end, [column.head(count) for column in self.columns], self.hashes[:count], at, numbers
        )

    def behind(self, bound: int) -> _Piece:
        """The rows that are not before `bound`; some more, as long as these are not the smaller part."""
        if self.at is None or not len(self):
            return self
        if self._middle is None:
            self._middle = np.partition(self.at, len(self) // 2)[len(self) // 2]
        if bound <= self._middle:
            return self
        kept = np.flatnonzero(self.at >= bound)
        return _Piece(
            self.start, self.end, take(self.columns, kept), self.hashes[kept], self.at[kept], self.numbers(kept)
        )

    def ordered(self, keys: Sequence[str]) -> tuple[Hashes, Ids, Moments, bool]:
        """The index, what rows are ordered by in its order, and whether a hash is that of several keys."""
        known, order = self.index()
        if self._ordered is None:
            assert self.at is not None
            same = known[1:] == known[:-1]
            columns = take([column for column in self.columns if column.name in keys], order)
            mixed = any((same & column[1:].ne_missing(column[:-1]).to_numpy()).any() for column in columns)
            self._ordered = self.at[order], mixed
        return known, order, *self._ordered

    def find(self, hashes: Hashes) -> tuple[Ids, Ids]:
        """The pairs of equal hashes: place and row here, in this order."""
        if len(hashes) >= _MANY and len(self) <= _STEP * len(hashes) and self._sorted is None:
            return self._find_all(hashes)
        if self._sorted is None and self._read + len(hashes) <= _FEW_ASKED:
            self._read += len(hashes)
            return self._find_few(hashes)
        known, order = self.index()
        places, at = _equal(known, hashes)
        return places, order[at] if len(at) else at

    def _find_few(self, hashes: Hashes) -> tuple[Ids, Ids]:
        rows = [(self.hashes == each).nonzero()[0] for each in hashes]
        return np.arange(len(hashes)).repeat([len(each) for each in rows]), np.concatenate(rows)

    def find_within(self, hashes: Hashes, low: Moments, high: Moments) -> tuple[Ids, Ids]:
        """Those of them that are not before `low` and not behind `high`."""
        known, order, at, _ = self.ordered(())
        first, last = _ranges(known, hashes)
        begin = _bisect(at, first, last, low, right=False)
        places, found = _spread(begin, _bisect(at, first, last, high, right=True))
        rows = order[found]
        by_place = np.lexsort((rows, places))
        return places[by_place], rows[by_place]

    def _find_all(self, hashes: Hashes) -> tuple[Ids, Ids]:
        sides = (pl.DataFrame({"hash": each}).with_row_index("row") for each in (hashes, self.hashes))
        left, right = sides
        pairs = left.join(right, on="hash", maintain_order="left_right")
        return pairs["row"].to_numpy().astype(np.intp), pairs["row_right"].to_numpy().astype(np.intp)


def _equal(known: Hashes, hashes: Hashes) -> tuple[Ids, Ids]:
    """The pairs of places of equal hashes: in `hashes`, and in `known`, which is sorted."""
    if not len(known) or (len(hashes) >= _SORTED_FIRST and len(known) > _CACHED):
        return _spread(*_ranges(known, hashes))
    first = known.searchsorted(hashes)
    hit = (known.take(first, mode="clip") == hashes).nonzero()[0]
    if not len(hit):
        return hit, hit
    first = first[hit]
    counts = known.searchsorted(hashes[hit], side="right") - first
    if counts.max() == 1:
        return hit, first
    ends = counts.cumsum()
    return hit.repeat(counts), np.arange(ends[-1]) + (first - ends + counts).repeat(counts)


def _spread(first: Ids, last: Ids) -> tuple[Ids, Ids]:
    """All pairs of a place and a number in its range."""
    counts = np.maximum(last - first, 0)
    hit = np.flatnonzero(counts)
    counts = counts[hit]
    if not len(hit):
        return hit, hit
    ends = np.cumsum(counts)
    return np.repeat(hit, counts), np.arange(ends[-1]) + np.repeat(first[hit] - ends + counts, counts)


def _bisect(values: Moments, first: Ids, last: Ids, wanted: Moments, right: bool) -> Ids:
    """For each wanted value its place in values[first:last], which are sorted; behind equal ones if `right`."""
    first, last = first.copy(), last.copy()
    open_ = np.flatnonzero(first < last)
    while len(open_):
        middle = (first[open_] + last[open_]) // 2
        there = values[middle]
        up = there <= wanted[open_] if right else there < wanted[open_]
        first[open_[up]] = middle[up] + 1
        last[open_[~up]] = middle[~up]
        open_ = open_[first[open_] < last[open_]]
    return first


def _ranges(known: Hashes, hashes: Hashes) -> tuple[Ids, Ids]:
    if len(hashes) < _SORTED_FIRST:
        return np.searchsorted(known, hashes), np.searchsorted(known, hashes, side="right")
    order = np.argsort(hashes)
    first, last = np.empty(len(hashes), np.intp), np.empty(len(hashes), np.intp)
    first[order] = np.searchsorted(known, hashes[order])
    last[order] = np.searchsorted(known, hashes[order], side="right")
    return first, last


class KeyedRows:
    """Rows, by the key that they have in the columns `keys`, and, where asked for, in order of the column `by`."""

    def __init__(self, keys: Sequence[str], by: str | None = None) -> None:
        self._keys = list(keys)
        self._by = by
        self._pieces: list[_Piece] = []
        self._unsettled = 0
        """The number of pieces that came since they were looked into: they are merged when somebody does."""
        self._empty: pl.DataFrame | None = None

    def __len__(self) -> int:
        """The number of rows that ever came and were not forgotten."""
        return self._pieces[-1].end if self._pieces else 0

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
        at = None if self._by is None else moments(frame[self._by])
        self._pieces.append(_Piece(len(self), len(self) + len(frame), frame.get_columns(), given.hashes, at))
        self._unsettled += 1
        if self._unsettled > _UNSETTLED:
            self._settle()

    def _settle(self) -> None:
        """Merge pieces, so that each is many times as long as the next."""
        if not self._unsettled:
            return
        groups: list[list[_Piece]] = []
        lengths: list[int] = []
        for piece in self._pieces:
            group, count = [piece], len(piece)
            while groups and lengths[-1] < max(_STEP * count, _SMALL):
                group, count = groups.pop() + group, lengths.pop() + count
            groups.append(group)
            lengths.append(count)
        self._pieces = [_Piece.merged(group) if len(group) > 1 else group[0] for group in groups]
        self._unsettled = 0

    def truncate(self, count: int) -> None:
        """Forget all but the first `count` rows."""
        while self._pieces and self._pieces[-1].start >= count:
            self._pieces.pop()
        if count < len(self):
            self._pieces.append(self._pieces.pop().cut(count))

    def evict(self, bound: int) -> None:
        """Drop rows that are before `bound` by `by`, sooner or later; the others keep their numbers."""
        self._pieces = [piece.behind(bound) for piece in self._pieces]

    def meet(self, given: KeyedFrame, by_row: bool = False, span: tuple[Moments, Moments] | None = None) -> Met | None:
        """The rows with the keys of `given`, in the order of its rows, or (by_row) of theirs; None: there are none.

        With `span` only those that are, by `by`, from the first to the second value for the row of `given`.

        Raises:
            TypeError: if a key column is of another type there.
        """
        hashes = given.chosen()
        if self._empty is None or not len(hashes):
            return None
        self._check_types(given)
        if span is not None and given.places is not None:
            span = span[0][given.places], span[1][given.places]
        if len(hashes) > _FEW_ASKED or sum(map(len, self._pieces[-self._unsettled - 1 :])) < _LONG:
            self._settle()
        places, rows, many = [], [], []
        for piece in self._pieces:
            at, found = piece.find(hashes) if span is None else piece.find_within(hashes, *span)
            if len(at):
                if by_row:
                    order = found.argsort(kind="stable")
                    at, found = at[order], found[order]
                places.append(at)
                rows.append(piece.numbers(found))
                many.append(take(piece.columns, found))
        if not many:
            return None
        alone = len(many) == 1
        met = (
            Met(places[0], rows[0], many[0])
            if alone
            else Met(np.concatenate(places), np.concatenate(rows), joined(many))
        )
        if len(many) > 1 and not by_row:
            met.choose(np.argsort(met.places, kind="stable"))
        if given.places is not None:
            met.places = given.places[met.places]
        self._keep_equal(given, met)
        return met if len(met.rows) else None

    def near(self, given: KeyedFrame, strategy: str) -> pl.DataFrame | None:
        """Some rows, among which are those next to each row of `given` in the order of `by`, with its key.

        In the order of their numbers. `strategy` says which are asked for: those before ("backward"), behind ("forward"), or
        both ("nearest"); those at the same place always. None: there are no rows at all.
        """
        if self._empty is None:
            return None
        assert self._by is not None
        self._check_types(given)
        wanted = moments(given.frame[self._by])
        wanted = wanted if given.places is None else wanted[given.places]
        hashes = given.chosen()
        self._settle()
        parts: list[ColumnList] = []
        for piece in self._pieces if len(hashes) else ():
            known, order, at, mixed = piece.ordered(self._keys)
            first, last = _ranges(known, hashes)
            chosen = [_spread(first, last)[1]] if mixed else []
            if strategy != "forward":
                end = _bisect(at, first, last, wanted, right=True)
                chosen.append(end[end > first] - 1)
            if strategy != "backward":
                begin = _bisect(at, first, last, wanted, right=False)
                inside = begin < last
                chosen.append(begin[inside])
                # Of equal ones Polars takes the first or the last.
                chosen.append(_bisect(at, begin[inside], last[inside], at[begin[inside]], right=True) - 1)
            rows = np.unique(order[np.concatenate(chosen)])
            if len(rows):
                parts.append(take(piece.columns, rows))
        return frame_of(joined(parts)) if parts else self._empty

    def _check_types(self, given: KeyedFrame) -> None:
        assert self._empty is not None
        for key in self._keys if self._by is None else [*self._keys, self._by]:
            here, there = self._empty.get_column(key).dtype, given.frame.get_column(key).dtype
            if here != there:
                raise TypeError(
                    f"the column {key!r} is {here} on one side and {there} on the other; cast it to one type"
                )

    def _keep_equal(self, given: KeyedFrame, met: Met) -> None:
        """Drop the pairs of which only the hashes are equal."""
        names = self._empty.columns if self._empty is not None else []
        for key in self._keys:
            theirs, mine = met.columns[names.index(key)], given.frame.get_column(key)
            if theirs.dtype.is_integer() and not theirs.null_count() and not mine.null_count():
                same = mine.to_numpy()[met.places] == theirs.to_numpy()
            else:
                equal = gathered(mine, rows_at(met.places)) == theirs
                same = (equal.fill_null(False) if theirs.null_count() else equal).to_numpy()
            if not same.all():
                met.choose(np.flatnonzero(same))

    def between(self, start: int, end: int) -> Iterator[tuple[pl.DataFrame, Hashes]]:
        """The rows of these numbers in order, with their hashes, some at a time."""
        while start < end:
            piece = next(piece for piece in reversed(self._pieces) if piece.start <= start)
            stop = min(end, piece.end)
            first, last = piece.places(start, stop)
            if first < last:
                yield frame_of([column[first:last] for column in piece.columns]), piece.hashes[first:last]
            start = stop

    def columns(self) -> pl.DataFrame | None:
        """The columns of the rows, without any row; None if there never were rows."""
        return self._empty

    def held(self) -> int:
        """Number of rows that are there."""
        return sum(map(len, self._pieces))

    def pieces(self) -> int:
        """Number of pieces that are looked into."""
        self._settle()
        return len(self._pieces)

    def nbytes(self) -> int:
        """Bytes of the rows, roughly, with what it takes to find them."""
        columns = (column for piece in self._pieces for column in piece.columns)
        return int(sum(column.estimated_size() for column in columns)) + 24 * self.held()
