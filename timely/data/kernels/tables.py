"""Append-only hash tables from values to dense ids, in order of first insertion.

What an id stands for never changes, so a prefix of a table's values is an immutable Arrow array that shares
the table's memory: as the dictionary of an encoded column it costs nothing, however often it is sent.
"""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ids: TypeAlias = npt.NDArray[np.intp]

_SMALLEST = 1 << 10
_AT_ONCE = 1 << 16
"""Least pairs moved at each growth step of an integer table."""
_MOVED = 8
"""Pairs moved for each value of a batch during growth.

So all have moved when a quarter more has come.
"""
_MOST_BYTES = (1 << 31) - 1


@cache
def compiled_loops() -> ModuleType:
    """The module `timely.data.kernels.compiled`; the first call loads Numba."""
    from timely.data.kernels import compiled

    return compiled


def are_loaded() -> bool:
    """True if the compiled loops are loaded, so that they pay for few values too."""
    return "timely.data.kernels.compiled" in sys.modules


MANY = 8192
"""Least batch size to load the compiled loops for."""

_NO_SLOTS = np.zeros(0, np.int64)


def _power_above(n: int) -> int:
    return max(_SMALLEST, 1 << (n - 1).bit_length())


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Read-only view; compiled loops take it so that each compiles once."""
    view = array.view()
    view.flags.writeable = False
    return view


class StringTable:
    """Distinct strings, in order of first insertion."""

    def __init__(self, expected: int = 0) -> None:
        room = _power_above(expected)
        self._slots = np.zeros(2 * room, np.uint64)
        self._heads = np.zeros(2 * room, np.uint64)
        self._offsets = np.zeros(room + 1, np.int32)
        self._bytes = np.empty(8 * room, np.uint8)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def ids(self, strings: pa.Array, places: Ids | None = None) -> Ids:
        """Id of each string (no nulls), or of those at `places`; new ones are added.

        Strings are an Arrow string or large_string array.

        Raises:
            OverflowError: if the distinct strings come to more than 2 GB of text.
        """
        if places is not None and not len(places):
            return places
        out = np.empty(len(strings) if places is None else len(places), np.intp)
        chosen = read_only(_ALL if places is None else places)
        offsets, data = _layout(strings)
        loop = compiled_loops().string_ids
        row = 0
        while True:
            row, self._count = loop(
                offsets, data, chosen, row, out, self._slots, self._heads, self._offsets, self._bytes, self._count
            )
            if row == len(out):
                return out
            place = row if places is None else int(places[row])
            self._grow(int(offsets[place + 1]) - int(offsets[place]))

    def _grow(self, width: int) -> None:
        used = int(self._offsets[self._count])
        if used + width > self._bytes.size:
            if used + width > _MOST_BYTES:
                raise OverflowError("the distinct keys hold over 2 GB of text; use shorter keys or more workers")
            larger = np.empty(min(max(2 * self._bytes.size, used + width), _MOST_BYTES), np.uint8)
            larger[:used] = self._bytes[:used]
            self._bytes = larger
        if self._count + 1 >= self._offsets.size:
            offsets = np.zeros(2 * self._offsets.size - 1, np.int32)
            offsets[: self._count + 1] = self._offsets[: self._count + 1]
            self._offsets = offsets
            self._heads = np.concatenate([self._heads, np.zeros_like(self._heads)])
        if 2 * self._count >= self._slots.size:
            slots = np.zeros(2 * self._slots.size, np.uint64)
            compiled_loops().move_strings(read_only(self._slots), slots)
            self._slots = slots

    def reserve(self) -> int:
        """New id for null, not shared with any string."""
        if self._count + 1 >= self._offsets.size:
            self._grow(0)
        self._offsets[self._count + 1] = self._offsets[self._count]
        self._count += 1
        return self._count - 1

    def nbytes(self) -> int:
        """Bytes held."""
        return self._slots.nbytes + self._heads.nbytes + self._offsets.nbytes + self._bytes.nbytes

    def values(self) -> pa.Array:
        """All strings in id order: a view, unaffected by later additions."""
        return pa.StringArray.from_buffers(
            self._count, pa.py_buffer(self._offsets[: self._count + 1]), pa.py_buffer(self._bytes)
        )


def distinct(ids: Ids) -> Ids:
    """Sorted distinct ids.

    NumPy's own function takes 20 times as long for a few hundred.
    """
    ids = np.sort(ids)
    new = np.ones(len(ids), np.bool_)
    np.not_equal(ids[1:], ids[:-1], out=new[1:])
    found: Ids = ids[new]
    return found


def ranges(begin: Ids, count: Ids) -> Ids:
    """Concatenated ranges: `count` numbers from each `begin`."""
    ends = count.cumsum()
    every = int(ends[-1]) if len(ends) else 0
    found: Ids = np.arange(every) + (begin - ends + count).repeat(count)
    return found


class IntTable:
    """Distinct 64-bit integers, in order of first insertion.

    A large table grows a little with each batch: nobody waits until all of it has moved, nor until all of its new memory has
    been written, for that is written from one end to the other.
    """

    def __init__(self, expected: int = 0) -> None:
        room = _power_above(expected)
        self._slots = np.zeros(4 * room, np.int64)
        self._old = _NO_SLOTS
        """Previous slots, until all are moved to `_slots`."""
        self._moved = 0
        """Number of pairs of `_old` moved so far."""
        self._keys = np.empty(room, np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def ids(self, values: npt.NDArray[np.int64]) -> Ids:
        """Id of each of `values`; new ones are added."""
        out = np.empty(len(values), np.intp)
        loop = compiled_loops().int_ids
        given = read_only(np.ascontiguousarray(values))
        if self._old.size:
            self._move(_MOVED * len(values))
        row = 0
        while True:
            row, self._count = loop(given, row, out, self._slots, self._keys, self._count, self._old, self._moved)
            if row == len(out):
                return out
            self._grow()

    def _grow(self) -> None:
        if self._count >= self._keys.size:
            keys = np.empty(2 * self._keys.size, np.int64)
            keys[: self._count] = self._keys[: self._count]
            self._keys = keys
        if 4 * self._count >= self._slots.size:
            self._move(self._old.size)
            self._old, self._slots = self._slots, np.zeros(2 * self._slots.size, np.int64)
            self._move(_AT_ONCE)

    def _move(self, pairs: int) -> None:
        end = min(self._moved + max(pairs, _AT_ONCE), self._old.size // 2)
        compiled_loops().move_ints(read_only(self._old), self._moved, end, self._slots)
        self._moved = end
        if 2 * end == self._old.size:
            self._old, self._moved = _NO_SLOTS, 0

    def reserve(self) -> int:
        """New id for null, not shared with any integer."""
        if self._count >= self._keys.size:
            self._grow()
        self._keys[self._count] = 0
        self._count += 1
        return self._count - 1

    def nbytes(self) -> int:
        """Bytes held."""
        return self._slots.nbytes + self._old.nbytes + self._keys.nbytes

    def values(self) -> npt.NDArray[np.int64]:
        """All integers in id order: a view, unaffected by later additions."""
        return self._keys[: self._count]


class KeyTable:
    """Distinct keys of several 64-bit integers, in order of first insertion.

    By the hash of the whole key.

    It grows a little with each batch, as `IntTable` does.
    """

    def __init__(self, width: int, expected: int = 0) -> None:
        room = _power_above(expected)
        self._slots = np.zeros(2 * room, np.int64)
        self._old = _NO_SLOTS
        self._moved = 0
        self._keys = np.empty((width, room), np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def ids(self, columns: list[npt.NDArray[np.int64]]) -> Ids:
        """Id of each row's key; new keys are added."""
        out = np.empty(len(columns[0]), np.intp)
        given, loop = read_only(np.array(columns)), compiled_loops().key_ids
        if self._old.size:
            self._move(_MOVED * len(out))
        row = 0
        while True:
            row, self._count = loop(given, row, out, self._slots, self._keys, self._count, self._old, self._moved)
            if row == len(out):
                return out
            self._grow()

    def _grow(self) -> None:
        width, room = self._keys.shape
        if self._count >= room:
            keys = np.empty((width, 2 * room), np.int64)
            keys[:, : self._count] = self._keys[:, : self._count]
            self._keys = keys
        if 2 * self._count >= self._slots.size:
            self._move(self._old.size)
            self._old, self._slots = self._slots, np.zeros(2 * self._slots.size, np.int64)
            self._move(_AT_ONCE)

    def _move(self, places: int) -> None:
        end = min(self._moved + max(places, _AT_ONCE), self._old.size)
        compiled_loops().move_keys(read_only(self._old), self._moved, end, read_only(self._keys), self._slots)
        self._moved = end
        if end == self._old.size:
            self._old, self._moved = _NO_SLOTS, 0

    def truncate(self, count: int) -> None:
        """Forget all but the first `count` keys."""
        known, self._keys = [column[:count] for column in self._keys], np.empty_like(self._keys)
        self._slots, self._old, self._moved, self._count = np.zeros_like(self._slots), _NO_SLOTS, 0, 0
        self.ids(known)

    def nbytes(self) -> int:
        """Bytes held."""
        return self._slots.nbytes + self._old.nbytes + self._keys.nbytes

    def values(self) -> list[npt.NDArray[np.int64]]:
        """Columns of all keys in id order: views, unaffected by later additions."""
        return [column[: self._count] for column in self._keys]


