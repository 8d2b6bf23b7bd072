"""Rows by key and order: search for neighbours of a value, or for a range.

Rows are numbered as they come, and lie in pieces, each many times as long as the next, as in `rows` beside this file. A
piece has its hashes sorted, and rows of equal hashes in order, from when somebody first looks into it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from libraries.columns.kernels.grouping import group_numbers
from libraries.columns.kernels.row_store import UNSETTLED, ColumnList, in_few_pieces, joined, take
from libraries.columns.kernels.rows import KeyedFrame, Matches, RowsByKey, is_plain
from timely.data.batch import as_array
from timely.data.codec.hashing import Hashes
from timely.data.kernels.columns import whole
from timely.data.kernels.series import frame_of
from timely.data.kernels.tables import Ids

Moments: TypeAlias = npt.NDArray[Any]
"""Sort positions of rows, as numbers of 64 bits or fewer."""

_FAR = int(np.iinfo(np.int64).max)
"""A position behind all others."""

_FEW = 4096
"""Largest piece scanned by eviction despite unsettled rows."""

_SORTED_FIRST = 256
"""Least number of hashes sorted before a search, for access in memory order."""


def moments(column: pl.Series) -> Moments:
    """Numbers, dates and instants as searchable numbers.

    Raises:
        TypeError: for columns of anything else. ValueError: for nulls and NaN, which have no place in an order.
    """
    numbers = column.to_physical()
    if not is_plain(numbers.dtype):
        raise TypeError(f"rows are ordered by numbers, dates or datetimes, and {column.name!r} is {column.dtype}")
    if numbers.null_count() or (numbers.dtype.is_float() and numbers.is_nan().any()):
        raise ValueError(f"null and NaN have no place in the order of {column.name!r}: filter such rows out before")
    return numbers.to_numpy()


def ends_of(places: Moments) -> tuple[Any, Any]:
    """Least and greatest possible position of this type."""
    if places.dtype.kind == "f":
        return -np.inf, np.inf
    limits = np.iinfo(places.dtype)
    return limits.min, limits.max


class _Piece:
    __slots__ = (
        "_middle",
        "_numbers",
        "_order",
        "_ordered",
        "_sorted",
        "_until",
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
        at: Moments,
        numbers: Ids | None = None,
    ) -> None:
        self.start = start
        self.end = end
        self.columns = columns
        self.hashes = hashes
        self.at = at
        """Sort position of each row within its key."""
        self._sorted: Hashes | None = None
        self._order: Ids | None = None
        self._ordered: tuple[Moments, bool] | None = None
        self._numbers = numbers  # None: all from `start` to `end` are there
        self._until: Moments | None = None
        self._middle: Any = None

    def __len__(self) -> int:
        return len(self.hashes)

    def index(self) -> tuple[Hashes, Ids]:
        """Sorted hashes, and the row of each."""
        if self._sorted is None or self._order is None:
            self._order = np.lexsort((self.at, self.hashes))
            self._sorted = self.hashes[self._order]
        return self._sorted, self._order

    @classmethod
    def merged(cls, pieces: Sequence[_Piece]) -> _Piece:
        """Concatenation of adjacent pieces."""
        oldest, newest = pieces[0], pieces[-1]
        hashes = np.concatenate([piece.hashes for piece in pieces])
        at = np.concatenate([piece.at for piece in pieces])
        whole = all(piece._numbers is None for piece in pieces)
        numbers = None if whole else np.concatenate([piece.numbers() for piece in pieces])
        return cls(oldest.start, newest.end, joined([piece.columns for piece in pieces]), hashes, at, numbers)

    def numbers(self, rows: Ids | None = None) -> Ids:
        """Numbers of these rows; None: of all."""
        if rows is None:
            return np.arange(self.start, self.end) if self._numbers is None else self._numbers
        return rows + self.start if self._numbers is None else self._numbers[rows]

    def places(self, *numbers: int) -> list[int]:
        """Offsets in this piece of the first rows with at least these numbers."""
        if self._numbers is None:
            return [number - self.start for number in numbers]
        return [int(place) for place in np.searchsorted(self._numbers, numbers)]

    def cut(self, end: int) -> _Piece:
        """Rows with numbers below `end`."""
        [count] = self.places(end)
        numbers = None if self._numbers is None else self._numbers[:count]
        columns = [column.head(count) for column in self.columns]
        return _Piece(self.start, end, columns, self.hashes[:count], self.at[:count], numbers)

    def until(self, keys: Sequence[str], strategy: str, within: int | None, settled: int) -> Moments:
        """Last position of a lookup by `near` with each row as a possible answer.

        `within` is the greatest distance.

        A row that is followed by another one with its key is not chosen by `strategy` from where that one is. That counts if
        it is among the first `settled`.
        """
        if self._until is not None:
            return self._until
        at: Moments = np.minimum(self.at, np.uint64(_FAR)) if self.at.dtype == np.uint64 else self.at
        at = at.astype(np.int64)
        until = at
        if strategy != "forward":
            before, behind = self._neighbours(keys)
            if self.end > settled:
                there = self.numbers(behind) < settled
                before, behind = before[there], behind[there]
            until = np.full(len(at), _FAR)
            until[before] = at[behind] - 1
            if within is not None and within < _FAR:
                until = np.minimum(until, np.minimum(at, _FAR - within) + within)
            until = until if strategy == "backward" else np.maximum(until, at)
        if self.end <= settled:
            self._until = until
        return until

    def _neighbours(self, keys: Sequence[str]) -> tuple[Ids, Ids]:
        """All pairs of a row and its successor of the same key."""
        known, order, _, mixed = self.ordered(keys)
        owners: npt.NDArray[Any] = known
        if mixed:
            groups = group_numbers([whole(as_array(column)) for column in self.columns if column.name in keys])
            order = np.lexsort((self.at, groups))
            owners = groups[order]
        same = np.flatnonzero(owners[1:] == owners[:-1])
        return order[same], order[same + 1]

    def behind(self, bound: int, until: Moments | None = None) -> _Piece:
        """Rows not before `bound`; all rows as long as few could be dropped.

        Args:
            until: the place up to which a row is wanted, for each; without it that is its own.
        """
        if not len(self):
            return self
        until = self.at if until is None else until
        middle = self._middle
        if middle is None:
            middle = np.partition(until, len(self) // 2)[len(self) // 2]
            if until is self.at or until is self._until:
                self._middle = middle
        if bound <= middle:
            return self
        kept = np.flatnonzero(until >= bound)
        piece = _Piece(
            self.start, self.end, take(self.columns, kept), self.hashes[kept], self.at[kept], self.numbers(kept)
        )
        piece._until = None if self._until is None else self._until[kept]
        return piece

    def ordered(self, keys: Sequence[str]) -> tuple[Hashes, Ids, Moments, bool]:
        """Index, positions in its order, and True if a hash covers several keys."""
        known, order = self.index()
        if self._ordered is None:
            same = known[1:] == known[:-1]
            columns = take([column for column in self.columns if column.name in keys], order)
            mixed = any((same & column[1:].ne_missing(column[:-1]).to_numpy()).any() for column in columns)
            self._ordered = self.at[order], mixed
        return known, order, *self._ordered

    def find_within(self, hashes: Hashes, low: Moments, high: Moments) -> tuple[Ids, Ids]:
        """Pairs of equal hash with a position between `low` and `high`, as (place, row)."""
        known, order, at, _ = self.ordered(())
        first, last = _ranges(known, hashes)
        begin = _bisect(at, first, last, low, right=False)
        places, found = _spread(begin, _bisect(at, first, last, high, right=True))
        rows = order[found]
        by_place = np.lexsort((rows, places))
        return places[by_place], rows[by_place]


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
    """Binary search for each wanted value within its range of sorted values.

    Behind equal ones if `right`.
    """
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


class OrderedRows(RowsByKey):
    """Append-only rows by the key columns `keys`, ordered by the column `by`."""

    def __init__(self, keys: Sequence[str], by: str) -> None:
        super().__init__(keys)
        self._by = by
        self._pieces: list[_Piece] = []
        self._unsettled = 0
        """Number of pieces not merged yet; merged at the next lookup."""

    def __len__(self) -> int:
        """Number of rows ever added and not truncated."""
        return self._pieces[-1].end if self._pieces else 0

    def append(self, given: KeyedFrame) -> None:
        """Add rows.

        Raises:
            TypeError: if their columns are not those of the rows that are there.
        """
        frame = given.frame
        if not len(frame):
            return
        columns = self._accept(frame)
        self._pieces.append(_Piece(len(self), len(self) + len(frame), columns, given.hashes, moments(frame[self._by])))
        self._unsettled += 1
        if self._unsettled > UNSETTLED:
            self._settle()

    def _settle(self) -> None:
        """Merge pieces until each is many times as long as the next."""
        if not self._unsettled:
            return
        self._pieces = in_few_pieces(self._pieces, _Piece.merged)
        self._unsettled = 0

    def truncate(self, count: int) -> None:
        """Forget all but the first `count` rows."""
        while self._pieces and self._pieces[-1].start >= count:
            self._pieces.pop()
        if count < len(self):
            self._pieces.append(self._pieces.pop().cut(count))

    def evict(self, bound: int) -> None:
        """Drop rows before `bound`, sooner or later; the others keep their numbers."""
        self._pieces = [piece.behind(bound) for piece in self._pieces]

    def evict_passed(self, bound: int, strategy: str, within: int | None, settled: int) -> None:
        """Drop rows not needed by `near` from `bound` on, sooner or later.

        The others keep their numbers.

        Args:
            bound: in the unit of `by`.
            strategy: as `near` is asked.
            within: the distance beyond which a row is not wanted; None: there is none.
            settled: the number of rows that `truncate` will never forget. No row is dropped for the sake of later ones.
        """
        self._pieces = [
            piece.behind(bound, piece.until(self._keys, strategy, within, settled))
            if piece.end <= settled or len(piece) < _FEW
            else piece
            for piece in self._pieces
        ]

    def meet(self, given: KeyedFrame, span: tuple[Moments, Moments], by_row: bool = False) -> Matches | None:
        """Rows with the keys of `given`, within each row's range of positions.

        `span` is the first and the last position for each row.

        In the order of the rows of `given`, or (by_row) of theirs; None: there are none.

        Raises:
            TypeError: if a key column is of another type there.
        """
        hashes = given.chosen()
        if self._empty is None or not len(hashes):
            return None
        self._check_types(given)
        self._check_type(self._by, given.frame.get_column(self._by).dtype)
        if given.places is not None:
            span = span[0][given.places], span[1][given.places]
        self._settle()
        places, rows, many = [], [], []
        for piece in self._pieces:
            at, found = piece.find_within(hashes, *span)
            if len(at):
                if by_row:
                    order = found.argsort(kind="stable")
                    at, found = at[order], found[order]
                places.append(at)
                rows.append(piece.numbers(found))
                many.append(take(piece.columns, found))
        if not many:
            return None
        met = Matches(np.concatenate(places), np.concatenate(rows), joined(many))
        if len(many) > 1 and not by_row:
            met.choose(np.argsort(met.places, kind="stable"))
        if given.places is not None:
            met.places = given.places[met.places]
        self._keep_equal(given, met)
        return met if len(met.rows) else None

    def near(self, given: KeyedFrame, strategy: str) -> pl.DataFrame | None:
        """Candidate neighbours of each row of `given`, by key and position.

        In the order of their numbers, with some more rows maybe.

        In the order of their numbers. `strategy` says which are asked for: those before ("backward"), behind ("forward"), or
        both ("nearest"); those at the same place always. None: there are no rows at all.
        """
        if self._empty is None:
            return None
        self._check_types(given)
        self._check_type(self._by, given.frame.get_column(self._by).dtype)
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

    def around(self, given: KeyedFrame) -> tuple[Moments, Moments]:
        """Gap around each row of `given`: no other row of its key lies within.

        Rows are at these places, unless there is none before it, or behind it: then it is the end of all (`ends_of`). They may
        be farther away where keys share a hash.

        Raises:
            TypeError: if a key column is of another type there.
        """
        wanted = moments(given.frame[self._by])
        low, high = (np.full(len(wanted), end, wanted.dtype) for end in ends_of(wanted))
        if self._empty is None or not len(wanted):
            return low, high
        self._check_types(given)
        self._check_type(self._by, given.frame.get_column(self._by).dtype)
        self._settle()
        for piece in self._pieces:
            known, order, at, mixed = piece.ordered(self._keys)
            if mixed:
                continue
            first, last = _ranges(known, given.hashes)
            hit = np.flatnonzero(first < last)
            met = Matches(hit, order[first[hit]], take(piece.columns, order[first[hit]]))
            self._keep_equal(given, met)
            of = met.places
            begin, end = first[of], last[of]
            before = _bisect(at, begin, end, wanted[of], right=False) - 1
            behind = _bisect(at, begin, end, wanted[of], right=True)
            some = before >= begin
            low[of[some]] = np.maximum(low[of[some]], at[before[some]])
            some = behind < end
            high[of[some]] = np.minimum(high[of[some]], at[behind[some]])
        return low, high

    def between(self, start: int, end: int) -> Iterator[tuple[pl.DataFrame, Hashes]]:
        """Rows by number range, in order, with their hashes, some at a time."""
        while start < end:
            piece = next(piece for piece in reversed(self._pieces) if piece.start <= start)
            stop = min(end, piece.end)
            first, last = piece.places(start, stop)
            if first < last:
                yield frame_of([column[first:last] for column in piece.columns]), piece.hashes[first:last]
            start = stop

    def held(self) -> int:
        """Number of rows held."""
        return sum(map(len, self._pieces))

    def nbytes(self) -> int:
        """Estimate of bytes held by rows and indexes."""
        columns = (column for piece in self._pieces for column in piece.columns)
        return int(sum(column.estimated_size() for column in columns)) + 24 * self.held()
