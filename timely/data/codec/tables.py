"""Columns as Arrow IPC: written once, read as views into the received bytes.

Arrow and Polars believe the offsets, indices and lengths that a column comes with, and read memory by them. So columns
from beyond a border of trust (docs/decisions/026) are checked in full before anybody looks at them: every offset and index,
all text, and that nothing is larger than the bytes that stand for it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import polars as pl
import pyarrow as pa

from timely.data.batch import as_arrow
from timely.data.codec.typed import shown
from timely.data.pool import Pool
from timely.errors import CodecError

ALIGNMENT = 8

WEIGHTLESS_ROWS = 1 << 24
"""Most rows accepted without a byte for each: untyped nulls, and runs."""


_MANY_ROWS = 2048
"""Least row count for computing a table's size before it is written."""

_HEAD, _COLUMN_HEAD = 8192, 1024
"""Bytes reserved for the headers of the stream and of each column."""


def write_table(table: pa.Table, pool: Pool | None = None) -> pa.Buffer:
    """Encode a table as an Arrow IPC stream.

    Of a slice only the part in view is written.

    Args:
        pool: where to write it, if it is large and there is room.

    Raises:
        CodecError: if it could not be read again, because of its size.
    """
    if len(table) > WEIGHTLESS_ROWS:
        _check_weight(table)
    table = _compact(table)
    if pool is not None and len(table) >= _MANY_ROWS:
        room = pool.room(int(table.nbytes) + _HEAD + _COLUMN_HEAD * table.num_columns)
        if room is not None and (written := _write_into(room, table)) is not None:
            pool.used(written.size)
            return written
    sink = pa.BufferOutputStream()
    _write(sink, table)
    return sink.getvalue()


def _write(sink: pa.NativeFile, table: pa.Table) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def _write_into(room: memoryview, table: pa.Table) -> pa.Buffer | None:
    """Write a table into `room`; None if it did not fit.

    Each of many pieces has a header of its own, so the estimate may fall short.
    """
    buffer = pa.py_buffer(room)
    sink = pa.FixedSizeBufferWriter(buffer)
    try:
        _write(sink, table)
    except OSError:
        return None
    return buffer.slice(0, sink.tell())


