"""Index from column keys to dense ids, and back.

Ids count up in the order in which keys are first met. Rollback uses that order: the keys that a state learnt at
the times that it keeps are a prefix of the ids, so forgetting the others is `truncate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from timely.data.kernels.columns import (
    TINY,
    as_integers,
    column_of,
    integers_type,
    is_number,
    is_text,
    numbers,
    of_integers,
    whole,
)
from timely.data.kernels.series import series_of
from timely.data.kernels.tables import Ids, IntTable, KeyTable, StringTable, compiled_loops, read_only

_INT64 = pa.int64().id
_SMALL = 4096
_FEW = 8
_MOST_CACHED = 1 << 22


class ColumnIndex:
    """Dense ids of one column's values.

    Null is a value like any other, and NaN equals NaN.
    """

    def __init__(self, expected: int = 0, name: str | None = None) -> None:
        self._name = name
        self.kind: pa.DataType | None = None
        self._held: pa.DataType = pa.null()
        """Internal value type, given by `as_integers`."""
        self.coded = False
        self._expected = expected
        self._small: dict[Any, int] = {}
        self._names: list[Any] = []
        self._numbers = np.empty(0, np.int64)
        self._arrayed = 0
        """Number of leading entries of `_small` copied to the array `_numbers`."""
        self._table: StringTable | IntTable | None = None
        self._null: int | None = None
        self._seen: tuple[pa.Array, npt.NDArray[np.intp]] | None = None

    def __len__(self) -> int:
        return len(self._small) if self._table is None else len(self._table)

    def ids(self, column: pa.Array) -> Ids:
        """Id of each value; new values are added.

        Raises:
            TypeError: if the column's type is not that of earlier columns, or its values cannot be keys.
        """
        if column.type != self.kind:
            self._accept(column.type)
        if self._held is not self.kind:
            column = as_integers(column)
        if self._table is None:
            if len(column) < TINY and len(self._small) < _SMALL:
                plain = column.type.id == _INT64 and not column.null_count
                return self._small_ids(column.to_numpy().tolist() if plain else column.to_pylist())
            if not self._build():
                return self._small_ids(column.to_pylist())
        if pa.types.is_dictionary(column.type):
            return self._coded_ids(column)
        return self._table_ids(column)

    def integer_ids(self, values: npt.NDArray[np.int64]) -> Ids:
        """`ids` for 64-bit integers."""
        if self.kind is None:
            self._accept(pa.int64())
        if self._table is None:
            if len(values) < TINY and len(self._small) < _SMALL:
                return self._small_ids(values.tolist())
            self._build()
        assert isinstance(self._table, IntTable)
        return self._table.ids(values)

    def _accept(self, kind: pa.DataType) -> None:
        if pa.types.is_dictionary(kind):
            self.coded = self.coded or self.kind is None
            kind = kind.value_type
        if is_text(kind):
            kind = pa.string()
        if self.kind is None or pa.types.is_null(self.kind):
            self.kind = kind
            self._held = integers_type(kind)
        elif not (kind.equals(self.kind) or pa.types.is_null(kind)):
            what = "a key column" if self._name is None else f"key column {self._name!r}"
            raise TypeError(f"{what} was of type {self.kind} and is now {kind}; cast it to one type")

    def _small_ids(self, values: list[Any]) -> Ids:
        known = self._small
        try:
            if pa.types.is_floating(self.kind):
                values = [_NAN if value is not None and value != value else value for value in values]
            ids = list(map(known.get, values))
            if None in ids:
                new = dict.fromkeys([value for value, number in zip(values, ids, strict=True) if number is None])
                known.update(zip(new, range(len(known), len(known) + len(new)), strict=True))
                ids = list(map(known.get, values))
            return np.array(ids, np.intp)
        except TypeError as error:
            raise TypeError(f"values of type {self.kind} cannot be keys: {error}") from error

    def _build(self) -> bool:
        """Move from a Python dictionary to a compiled table; False for types without one."""
        text = is_text(self._held)
        if not text and not is_number(self._held):
            return False
        known = pa.array(list(self._small), self._held)
        room = max(self._expected, len(known))
        self._table = StringTable(room) if text else IntTable(room)
        if None in self._small:  # ids are given in order, so null must get the place that it had
            at = self._small[None]
            self._table_ids(known[:at])
            self._null = self._table.reserve()
            known = known[at + 1 :]
        self._table_ids(known)
        self._small, self._names = {}, []
        return True

    def _table_ids(self, column: pa.Array) -> Ids:
        if column.null_count:
            return self._null_ids(column)
        if isinstance(self._table, StringTable):
            kind = column.type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                column = column.cast(pa.large_string())
            return self._table.ids(column)
        assert self._table is not None
        return self._table.ids(bits(numbers(column)))

    def _null_ids(self, column: pa.Array) -> Ids:
        assert self._table is not None
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        ids = np.empty(len(column), np.intp)
        first = int(np.argmin(valid))
        if self._null is None:
            ids[:first] = self._table_ids(column[:first])
            self._null = self._table.reserve()
        if not pa.types.is_null(column.type):
            ids[valid] = self._table_ids(column.drop_null())
        ids[~valid] = self._null
        return ids

    def _coded_ids(self, column: pa.DictionaryArray) -> Ids:
        """Ids of dictionary-encoded values.

        Only the entries that occur are looked up, and those of a dictionary met before not at all.
        """
        if column.null_count or column.dictionary.null_count:
            return self._table_ids(column.dictionary_decode())
        dictionary = column.dictionary
        codes = column.indices.to_numpy()
        known = self._known(dictionary)
        if len(codes) >= _SMALL and codes.dtype == np.int32 and isinstance(self._table, StringTable):
            self._learn(codes, dictionary, known)
        ids: Ids = known[codes]
        missing = ids < 0
        if missing.any():
            places = _distinct_codes(codes[missing], len(dictionary))
            new = dictionary if len(places) == len(dictionary) else dictionary.take(pa.array(places))
            known[places] = self._table_ids(new)
            ids = known[codes]
        self._seen = (dictionary, known)
        return ids

    def _learn(self, codes: npt.NDArray[np.int32], dictionary: pa.Array, known: Ids) -> None:
        """Look up a large batch's dictionary entries in place, without copying text."""
        assert isinstance(self._table, StringTable)
        if not (pa.types.is_string(dictionary.type) or pa.types.is_large_string(dictionary.type)):
            return
        places = np.empty(len(dictionary), np.intp)
        missing = compiled_loops().mark_missing(read_only(codes), known, places)
        known[places[:missing]] = self._table.ids(dictionary, places[:missing])

    def _known(self, dictionary: pa.Array) -> Ids:
        """Cached ids of dictionary entries, -1 if unknown.

        Kept while the dictionary only grows.
        """
        if self._seen is None or not _same_memory(self._seen[0], dictionary):
            return np.full(len(dictionary), -1, np.intp)
        known = self._seen[1]
        if len(known) < len(dictionary):
            larger = np.full(2 * len(dictionary), -1, np.intp)
            larger[: len(known)] = known
            return larger
        return known

    def values(self, ids: Ids | None = None) -> pa.Array:
        """Values of `ids` (default: all), dictionary-encoded if they came so."""
        assert self.kind is not None
        found = self._held_values(ids)
        return found if self._held is self.kind else of_integers(found, self.kind)

    def _held_values(self, ids: Ids | None) -> pa.Array:
        if ids is not None and (plain := self.integers(ids)) is not None:
            return column_of(plain, self._held)
        if self._table is None:
            names = self._all_names()
            plain = pa.array(names if ids is None else [names[i] for i in ids.tolist()], self._held)
            return plain.dictionary_encode() if self.coded else plain
        if isinstance(self._table, IntTable):
            bits = self._table.values()
            taken = bits if ids is None else bits[ids]
            empty = None if self._null is None else (np.arange(len(bits)) if ids is None else ids) == self._null
            plain = column_of(_numbers_of(taken, self._held), self._held, empty)
            return plain.dictionary_encode() if self.coded else plain
        return self._strings(self._table.values(), ids)

    def integers(self, ids: Ids) -> npt.NDArray[np.int64] | None:
        """Values of `ids` as int64, if all are plain 64-bit integers; otherwise None."""
        if self.kind is None or self.kind.id != _INT64 or self.coded or self._null is not None or None in self._small:
            return None
        if isinstance(self._table, IntTable):
            return self._table.values()[ids]
        if self._arrayed < (count := len(self._small)):
            if len(self._numbers) < count:
                self._numbers = np.concatenate([self._numbers[: self._arrayed], np.empty(2 * count, np.int64)])
            self._numbers[self._arrayed : count] = _last(self._small, count - self._arrayed)
            self._arrayed = count
        return self._numbers[ids]

    def series(self, name: str, ids: Ids) -> pl.Series | None:
        """Values of `ids` as a series, if integers or a little text; otherwise None."""
        if (plain := self.integers(ids)) is not None:
            return series_of(name, plain)
        if self.kind is None or not is_text(self.kind) or self.coded or self._table is not None:
            return None
        names = self._all_names()
        return pl.Series(name, [names[i] for i in ids.tolist()], pl.String)

    def _all_names(self) -> list[Any]:
        """Values by id, before there is a compiled table."""
        names = self._names
        if len(names) < len(self._small):
            names.extend(_last(self._small, len(self._small) - len(names)))
        return names

    def _strings(self, known: pa.Array, ids: Ids | None) -> pa.Array:
        if ids is None:
            ids = np.arange(len(known), dtype=np.intp)
        empty = None if self._null is None else ids == self._null
        codes = pa.array(ids.astype(np.int32), mask=empty)
        if not self.coded:
            return known.take(codes)
        if len(known) > _FEW * len(ids):  # a few rows must not drag a large dictionary along
            found = known.take(codes)
            if empty is None and (np.diff(ids) > 0).all():  # of different values each is an entry
                return pa.DictionaryArray.from_arrays(pa.array(np.arange(len(ids), dtype=np.int32)), found, safe=False)
            return found.dictionary_encode()
        return pa.DictionaryArray.from_arrays(codes, known, safe=False)

    def truncate(self, count: int) -> None:
        """Forget all but the first `count` values."""
        if count < len(self):
            kept = self.values(np.arange(count, dtype=np.intp))
            self._small, self._names, self._arrayed = {}, [], 0
            self._table, self._null, self._seen = None, None, None
            if count:
                self.ids(whole(kept.dictionary_decode() if self.coded else kept))

    def nbytes(self) -> int:
        """Estimate of the keys' memory in bytes."""
        return 64 * len(self._small) if self._table is None else self._table.nbytes()


