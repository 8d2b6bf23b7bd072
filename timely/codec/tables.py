"""Columns as Arrow IPC: written once, read as views into what was received."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa

from timely.errors import CodecError

ALIGNMENT = 8


def write_table(table: pa.Table) -> pa.Buffer:
    """The table as an Arrow IPC stream. Only what is in view is written, also of a slice."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(_compact(table))
    return sink.getvalue()


def _compact(table: pa.Table) -> pa.Table:
    """A few rows of a column with a large dictionary need not take all of it along."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            column = table.column(place)
            if column.num_chunks and len(column.chunk(0).dictionary) > 4 * len(table) + 64:
                plain = column.cast(field.type.value_type)
                table = table.set_column(place, field, plain.dictionary_encode().cast(field.type))
    return table


def read_table(payload: Any) -> pa.Table:
    """The table of an Arrow IPC stream, viewing `payload` (any buffer) if that is aligned to 8 bytes.

    Raises:
        CodecError: if it is no such stream.
    """
    buffer = pa.py_buffer(payload)
    if buffer.address % ALIGNMENT:
        buffer = pa.py_buffer(buffer.to_pybytes())
    try:
        with pa.ipc.open_stream(buffer) as reader:
            return reader.read_all()
    except (pa.ArrowException, OSError) as error:
        raise CodecError(f"damaged columns: {error}") from error


def write_frame(frame: pl.DataFrame) -> pa.Buffer:
    """A Polars frame as an Arrow IPC stream.

    Raises:
        CodecError: if a column holds Python objects, or is of a type that Arrow lacks.
    """
    for name, dtype in frame.schema.items():
        if isinstance(dtype, pl.Object):
            raise CodecError(
                f"column {name!r} holds Python objects, which no column format carries; use records for them"
            )
    try:
        table = frame.to_arrow()
    except pa.ArrowException as error:
        raise CodecError(f"a column type has no Arrow form; cast it first (Int128 to Int64, say): {error}") from error
    return write_table(table)


def read_frame(payload: Any) -> pl.DataFrame:
    """The Polars frame that `write_frame` wrote. Numbers are viewed, strings are indexed in place."""
    frame = pl.from_arrow(read_table(payload), rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame
