"""Small results of runs: as bytes, in the messages that otherwise name files."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

SMALL = 1 << 20
"""Bytes of rows, as Arrow holds them, that a message may carry."""

Written: TypeAlias = tuple[tuple[str, int], ...] | bytes
"""Result of a run: files in order, each with its row count; or few rows as bytes."""


def packed(table: pa.Table) -> bytes:
    """The rows of a table as bytes, which `timely.data.codec.tables.read_table` reads."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