def _compact(table: pa.Table) -> pa.Table:
    """Drop unused dictionary entries from short tables with large dictionaries."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            column = table.column(place)
            if column.num_chunks and len(column.chunk(0).dictionary) > 4 * len(table) + 64:
                plain = column.cast(field.type.value_type)
                table = table.set_column(place, field, plain.dictionary_encode().cast(field.type))
    return table


def read_table(payload: Any, trusted: bool = False) -> pa.Table:
    """Decode an Arrow IPC stream, viewing `payload` if aligned to 8 bytes.

    Args:
        trusted: the bytes were written by a process of this job on this host, and came straight from it.

    Raises:
        CodecError: if it is no such stream, or not one that `write_table` could have written.
    """
    buffer = pa.py_buffer(payload)
    if buffer.address % ALIGNMENT:
        buffer = pa.py_buffer(buffer.to_pybytes())
    try:
        if not trusted:
            _refuse_compressed(memoryview(buffer))
        with pa.ipc.open_stream(buffer) as reader:
            table = reader.read_all()
        if not trusted:
            _shown(table.schema)  # names and time zones are decoded where they are first looked at
            table.validate(full=True)
            for field in table.schema:
                _check_type(field.type)
            _check_weight(table)
    except (pa.ArrowException, OSError, UnicodeDecodeError, struct.error, IndexError) as error:
        raise CodecError(f"damaged columns: {shown(error)}") from error
    return table


def _shown(schema: pa.Schema) -> str:
    """Column names and types as text, without metadata."""
    return str(schema.to_string(show_field_metadata=False, show_schema_metadata=False))


_WORD = struct.Struct("<II")
_TABLE = struct.Struct("<i")
_SLOT = struct.Struct("<H")
_REFERENCE = struct.Struct("<I")
_LENGTH = struct.Struct("<q")
_CONTINUES = 0xFFFFFFFF
_DICTIONARY, _BATCH = 2, 3
_UNKNOWN = (pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME)


def _refuse_compressed(data: memoryview) -> None:
    """Refuse compressed buffers: their unpacked size has no bound.

    `write_table` makes none, so none are read.
    """
    at = 0
    while at + _WORD.size <= len(data):
        mark, length = _WORD.unpack_from(data, at)
        if mark != _CONTINUES:
            raise CodecError("damaged columns: a message does not begin as it should")
        if length == 0:
            return
        head = data[at + _WORD.size : at + _WORD.size + length]
        message = _REFERENCE.unpack_from(head)[0]
        kind = _field(head, message, 1)
        content = _field(head, message, 2)
        if kind is not None and content is not None and head[kind] in (_DICTIONARY, _BATCH):
            batch = content + _REFERENCE.unpack_from(head, content)[0]
            if head[kind] == _DICTIONARY and (inner := _field(head, batch, 1)) is not None:
                batch = inner + _REFERENCE.unpack_from(head, inner)[0]
            if _field(head, batch, 3) is not None:
                raise CodecError("damaged columns: they are compressed, which this version never writes")
        body = _field(head, message, 3)
        size = 0 if body is None else _LENGTH.unpack_from(head, body)[0]
        if size < 0:
            raise CodecError("damaged columns: a message is shorter than nothing")
        at += _WORD.size + length + size


def _field(head: memoryview, table: int, number: int) -> int | None:
    """Position of a field in a flatbuffers table; None if absent."""
    layout = table - _TABLE.unpack_from(head, table)[0]
    slot = 4 + 2 * number
    if layout < 0 or slot >= _SLOT.unpack_from(head, layout)[0]:
        return None
    offset: int = _SLOT.unpack_from(head, layout + slot)[0]
    return table + offset if offset else None


def _check_type(kind: pa.DataType) -> None:
    """Refuse Arrow types without a pyarrow class, as their values cannot be read."""
    if kind.id in _UNKNOWN:
        raise CodecError(f"damaged columns: there is nothing in Python for {kind}")
    for number in range(kind.num_fields):
        _check_type(kind.field(number).type)
    if pa.types.is_dictionary(kind):
        _check_type(kind.value_type)


def _check_weight(table: pa.Table) -> None:
    """Refuse columns with more rows than their bytes allow.

    Raises:
        CodecError: if there are more than `WEIGHTLESS_ROWS` rows of nothing.
    """
    kinds = [field.type for field in table.schema]
    if len(table) > WEIGHTLESS_ROWS and all(map(_is_weightless, kinds)):
        raise CodecError(
            f"{len(table):,} rows of nothing but nulls without a type, or runs: give a column a type, or send fewer at once"
        )
    for place, kind in enumerate(kinds):
        if not pa.types.is_primitive(kind):
            for chunk in table.column(place).chunks:
                _check_inner(chunk)


def _check_inner(array: pa.Array) -> None:
    for inner in _inside(array):
        if len(inner) > WEIGHTLESS_ROWS and _is_weightless(inner.type):
            raise CodecError(f"a list of {len(inner):,} nulls without a type, or runs: give its items a type")
        _check_inner(inner)


def _inside(array: pa.Array) -> Iterator[pa.Array]:
    kind = array.type
    if pa.types.is_dictionary(kind):
        yield array.dictionary
    elif pa.types.is_run_end_encoded(kind) or pa.types.is_map(kind) or _is_list(kind):
        yield array.values
    elif pa.types.is_struct(kind) or pa.types.is_union(kind):
        yield from (array.field(number) for number in range(kind.num_fields))
    elif isinstance(kind, pa.BaseExtensionType):
        yield array.storage


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def _is_weightless(kind: pa.DataType) -> bool:
    """True if values of this type may take no bytes."""
    if pa.types.is_struct(kind):
        return all(_is_weightless(kind.field(number).type) for number in range(kind.num_fields))
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size == 0 or _is_weightless(kind.value_type)
    if pa.types.is_fixed_size_binary(kind):
        return bool(kind.byte_width == 0)
    return bool(pa.types.is_null(kind) or pa.types.is_run_end_encoded(kind))


def write_frame(frame: pl.DataFrame, pool: Pool | None = None) -> pa.Buffer:
    """A Polars frame as an Arrow IPC stream. `pool` as for `write_table`.

    Raises:
        CodecError: if a column holds Python objects, or is of a type that Arrow lacks.
    """
    try:
        table = as_arrow(frame)
    except TypeError as error:
        raise CodecError(str(error)) from error
    except pl.exceptions.PanicException as error:
        raise CodecError(
            f"Polars has no Arrow form for these columns, named {frame.columns!r}: {shown(error)}"
        ) from None
    return write_table(table, pool)


def read_frame(payload: Any, trusted: bool = False) -> pl.DataFrame:
    """Decode a Polars frame written by `write_frame`.

    Numbers are viewed, strings are indexed in place.

    Args:
        trusted: as for `read_table`.

    Raises:
        CodecError: if it is no frame.
    """
    table = read_table(payload, trusted)
    if not trusted and "\0" in _shown(table.schema):
        raise CodecError("damaged columns: a name holds the character NUL, of which Polars dies")
    try:
        frame = pl.from_arrow(table, rechunk=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException, ValueError, TypeError) as error:
        raise CodecError(f"damaged columns: no Polars frame has these: {shown(error)}") from None
    assert isinstance(frame, pl.DataFrame)
    return frame
