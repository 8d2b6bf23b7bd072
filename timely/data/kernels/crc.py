"""Compiled routing hash of text and bytes: CRC-32 (as in zlib) and length, mixed.

Importing this module imports Numba, so `timely.data.codec.hashing` does it at the first big column only.
"""

# Numba infers the types of these loops by itself.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timely.data.kernels.compiled import _jit
from timely.data.kernels.tables import read_only

_TABLE = np.empty(256, np.uint32)
for _byte in range(256):
    _value = _byte
    for _ in range(8):
        _value = (_value >> 1) ^ (0xEDB88320 if _value & 1 else 0)
    _TABLE[_byte] = _value
_U8 = np.uint32(8)
_LOW = np.uint32(0xFF)
_ONES = np.uint32(0xFFFFFFFF)
_S32 = np.uint64(32)


@_jit
def _hash_each(offsets, data, table, seed, mix_1, mix_2, out):
    for row in range(out.size):
        start = offsets[row]
        stop = offsets[row + 1]
        crc = _ONES
        for at in range(start, stop):
            crc = table[(crc ^ np.uint32(data[at])) & _LOW] ^ (crc >> _U8)
        value = (np.uint64(stop - start) << _S32 | np.uint64(crc ^ _ONES)) ^ seed
        value *= mix_1
        value ^= value >> _S32
        out[row] = value * mix_2


def hash_each(values: pa.Array, seed: int, mix: tuple[int, int]) -> npt.NDArray[np.uint64]:
    """Routing hash of each value of a binary array, nulls as empty.

    As `timely.data.codec.hashing` defines it.
    """
    wide = pa.types.is_large_binary(values.type)
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64 if wide else np.int32)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    out = np.empty(len(values), np.uint64)
    first, second = (np.uint64(factor) for factor in mix)
    mine = read_only(offsets[values.offset : values.offset + len(values) + 1])
    _hash_each(mine, read_only(data), _TABLE, np.uint64(seed), first, second, out)
    return out


def warm_hashes() -> None:
    """Compile the loop, or load it from Numba's cache."""
    for kind in (pa.binary(), pa.large_binary()):
        hash_each(pa.array([b"warm"], kind), 0, (1, 1))
