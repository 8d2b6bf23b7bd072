"""Files of a history: records with check sums, in a bounded ring. Pure.

A record is a mark, a kind, its length, a check sum, and its bytes. Where something is damaged or cut off, reading goes on at
the next mark with a right check sum: damage costs the records that it touches, and no others.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

MARK = b"\xf5FkH"
FRAMES, OPTIONS, COUNTERS, FULL, FACT = range(1, 6)
"""Kinds of records: frames, options, counters, an observation in full, a fact."""

RING_BYTES = 64 << 20
"""Default size of a ring, in bytes: about nine days of 100 operators on 4 workers."""

SEGMENTS = 16
"""Number of segments of a ring: the oldest is deleted at a time."""

_HEAD = struct.Struct("<4sBII")
_NAME = re.compile(r"past-(\d{8,})")


@dataclass(frozen=True, slots=True)
class Record:
    """Record of a file, with its place there."""

    kind: int
    data: memoryview
    offset: int


def framed(kind: int, data: bytes) -> bytes:
    """Bytes of a record."""
    return _HEAD.pack(MARK, kind, len(data), zlib.crc32(data, kind)) + data


def records(data: bytes | memoryview) -> tuple[list[Record], int]:
    """Whole records of a file, and the number of its bytes that are none.

    >>> good, bad = records(b"?" + framed(1, b"one") + framed(2, b"two")[:-1])
    >>> [bytes(each.data) for each in good], bad
    ([b'one'], 16)
    """
    view, at, lost = memoryview(data), 0, 0
    found: list[Record] = []
    whole = bytes(view) if not isinstance(data, bytes) else data
    while at < len(view):
        start = whole.find(MARK, at)
        if start < 0:
            return found, lost + len(view) - at
        lost += start - at
        at = start
        if len(view) - at >= _HEAD.size:
            _, kind, size, check = _HEAD.unpack_from(view, at)
            body = view[at + _HEAD.size : at + _HEAD.size + size]
            if len(body) == size and zlib.crc32(body, kind) == check:
                found.append(Record(kind, body, at))
                at += _HEAD.size + size
                continue
        lost += 1
        at += 1
    return found, lost


class Ring:
    """Names and sizes of a ring's segments.

    >>> ring = Ring({}, 160)
    >>> [ring.add(10) for _ in range(18)][-3:], ring.size
    ([('past-00000015', ()), ('past-00000016', ('past-00000000',)), ('past-00000017', ('past-00000001',))], 160)
    """

    def __init__(self, sizes: dict[str, int], bound: int = RING_BYTES) -> None:
        self._sizes = {number_of(name): size for name, size in sorted(sizes.items()) if number_of(name) >= 0}
        self._bound = bound
        self._number = max(self._sizes, default=-1)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(self._sizes.values())

    def add(self, size: int) -> tuple[str, tuple[str, ...]]:
        """Segment for the next `size` bytes, and segments to delete for them.

        The sum of all is at most the bound, unless these bytes alone are more.
        """
        if self._number < 0 or self._sizes[self._number] + size > self._bound // SEGMENTS:
            self._number += 1
            self._sizes[self._number] = 0
        self._sizes[self._number] += size
        gone = []
        for number in sorted(self._sizes):
            if self.size <= self._bound or number == self._number:
                break
            del self._sizes[number]
            gone.append(_named(number))
        return _named(self._number), tuple(gone)

    def next(self) -> None:
        """Begin a new segment, as the last one cannot be written any more."""
        self._number += 1
        self._sizes[self._number] = 0


def number_of(name: str) -> int:
    """Number of a segment by its name; -1 if it is none."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else -1


def segments(names: Iterable[str]) -> list[str]:
    """Names of segments among `names`, oldest first."""
    return sorted((name for name in names if number_of(name) >= 0), key=number_of)


def _named(number: int) -> str:
    return f"past-{number:08d}"
