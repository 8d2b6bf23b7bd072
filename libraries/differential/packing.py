"""Columns of changes as bytes, at the least width that holds their numbers.

What an exchange carries of large collections is mostly small numbers: nodes of a graph, labels, differences of 1. A column is
written as its least number and, for each row, how much more it is, in 1, 2, 4 or 8 bytes; a column of values or differences
that are all one takes none. The width belongs to the batch, so nothing has to be known of the stream, and nothing is lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from libraries.differential.rows import I64, LEAST, NOTHING, Rows, Tuples, constant, range_of
from timely.data.codec import register
from timely.errors import CodecError

_WIDTHS: dict[int, type[np.unsignedinteger[Any]]] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}

_Packed = tuple[int, int, bytes]
"""Least number, bytes for each row, and the bytes of all rows."""

_MOST = (1 << 63) - 1


def packed(rows: Rows) -> tuple[int | bytes, ...]:
    """Key, value and difference for the codec: number, width and bytes of each."""
    return *_narrowed(rows.key, 1), *_narrowed(rows.value, 0), *_narrowed(rows.diff, 0)


def unpacked(parts: Any) -> Rows:
    """Rows decoded from the result of `packed`.

    Raises:
        CodecError: for what `packed` cannot have given. No more memory is asked for than eight bytes for each that came.
    """
    if type(parts) is not tuple or len(parts) != 9:
        raise CodecError("damaged rows: they have three columns of three parts each")
    key, value, diff = (_checked(*parts[place : place + 3]) for place in (0, 3, 6))
    if not key[1]:
        raise CodecError("damaged rows: keys take at least a byte each")
    count = len(key[2]) // key[1]
    if key[0] < LEAST or (value[0] < LEAST and value[:2] != (NOTHING, 0)):
        raise CodecError("damaged rows: a number that no record is")
    return Rows(_widened(key, count), _widened(value, count), _widened(diff, count))


def _narrowed(column: I64, least: int) -> _Packed:
    """Column packed with at least `least` bytes for each row."""
    if not len(column):
        return 0, least, b""
    low, high = range_of(column)
    width = next(width for width in (0, 1, 2, 4, 8) if width >= least and high - low < 1 << 8 * width)
    if not width:
        return low, 0, b""
    kind = _WIDTHS[width]
    if width == 8:
        return low, width, (column.view(kind) - np.uint64(low & (1 << 64) - 1)).tobytes()
    narrow: npt.NDArray[Any] = np.subtract(column, low, out=np.empty(len(column), kind), casting="unsafe")
    return low, width, narrow.tobytes()


def _checked(low: Any, width: Any, data: Any) -> _Packed:
    if type(low) is not int or not NOTHING <= low <= _MOST or type(data) is not bytes:
        raise CodecError("damaged rows: a column is a number, a width and bytes")
    if width != 0 and (type(width) is not int or width not in _WIDTHS):
        raise CodecError(f"damaged rows: {width!r:.50} is no width")
    return low, width, data


def _widened(column: _Packed, count: int) -> I64:
    low, width, data = column
    if len(data) != count * width:
        raise CodecError(f"damaged rows: {len(data)} bytes for {count} rows of {width}")
    if not width or not count:
        return constant(low, count)
    narrow = np.frombuffer(data, _WIDTHS[width])
    if low + int(narrow.max()) > _MOST:
        raise CodecError("damaged rows: a number beyond 64 bits")
    if width == 8:
        return (narrow + np.uint64(low & (1 << 64) - 1)).view(np.int64)
    return np.add(narrow, low, dtype=np.int64)


def packed_tuples(tuples: Tuples) -> tuple[int | bytes, ...]:
    """Columns and differences of tuples, in the form of `packed`."""
    return tuple(part for each in (*tuples.columns, tuples.diff) for part in _narrowed(each, 1))


def unpacked_tuples(parts: Any) -> Tuples:
    """Tuples decoded from the result of `packed_tuples`.

    Raises:
        CodecError: for what `packed_tuples` cannot have given.
    """
    if type(parts) is not tuple or len(parts) < 6 or len(parts) % 3:
        raise CodecError("damaged tuples: they have columns of three parts each, and differences")
    columns = [_checked(*parts[place : place + 3]) for place in range(0, len(parts), 3)]
    if not all(width for _, width, _ in columns) or any(low < LEAST for low, _, _ in columns[:-1]):
        raise CodecError("damaged tuples: a number that no tuple has, or columns without bytes")
    count = len(columns[0][2]) // columns[0][1]
    *places, diff = (_widened(each, count) for each in columns)
    return Tuples(tuple(places), diff)


register(Rows, packed, unpacked, name="differential.Rows")
register(Tuples, packed_tuples, unpacked_tuples, name="differential.Tuples")
