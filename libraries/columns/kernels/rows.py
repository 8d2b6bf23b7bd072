"""Append-only rows by key, found by the hash of the key.

Rows are numbered as they come (`RowStore`). What a batch of rows costs to look up and to add grows with the batch, and
hardly with what is there. Hashes only choose candidates; whether keys are equal is for their values to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from libraries.columns.kernels.row_index import RowIndex
from libraries.columns.kernels.row_store import SMALL, UNSETTLED, ColumnList, RowStore, take
from timely.data.batch import as_polars, concat
from timely.data.codec.hashing import Hashes, hash_columns
from timely.data.kernels.columns import TINY
from timely.data.kernels.series import Array, gathered, rows_at
from timely.data.kernels.tables import Ids
from timely.data.span import Span
from timely.time import Time


class KeyedFrame:
    """Frame or span with key hashes, computed on demand."""

    def __init__(self, rows: pl.DataFrame | Span, keys: Sequence[str]) -> None:
        self._rows = rows
        self.times: Sequence[Time] = ()
        self.ends: Sequence[int] = ()
        """Number of rows up to the end of each time of a span."""
        if isinstance(rows, Span):
            self.times, self.ends = rows.times, rows.ends
        self.count = len(rows)
        self._hashes: Hashes | None = None
        self._bounds: tuple[int, int] | None = None
        self.columns = columns = [rows.get_column(key) for key in keys]
        """Key columns."""
        self.kinds = [column.dtype for column in columns]
        """Types of the key columns."""
        holes = [column.is_null().to_numpy() for column in columns if column.null_count()]
        self.numbers = [
            column.to_numpy() if is_plain(kind) and not (holes and column.null_count()) else None
            for column, kind in zip(columns, self.kinds, strict=True)
        ]
        """Numeric key columns without nulls as arrays, else None.

        The way through Arrow costs more than hashing a few.
        """
        self.places: Ids | None = np.flatnonzero(~np.logical_or.reduce(holes)) if holes else None
        """Rows without nulls in their key; None: all rows.

        A null matches nothing.
        """
        self.integers: list[Array] | None = None
        """Key columns, if all are integers without nulls."""
        if columns and all(map(_is_integers, self.numbers)):
            self.integers = [values for values in self.numbers if values is not None]

    @property
    def frame(self) -> pl.DataFrame:
        """All columns of the rows."""
        return self._rows if isinstance(self._rows, pl.DataFrame) else self._rows.frame

    def pieces(self) -> Iterator[pl.DataFrame]:
        """Rows in order, by time if a span has many a time.

        So nothing is copied.
        """
        if isinstance(self._rows, pl.DataFrame) or self.count < SMALL * len(self._rows.times):
            yield self.frame
        else:
            for _, part in self._rows.parts():
                yield part

    @property
    def hashes(self) -> Hashes:
        """Hash of each row's key."""
        if self._hashes is None:
            self._hashes = self._hashed()
        return self._hashes

    @hashes.setter
    def hashes(self, hashes: Hashes) -> None:
        self._hashes = hashes

    def _hashed(self) -> Hashes:
        if not self.columns:  # one key for all
            return np.zeros(self.count, np.uint64)
        if self.places is not None:
            return hash_columns(self.columns)
        plain = zip(self.columns, self.numbers, strict=True)
        return hash_columns([column if values is None else values for column, values in plain])

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Range of the first key column, if all keys are integers.

        None for no rows, and for row counts too small for kernels but too large to scan.
        """
        if self._bounds is None and self.integers is not None and (self.count >= TINY or 0 < self.count <= _READ):
            first = self.integers[0]
            self._bounds = int(np.minimum.reduce(first)), int(np.maximum.reduce(first))
        return self._bounds

    def chosen(self) -> Hashes:
        """Hashes of the rows at `places`."""
        return self.hashes if self.places is None else self.hashes[self.places]

    def take(self, rows: Ids) -> ColumnList:
        """Columns at the given row numbers."""
        return take(self.frame.get_columns(), rows)


def is_plain(kind: pl.DataType) -> bool:
    """True for numeric types."""
    return type(kind) in _PLAIN


_PLAIN = frozenset({*pl.datatypes.group.INTEGER_DTYPES, *pl.datatypes.group.FLOAT_DTYPES})


def _is_integers(values: Array | None) -> bool:
    return values is not None and values.dtype.kind in "iu"


@dataclass(slots=True)
class Matches:
    """Matches of a lookup, in pairs: place looked up; row number and columns found."""

    places: Ids
    rows: Ids
    columns: ColumnList

    def choose(self, chosen: Ids) -> None:
        """Keep these pairs, in this order."""
        self.places, self.rows = self.places[chosen], self.rows[chosen]
        self.columns = take(self.columns, chosen)


class RowsByKey:
    """Common base of row collections with the key columns `keys`."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = list(keys)
        self._empty: pl.DataFrame | None = None
        self._names: list[str] = []
        self._kinds: list[pl.DataType] = []
        self._key_kinds: list[pl.DataType] = []
        self._version = 0
        """Number of times the column types were widened."""

    def columns(self) -> pl.DataFrame | None:
        """Empty frame with the schema of the rows; None before the first rows."""
        return self._empty

    def _accept(self, frame: pl.DataFrame) -> ColumnList:
        """New rows in the stored column order, with types widened as needed.

        Raises:
            TypeError: if they are others.
        """
        if self._empty is None or frame.columns != self._names or frame.dtypes != self._kinds:
            first = self._empty is None
            self._empty = frame.clear() if self._empty is None else as_polars(concat([self._empty, frame.clear()]))
            self._version += self._empty.dtypes != self._kinds
            self._names, self._kinds = self._empty.columns, self._empty.dtypes
            self._key_kinds = [self._kinds[self._names.index(key)] for key in self._keys]
            if not first:
                frame = frame.select(self._names).cast(dict(zip(self._names, self._kinds, strict=True)))
        return frame.get_columns()

    def _check_types(self, given: KeyedFrame) -> None:
        if given.kinds == self._key_kinds:
            return
        for key, there in zip(self._keys, given.kinds, strict=True):
            self._check_type(key, there)

    def _check_type(self, column: str, there: pl.DataType) -> None:
        here = self._kinds[self._names.index(column)]
        if here != there:
            raise TypeError(
                f"the column {column!r} is {here} on one side and {there} on the other; cast it to one type"
            )

    def _keep_equal(self, given: KeyedFrame, met: Matches) -> None:
        """Drop pairs with equal hashes but different keys."""
        for key, mine, kind, numbers in zip(self._keys, given.columns, given.kinds, given.numbers, strict=True):
            theirs = met.columns[self._names.index(key)]
            if numbers is not None and kind.is_integer() and not theirs.null_count():
                same = numbers[met.places] == theirs.to_numpy()
            else:
                equal = gathered(mine, rows_at(met.places)) == theirs
                same = (equal.fill_null(False) if theirs.null_count() else equal).to_numpy()
            if not same.all():
                met.choose(np.flatnonzero(same))


