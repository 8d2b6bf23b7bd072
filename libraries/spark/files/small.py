"""Small results of runs, sent as bytes within messages instead of as files."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

SMALL = 1 << 20
"""Most bytes of rows in a message, in Arrow's memory format."""

Written: TypeAlias = tuple[tuple[str, int], ...] | bytes
"""Result of a run: files in order, each with its row count; or few rows as bytes."""


def packed(table: pa.Table) -> bytes:
    """Rows of a table as bytes for `timely.data.codec.tables.read_table`."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
