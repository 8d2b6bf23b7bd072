"""CRC-32 of every value of a text or bytes column, the same as `zlib.crc32` of each.

Importing this module imports Numba, so `timely.codec.hashing` does it at the first big column only.
"""

# Numba infers the types of these loops by itself.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timely.kernels.compiled import _jit

_TABLE = np.empty(256, np.uint32)
for _byte in range(256):
    _value = _byte
    for _ in range(8):
        _value = (_value >> 1) ^ (0xEDB88320 if _value & 1 else 0)
    _TABLE[_byte] = _value
_U8 = np.uint32(8)
_LOW = np.uint32(0xFF)
_ONES = np.uint32(0xFFFFFFFF)


@_jit
def _crc_each(offsets, data, table, out):
    for row in range(out.size):
        crc = _ONES
        for at in range(offsets[row], offsets[row + 1]):
            crc = table[(crc ^ np.uint32(data[at])) & _LOW] ^ (crc >> _U8)
        out[row] = crc ^ _ONES


def crc_of_each(values: pa.Array) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
    """The CRC-32 and the length in bytes of each value of a binary or large_binary array; nulls count as empty."""
    wide = pa.types.is_large_binary(values.type)
    _, offsets_buffer, data_buffer = values.buffers()
    kind = np.int64 if wide else np.int32
    offsets = np.frombuffer(offsets_buffer, kind)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    data.flags.writeable = False
    out = np.empty(len(values), np.uint32)
    _crc_each(offsets, data, _TABLE, out)
    return out, np.diff(offsets).astype(np.int64)
