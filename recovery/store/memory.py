"""Aligned memory for blobs read from a store."""

from __future__ import annotations

import numpy as np

ALIGNMENT = 64
"""Alignment in bytes recommended by Arrow for its buffers."""


def aligned_memory(size: int) -> memoryview:
    """Uninitialised memory of `size` bytes, starting at a multiple of `ALIGNMENT`."""
    room = np.empty(size + ALIGNMENT, np.uint8)
    skip = -room.ctypes.data % ALIGNMENT
    return room.data[skip : skip + size]
