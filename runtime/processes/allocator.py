"""C allocator settings for processes with large, short-lived arrays.

Arrays of more than 128 KB are allocated from the system and returned to it one by one, and the first touch of each
page is an interruption of a microsecond or more, of ten and more on a virtual machine. glibc raises both bounds by
itself as arrays are freed, up to 32 MB and twice that; a worker begins there.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 32 << 20
"""Largest bound accepted by glibc."""


def keep_freed_memory() -> None:
    """Keep freed memory of large arrays in this process, with glibc.

    That is memory of arrays of up to 32 MB, 64 MB in all at the heap's end. With other C libraries it does nothing.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # musl has no such function
            library = ctypes.CDLL(None)
            library.mallopt(_MMAP_THRESHOLD, _LARGEST)
            library.mallopt(_TRIM_THRESHOLD, 2 * _LARGEST)
