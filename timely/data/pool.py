"""Pool of reused memory chunks for encoded columns.

An allocator gives back to the system what thousands of messages held that are forgotten at once, and gets new pages for the
next ones. The system clears each of them, which takes as long as to encode what is put there, and longer on virtual machines.
So chunks stay here.
"""

from __future__ import annotations

from sys import getrefcount

import numpy as np
import numpy.typing as npt

CHUNK = 4 << 20
"""Bytes of a chunk, reused as a whole once nothing refers to it."""

_PIECE = 64
"""Alignment of buffers in bytes, for fast reads of columns."""


class Pool:
    """Memory chunks for bump allocation of buffers, freed by reference count.

    Nobody gives a buffer back: a chunk is free when no view of it is left anywhere. There are as many chunks as were in use at
    the same time.

    >>> pool = Pool(chunk=256)
    >>> first = pool.room(100); first[:3] = b"abc"; pool.used(3)
    >>> second = pool.room(100); second[:3] = b"def"; pool.used(3)
    >>> bytes(first[:3]), pool.size
    (b'abc', 256)
    """

    def __init__(self, chunk: int = CHUNK) -> None:
        self._chunk = chunk
        self._chunks: list[npt.NDArray[np.uint8]] = []
        self._open: memoryview | None = None
        """Current chunk; `_at` is the offset of the next buffer."""
        self._at = 0

    @property
    def size(self) -> int:
        """Bytes of all chunks."""
        return self._chunk * len(self._chunks)

    def room(self, size: int) -> memoryview | None:
        """Writable buffer of `size` bytes; None if larger than a chunk.

        The next call of `used` says how many of its bytes are kept.
        """
        if size > self._chunk:
            return None
        if self._open is None or self._at + size > self._chunk:
            self._open = None  # it may be free itself
            self._open, self._at = self._free(), 0
        return self._open[self._at : self._at + size]

    def used(self, size: int) -> None:
        """Keep the first bytes of the last buffer given by `room`."""
        self._at += -(-size // _PIECE) * _PIECE

    def _free(self) -> memoryview:
        """Unreferenced chunk, or a new one."""
        for chunk, references in zip(self._chunks, _references(self._chunks), strict=True):
            if references == _UNUSED:
                return chunk.data
        self._chunks.append(np.empty(self._chunk, np.uint8))
        return self._chunks[-1].data


def _references(chunks: list[npt.NDArray[np.uint8]]) -> list[int]:
    """Reference counts of chunks, the list's and this function's included."""
    return [getrefcount(chunk) for chunk in chunks]


_UNUSED = _references([np.empty(1, np.uint8)])[0]
"""Reference count of an unused chunk.

It is 3 in Python 3.11, and less where some are borrowed.
"""
