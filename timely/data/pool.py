"""Memory that is used again, for columns that are encoded and then kept for a while.

An allocator gives back to the system what thousands of messages held that are forgotten at once, and gets new pages for the
next ones. The system clears each of them, which takes as long as to encode what is put there, and longer on virtual machines.
So chunks stay here.
"""

from __future__ import annotations

from sys import getrefcount

import numpy as np
import numpy.typing as npt

CHUNK = 4 << 20
"""Bytes of a chunk. It is used again as a whole, when nothing in it is used any more."""

_PIECE = 64
"""Bytes of which what is given out is a multiple: columns are read fast at such addresses."""


class Pool:
    """Chunks of memory, from which buffers are cut one behind the other.

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
        """The chunk from which buffers are cut now, and `_at` where the next one begins."""
        self._at = 0

    @property
    def size(self) -> int:
        """Bytes of all chunks."""
        return self._chunk * len(self._chunks)

    def room(self, size: int) -> memoryview | None:
        """A buffer of `size` bytes to write to, of which `used` says how many are kept; None if no chunk is as large."""
        if size > self._chunk:
            return None
        if self._open is None or self._at + size > self._chunk:
            self._open = None  # it may be free itself
            self._open, self._at = self._free(), 0
        return self._open[self._at : self._at + size]

    def used(self, size: int) -> None:
        """Of what `room` has given last the first bytes are used."""
        self._at += -(-size // _PIECE) * _PIECE

    def _free(self) -> memoryview:
        """A chunk of which there is no view; a new one if there is none."""
        for chunk, references in zip(self._chunks, _references(self._chunks), strict=True):
            if references == _UNUSED:
                return chunk.data
        self._chunks.append(np.empty(self._chunk, np.uint8))
        return self._chunks[-1].data


def _references(chunks: list[npt.NDArray[np.uint8]]) -> list[int]:
    """The references to each chunk, the list's and those of this function included."""
    return [getrefcount(chunk) for chunk in chunks]


_UNUSED = _references([np.empty(1, np.uint8)])[0]
"""References to a chunk that nobody looks at. It is 3 in Python 3.11, and less where some are borrowed."""