def _last(known: dict[Any, int], count: int) -> list[Any]:
    """The last `count` keys inserted, in order."""
    found = list(islice(reversed(known), count))
    found.reverse()
    return found


def _distinct_codes(codes: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Sorted distinct codes, all below `count`."""
    if count > _FEW * len(codes):
        return np.unique(codes)
    present = np.zeros(count, np.bool_)
    present[codes] = True
    return np.flatnonzero(present)


_NAN = float("nan")


def bits(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Canonical integers for numbers, equal for equal values; NaN equals NaN."""
    if values.dtype.kind == "f":
        values = values + 0.0  # -0.0 and 0.0 are one key
        values[np.isnan(values)] = _NAN
        return values.view(np.int64)
    return values


def _numbers_of(bits: npt.NDArray[np.int64], kind: pa.DataType) -> npt.NDArray[Any]:
    return bits.view(np.float64) if pa.types.is_floating(kind) else bits


def _same_memory(a: pa.Array, b: pa.Array) -> bool:
    """True if b begins with a, by buffer address.

    `a` is held alive, so its addresses cannot be in other use.
    """
    if a.type != b.type or a.offset != b.offset or len(a) > len(b):
        return False
    return [x and x.address for x in a.buffers()] == [y and y.address for y in b.buffers()]


class Encoder:
    """Dictionary encoder for plain strings, with one growing dictionary.

    A cache: whoever looks the column up next meets a known dictionary, and has to look at new strings only.
    """

    def __init__(self) -> None:
        self._table = StringTable()

    def encode(self, column: pa.Array) -> pa.Array:
        """Encode a column, or return it unchanged.

        Unchanged are tiny columns, those with nulls, and those that are not of plain strings.
        """
        kind = column.type
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if not text or column.null_count or len(column) < TINY:
            return column
        if len(self._table) > _MOST_CACHED:
            self._table = StringTable()
        codes = self._table.ids(column)
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), self._table.values(), safe=False)