def _layout(strings: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Offsets (n + 1) and bytes of an Arrow string array, without a copy."""
    width = np.int32 if pa.types.is_string(strings.type) else np.int64
    _, offsets, data = strings.buffers()
    if not len(strings) or offsets is None:
        return read_only(np.zeros(1, width)), _NO_BYTES
    where = np.frombuffer(offsets, width, len(strings) + 1, strings.offset * np.dtype(width).itemsize)
    return read_only(where), _NO_BYTES if data is None else read_only(np.frombuffer(data, np.uint8))


_ALL: Ids = np.empty(0, np.intp)
_NO_BYTES: npt.NDArray[np.uint8] = np.frombuffer(bytes(8), np.uint8)


def warm_tables() -> None:
    """Compile the loops over tables and groups, or load them from Numba's cache."""
    for kind in (pa.string(), pa.large_string()):
        strings = StringTable()
        strings.ids(pa.array(map(str, range(2 * _SMALLEST)), kind))
    integers = IntTable()
    integers.ids(np.arange(2 * _SMALLEST, dtype=np.int64))
    keys = KeyTable(2)
    keys.ids([np.arange(2 * _SMALLEST, dtype=np.int64)] * 2)
    compiled_loops().mark_missing(read_only(np.zeros(1, np.int32)), np.zeros(1, np.intp), np.zeros(1, np.intp))
    groups = read_only(np.zeros(8, np.intp))
    loops = compiled_loops()
    loops.count_rows(groups, np.zeros(1, np.int64))
    loops.present_groups(np.zeros(1, np.int64), np.zeros(1, np.intp))
    counts = np.zeros(1, np.int32)
    loops.count_values(groups, 0, counts)
    loops.number_values(counts, np.zeros(2, np.int64), np.zeros(2, np.int64))
    loops.numbers_of_values(groups, 0, counts, np.zeros(8, np.intp))
    owners, ends = read_only(np.zeros(8, np.uint8)), np.zeros(1, np.intp)
    loops.order_by_owner(owners, np.zeros(9, np.intp), ends)
    loops.count_owners(owners, ends)
    loops.divide_in_two(owners, 8, groups, np.zeros(8, np.int64))
    loops.divide_words(owners, np.zeros(1, np.intp), groups, np.zeros(8, np.int64))
    hashes, heads, before = read_only(np.zeros(8, np.uint64)), np.zeros(8, np.int64), np.zeros(8, np.int64)
    loops.link_rows(hashes, 0, 8, heads, before)
    loops.find_rows(hashes, hashes, read_only(heads), read_only(before), np.zeros(8, np.intp), np.zeros(8, np.intp))
    loops.unlink_rows(hashes, 0, 8, heads, before)
    starts, order, packed = np.zeros(9, np.int64), np.zeros(8, np.int64), np.zeros(8, np.uint64)
    loops.pack_rows(hashes, 8, starts, np.zeros(8, np.int64), order, packed)
    frozen = map(read_only, (hashes, starts, order, packed, hashes, heads, before))
    loops.find_packed_rows(*frozen, np.zeros(8, np.intp), np.zeros(8, np.intp))
    one = np.uint64(1)
    loops.owners_of_integers(groups, np.int64(1), one, one, one, np.zeros(8, np.uint8))
    floats, terms = read_only(np.zeros(8)), np.zeros((1, 2))
    loops.add_terms(groups, floats, 0, terms, 2, np.zeros(8, np.int64), np.zeros(1))
    loops.greatest_size(floats, 1.0)
    loops.add_split(groups, floats, 1.0, 1.0, 1.0, terms, np.zeros(8, np.intp))
    loops.round_terms(read_only(terms), 2, np.zeros(1))
    loops.square_terms(floats, np.zeros((2, 8)))
    loops.spread_terms(read_only(np.ones(1, np.int64)), read_only(terms), read_only(terms), np.zeros(1))
    loops.sum_integers(groups, read_only(np.zeros(8, np.int64)), np.zeros(1, np.int64))
    for values in (floats, read_only(np.zeros(8, np.int64))):
        for loop in (loops.min_groups, loops.max_groups):
            loop(groups, values, np.zeros(1, values.dtype))
