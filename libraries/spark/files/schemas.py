"""Serialized Arrow schemas: in messages to Spark's process, and beside tables."""

from __future__ import annotations

import pyarrow as pa

from libraries.spark.errors import SparkError
from timely.data.codec.typed import shown


def write_schema(schema: pa.Schema) -> bytes:
    """Schema as bytes."""
    return bytes(schema.serialize())


def read_schema(data: bytes) -> pa.Schema:
    """Schema from the bytes of `write_schema`.

    Raises:
        SparkError: if it is none.
    """
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(data))
        str(schema)  # names are decoded where they are first looked at
    except (pa.ArrowException, OSError, ValueError) as error:
        raise SparkError(f"the schema of a file cannot be read: {shown(error)}") from None
    return schema
