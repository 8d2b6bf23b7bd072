"""Memory whose start is aligned, for blobs that are read."""

from __future__ import annotations

import numpy as np

ALIGNMENT = 64
"""The alignment that Arrow recommends for its buffers, in bytes."""


def aligned_memory(size: int) -> memoryview:
    """`size` uninitialised bytes that start at a multiple of `ALIGNMENT`."""
    room = np.empty(size + ALIGNMENT, np.uint8)
    skip = -room.ctypes.data % ALIGNMENT
    return room.data[skip : skip + size]