class KeyIndex:
    """Dense ids of keys of one or more columns.

    Several columns of 64-bit integers are one table by the hash of all of them. Others are folded in pairs: (id so far, id in
    the next column). So are few rows where no compiled loop is loaded, and all from when the leading columns alone are asked
    for. Ids are the same either way. `names` of the columns are for errors.
    """

    def __init__(self, columns: int, expected: int = 0, names: Sequence[str | None] | None = None) -> None:
        self._columns = [ColumnIndex(expected, name) for name in names or [None] * columns]
        self._pairs = [ColumnIndex(expected) for _ in range(columns - 1)]
        self._expected = expected
        self._table: KeyTable | None = None

    def __len__(self) -> int:
        if self._table is not None:
            return len(self._table)
        return len(self._pairs[-1] if self._pairs else self._columns[0])

    def ids(self, columns: list[pa.Array]) -> Ids:
        """Id of each row's key; new keys are added."""
        if self._pairs and (self._table is not None or not len(self)):
            if all(column.type.id == _INT64 and not column.null_count for column in columns):
                loaded = compiled_loops.cache_info().currsize
                if self._table is None and (loaded or len(columns[0]) >= TINY):
                    self._table = KeyTable(len(columns), self._expected)
                if self._table is not None:
                    return self._table.ids([numbers(column) for column in columns])
            self._fold()
        return self._pair_ids(columns)

    def _fold(self) -> None:
        """Switch from one table to folded pairs."""
        if self._table is not None:
            known, self._table = self._table.values(), None
            self._pair_ids([pa.array(column) for column in known])

    def _pair_ids(self, columns: list[pa.Array]) -> Ids:
        ids = self._columns[0].ids(columns[0])
        for index, pairs, column in zip(self._columns[1:], self._pairs, columns[1:], strict=True):
            ids = pairs.integer_ids((ids << 32) | index.ids(column))
        return ids

    def leading(self, columns: list[pa.Array]) -> Ids:
        """Id of each row's key prefix; new prefixes are added.

        The prefix has as many columns as are given.
        """
        self._fold()
        ids = self._columns[0].ids(columns[0])
        count = len(columns)
        for index, pairs, column in zip(self._columns[1:count], self._pairs[: count - 1], columns[1:], strict=True):
            ids = pairs.integer_ids((ids << 32) | index.ids(column))
        return ids

    def leading_of(self, ids: Ids, count: int) -> Ids:
        """Prefix ids, over the first `count` columns, of the keys `ids`."""
        self._fold()
        for pairs in reversed(self._pairs[count - 1 :]):
            ids = numbers(pairs.values(ids)) >> 32
        return ids

    def series(self, names: Sequence[str], ids: Ids) -> list[pl.Series] | None:
        """Key columns of `ids` as series, if integers or a little text; otherwise None."""
        if self._table is not None:
            return [series_of(name, column[ids]) for name, column in zip(names, self._table.values(), strict=True)]
        result: list[pl.Series] = []
        for name, index, pairs in zip(
            reversed(names[1:]), reversed(self._columns), reversed(self._pairs), strict=False
        ):
            packed = pairs.integers(ids)
            column = None if packed is None else index.series(name, packed & 0xFFFFFFFF)
            if packed is None or column is None:
                return None
            result.append(column)
            ids = packed >> 32
        first = self._columns[0].series(names[0], ids)
        return None if first is None else [first, *reversed(result)]

    def keys(self, ids: Ids | None = None) -> list[pa.Array]:
        """Key columns of `ids` (default: of all keys)."""
        if self._table is not None:
            values = self._table.values()
            return [column_of(column if ids is None else column[ids], pa.int64()) for column in values]
        if not self._pairs:
            return [self._columns[0].values(ids)]
        result: list[pa.Array] = []
        for index, pairs in zip(reversed(self._columns), reversed(self._pairs), strict=False):
            packed = numbers(pairs.values(ids))
            result.append(index.values(packed & 0xFFFFFFFF))
            ids = packed >> 32
        result.append(self._columns[0].values(ids))
        return result[::-1]

    def truncate(self, count: int) -> None:
        """Forget all but the first `count` keys."""
        if count >= len(self):
            return
        if self._table is not None:
            self._table.truncate(count)
            return
        if not self._pairs:
            self._columns[0].truncate(count)
            return
        kept = self.keys(np.arange(count, dtype=np.intp))
        self._columns = [ColumnIndex() for _ in self._columns]
        self._pairs = [ColumnIndex() for _ in self._pairs]
        if count:
            self.ids(kept)

    def nbytes(self) -> int:
        """Estimate of the keys' memory in bytes."""
        held = 0 if self._table is None else self._table.nbytes()
        return held + sum(index.nbytes() for index in (*self._columns, *self._pairs))
