"""Index from key hashes to rows.

Rows are numbered as they come. Each is linked to the one before it with a hash in the same slot of a table, so to link a row
costs the same however many there are, and to forget the last ones undoes just that. Nothing is ever sorted. Few rows are in a
dictionary of Python: a compiled loop costs more to load than it saves then. Rows are linked when somebody
looks for them.

Rows of one key that are linked lie anywhere in memory. Where many keys are sought at once, as in each iteration of a loop,
and half as many rows were found so as there are, all are *packed*: put into the order of their slots, once. Those that come
later are linked as before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from timely.data.codec.hashing import Hashes
from timely.data.kernels.columns import TINY
from timely.data.kernels.tables import Ids, compiled_loops, read_only

_FEW = 4096
"""Most rows in a Python dictionary."""

_MANY = 16
"""Share of rows for a many-keys search: at least one hash in so many rows."""

_SEVERAL = 64
"""Least work for a compiled loop, if loaded: rows added plus rows looked for."""


class RowIndex:
    """Hash of each row, and the rows of each hash."""

    def __init__(self) -> None:
        self._hashes: Hashes = np.empty(0, np.uint64)
        self._count = 0
        self._linked = 0
        """Number of rows linked so far, in the dictionary or in the table."""
        self._few: dict[int, list[int]] | None = {}
        self._heads = np.zeros(0, np.int64)
        """Last row + 1 of each slot, by the lower bits of a hash."""
        self._before = np.zeros(0, np.int64)
        """Row before in the same slot + 1; 0 for none."""
        self._packed = 0
        """Number of leading rows in packed order; they are not linked."""
        self._starts = self._order = np.zeros(0, np.int64)
        self._packed_hashes: Hashes = np.zeros(0, np.uint64)
        self._found = 0
        """Rows found by many-key searches since the last packing."""

    def __len__(self) -> int:
        return self._count

    def hashes(self, start: int, end: int) -> Hashes:
        """Hashes of a range of rows."""
        return self._hashes[start:end]

    def add(self, hashes: Hashes) -> None:
        """Add rows with these hashes."""
        first, self._count = self._count, self._count + len(hashes)
        if self._count > len(self._hashes):
            self._hashes = _longer(self._hashes, 2 * self._count)
        self._hashes[first : self._count] = hashes

    def find(self, hashes: Hashes) -> tuple[Ids, Ids]:
        """All pairs (place, row) of equal hash, in order of place, then row."""
        if not self._count:
            return np.zeros(0, np.intp), np.zeros(0, np.intp)
        if self._linked < self._count:
            self._link(len(hashes))
        return self._find(hashes)

    def truncate(self, count: int) -> None:
        """Forget all but the first `count` rows."""
        if count < self._packed:
            self._packed = self._linked = 0
            self._heads = np.zeros(0, np.int64)
        elif count < self._linked:
            if self._few is None:
                compiled_loops().unlink_rows(read_only(self._hashes), count, self._linked, self._heads, self._before)
            else:
                for each in self._hashes[count : self._linked][::-1].tolist():
                    self._few[each].pop()
            self._linked = count
        self._count = min(self._count, count)

    def _find(self, hashes: Hashes) -> tuple[Ids, Ids]:
        """Pairs of equal hash among linked and packed rows."""
        if self._few is not None:
            known = [self._few.get(each) for each in hashes.tolist()]
            found = [(place, rows) for place, rows in enumerate(known) if rows]
            places = np.array([place for place, _ in found], np.intp).repeat([len(rows) for _, rows in found])
            return places, np.array([row for _, rows in found for row in rows], np.intp)
        wanted, many = read_only(np.ascontiguousarray(hashes)), len(hashes) * _MANY >= self._count
        if many and self._found > self._count // 2:
            self._pack()
        held = [read_only(each) for each in (self._hashes, self._heads, self._before)]
        loop = compiled_loops().find_rows
        if self._packed:  # else these would be made for each search of a few keys
            held = [*map(read_only, (self._starts, self._order, self._packed_hashes)), *held]
            loop = compiled_loops().find_packed_rows
        room = max(2 * len(hashes), self._count) if many else 2 * len(hashes)  # each row once, if no key comes twice
        while True:
            places, rows = np.empty(room, np.intp), np.empty(room, np.intp)
            count = loop(wanted, *held, places, rows)
            if count <= room:
                break
            room = count
        if many:
            self._found += count
        return places[:count], rows[:count]

    def _pack(self) -> None:
        """Pack all rows."""
        self._found = 0
        if self._packed < self._linked:
            slots = 1 << self._linked.bit_length()
            self._starts, self._order = np.zeros(slots + 1, np.int64), np.empty(self._linked, np.int64)
            self._packed_hashes = np.empty(self._linked, np.uint64)
            ends = np.empty(slots, np.int64)
            known = read_only(self._hashes)
            compiled_loops().pack_rows(known, self._linked, self._starts, ends, self._order, self._packed_hashes)
            self._packed = self._linked
            self._heads[:] = 0

    def _link(self, asked: int) -> None:
        """Link all rows, by dictionary or table depending on the work ahead.

        `asked` is the number of hashes that are looked for.
        """
        first, self._linked = self._linked, self._count
        several = asked + self._count - first >= _SEVERAL and compiled_loops.cache_info().currsize
        if self._few is not None and self._count <= _FEW and asked < TINY and not several:
            for row, each in enumerate(self._hashes[first : self._count].tolist(), first):
                self._few.setdefault(each, []).append(row)
            return
        if self._few is not None:
            self._few, first = None, 0
        if len(self._before) < len(self._hashes):
            self._before = _longer(self._before, len(self._hashes))
        if self._count > len(self._heads):
            self._heads, first = np.zeros(1 << (2 * self._count).bit_length(), np.int64), self._packed
        compiled_loops().link_rows(read_only(self._hashes), first, self._count, self._heads, self._before)

    def nbytes(self) -> int:
        """Estimate of bytes held."""
        packed = self._starts.nbytes + self._order.nbytes + self._packed_hashes.nbytes if self._packed else 0
        return self._hashes.nbytes + self._heads.nbytes + self._before.nbytes + packed + 100 * len(self._few or ())


def _longer(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    larger = np.empty(size, array.dtype)  # which takes memory only from where it is written
    larger[: len(array)] = array
    return larger