class KeyedRows(RowsByKey):
    """Append-only rows by the key columns `keys`.

    Keys are hashed when somebody looks for rows among which they may be. Those of a range of integers that is apart from that
    of what is there, as event times mostly are, are not.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(keys)
        self._store = RowStore()
        self._index = RowIndex()
        self._unhashed: list[tuple[int, KeyedFrame]] = []
        """Rows not indexed yet: number of the first, and their integer keys."""
        self._short = 0
        """Number of short frames in `_unhashed`."""
        self._read = 0
        """Number of keys already searched by scanning `_unhashed`."""
        self._bounds: tuple[int, int] | None = None
        """Range of the first key column; None if unknown."""

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._store)

    def append(self, given: KeyedFrame) -> None:
        """Add rows.

        Raises:
            TypeError: if their columns are not those of the rows that are there.
        """
        if not given.count:
            return
        pieces = [(self._accept(piece), self._version) for piece in given.pieces()]
        start = len(self._store)
        if given.integers is None:
            self._hash()
            self._index.add(given.hashes)
        else:
            self._unhashed.append((start, given))
            self._short += given.count < TINY
            if self._short > UNSETTLED:
                self._hash()
        if not start:
            self._bounds = given.bounds
        elif self._bounds is not None:
            more = given.bounds
            self._bounds = more and (min(more[0], self._bounds[0]), max(more[1], self._bounds[1]))
        for columns, version in pieces:
            self._store.append(columns, version)

    def truncate(self, count: int) -> None:
        """Forget all but the first `count` rows."""
        if count < len(self):
            self._hash()
        self._store.truncate(count)
        self._index.truncate(count)

    def meet(self, given: KeyedFrame, by_row: bool = False) -> Matches | None:
        """Matches of the keys of `given`; None if there are none.

        In the order of its rows, or (by_row) of the rows found.

        Raises:
            TypeError: if a key column is of another type there.
        """
        if self._empty is None:
            return None
        self._check_types(given)
        if not len(self) or self._is_apart(given):
            return None
        places, rows = self._find(given)
        if not len(rows):
            return None
        if by_row:
            order = rows.argsort(kind="stable")
            places, rows = places[order], rows[order]
        met = Matches(places if given.places is None else given.places[places], rows, self._store.take(rows))
        if not self._store.waits:
            self._hash()  # frames are not held any more for their columns
        self._keep_equal(given, met)
        return met if len(met.rows) else None

    def _is_apart(self, given: KeyedFrame) -> bool:
        """True if disjoint key ranges rule out any match."""
        if self._bounds is None or given.count < TINY or given.bounds is None:
            return False
        return given.bounds[1] < self._bounds[0] or given.bounds[0] > self._bounds[1]

    def _find(self, given: KeyedFrame) -> tuple[Ids, Ids]:
        """Pairs (place in `given`, row) of equal hash, in order of place, then row."""
        if given.integers is not None and self._read + given.count <= _READ:
            waiting = len(self) - len(self._index)
            if waiting > _MANY:
                self._read += given.count
                return self._read_through(given, given.integers)
        self._hash()
        return self._index.find(given.chosen())

    def _read_through(self, given: KeyedFrame, keys: list[Array]) -> tuple[Ids, Ids]:
        """`_find` for a few keys, scanning unhashed rows."""
        known = self._index.find(given.hashes)
        places, rows = [known[0]], [known[1]]
        for start, there in self._unhashed:
            assert there.integers is not None
            bounds = there.bounds
            for place, first in enumerate(keys[0].tolist()):
                if bounds is None or bounds[0] <= first <= bounds[1]:
                    same = there.integers[0] == first
                    for column, values in zip(there.integers[1:], keys[1:], strict=True):
                        same &= column == values[place]
                    found = same.nonzero()[0]
                    if len(found):
                        places.append(np.full(len(found), place))
                        rows.append(found + start)
        at, met = np.concatenate(places), np.concatenate(rows)
        order = at.argsort(kind="stable")
        return at[order], met[order]

    def _hash(self) -> None:
        """Hash and index all rows."""
        for _, given in self._unhashed:
            self._index.add(given.hashes)
        self._unhashed, self._short, self._read = [], 0, 0

    def between(self, start: int, end: int) -> Iterator[tuple[pl.DataFrame, Hashes]]:
        """Rows by number range, in order, with their hashes, some at a time."""
        self._hash()
        for frame in self._store.between(start, end):
            yield frame, self._index.hashes(start, start + len(frame))
            start += len(frame)

    def held(self) -> int:
        """Number of rows held."""
        return len(self)

    def pieces(self) -> int:
        """Number of settled pieces."""
        return self._store.pieces()

    def nbytes(self) -> int:
        """Estimate of bytes held by rows and indexes."""
        waiting = sum(array.nbytes for _, given in self._unhashed for array in given.integers or ())
        return self._store.nbytes() + self._index.nbytes() + waiting


_MANY = 4096
"""Most unhashed rows not worth a scan: they are hashed at once."""

_READ = 16
"""Most keys searched by a scan, before hashing costs as little."""
