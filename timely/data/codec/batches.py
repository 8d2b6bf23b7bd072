"""Entry point: batches and single values to bytes, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa

from timely.data.batch import Batch
from timely.data.codec import classes, numeric, standard  # noqa: F401 - they say how their types are carried
from timely.data.codec.records import CarefulWriter, ColumnWriter, read
from timely.data.codec.tables import read_frame, read_table, write_frame, write_table
from timely.data.codec.typed import shown
from timely.data.pool import Pool
from timely.errors import CodecError

FORMAT = 1
"""Version of the encoded format."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder()
_writer, _careful_writer = ColumnWriter(), CarefulWriter()

RECORDS, ARROW, POLARS = (_encoder.encode((FORMAT, kind)) for kind in ("records", "arrow", "polars"))


def _pack(values: list[Any], single: bool) -> bytes:
    try:
        return _encoder.encode(_writer.column(values))
    except (OverflowError, UnicodeError):
        pass  # An integer beyond 64 bits, or text that is not Unicode.
    except RecursionError:
        raise CodecError("a value is nested too deeply, or contains itself") from None
    except CodecError as error:
        raise blame(values, single, error) from None
    return _encoder.encode(_careful_writer.column(values))


def _unpack(data: Any, trusted: bool = False) -> list[Any]:
    try:
        values = read(_decoder.decode(data))
    except (CodecError, MemoryError):
        raise
    except Exception as error:
        raise CodecError(f"damaged value: {type(error).__name__}: {shown(error)}") from error
    return values if type(values) is list else list(values)


def encode(value: Any) -> bytes:
    """One value as bytes.

    Raises:
        CodecError: if it, or something inside it, is of a type that is not carried. The message says where
            and what to do.
    """
    return _pack([value], single=True)


def decode(data: Any) -> Any:
    """Inverse of `encode`: an equal value, with equal types at every depth.

    Args:
        data: bytes or any other buffer.

    Raises:
        CodecError: if the bytes are damaged, or name a class that is not known here.
    """
    values = _unpack(data)
    if len(values) != 1:
        raise CodecError(f"damaged value: {len(values)} values where there should be one")
    return values[0]


def encode_batch(batch: Batch, pool: Pool | None = None) -> tuple[bytes, list[Any]]:
    """A batch as a short header and payload buffers (one today).

    Args:
        pool: the memory for large columns, of a batch that many like it follow.

    Raises:
        CodecError: if a record is of a type that is not carried. The message says where and what to do.
    """
    if type(batch) is list:
        return RECORDS, [_pack(batch, single=False)]
    if isinstance(batch, pa.Table):
        return ARROW, [write_table(batch, pool)]
    if isinstance(batch, pl.DataFrame):
        return POLARS, [write_frame(batch, pool)]
    raise CodecError(
        f"a batch is a list of records, an Arrow table or a Polars frame, not {type(batch).__name__}; "
        "return one of these from map_batches, or send one of these"
    )


def decode_batch(header: Any, payload: Any, trusted: bool = False) -> Batch:
    """Inverse of `encode_batch`.

    Columns are views into `payload`, which must not change afterwards.

    Args:
        payload: the payload's buffers, joined; any buffer. Aligned to 8 bytes it is not copied.
        trusted: it came straight from a process of this job on this host, so that columns need no check. Records are
            always read with the same care.

    Raises:
        CodecError: if the bytes are damaged, come from another version, or name a class that is not known
            here.
    """
    reader = _READERS.get(bytes(header))
    if reader is None:
        raise CodecError(
            f"batch header {bytes(header)[:50]!r} is not of format {FORMAT}; it was written by another version"
        )
    return reader(payload, trusted)


def check_columns(header: Any, payload: Any) -> None:
    """Validate an encoded batch from a store before trusting peers get it.

    See `trusted` of `decode_batch`.

    Raises:
        CodecError: if its columns are damaged.
    """
    if bytes(header) in (ARROW, POLARS):
        decode_batch(header, payload)


_READERS: dict[bytes, Callable[[Any, bool], Batch]] = {RECORDS: _unpack, ARROW: read_table, POLARS: read_frame}


_writer = CarefulWriter()
DEPTH = 64


def blame(values: Sequence[Any], single: bool, error: CodecError) -> CodecError:
    """`error` with the path of the offending value: `record 3, field 'x', item 0`."""
    for number, value in enumerate(values):
        found = _search(value, "value" if single else f"record {number}", 0)
        if found is not None:
            path, reason = found
            return CodecError(f"{path}: {reason}")
    return error


def _search(value: Any, path: str, depth: int) -> tuple[str, CodecError] | None:
    try:
        _writer.column([value])
    except CodecError as error:
        if depth < DEPTH:
            for step, inner in _parts(value):
                found = _search(inner, f"{path}, {step}", depth + 1)
                if found is not None:
                    return found
        return path, error
    except RecursionError:
        return path, CodecError("nested too deeply, or contains itself")
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"key {key!r}", key
            yield f"value of {key!r}", item
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for name in value._fields:
            yield f"field {name!r}", getattr(value, name)
    elif isinstance(value, list | tuple | set | frozenset):
        for number, item in enumerate(value):
            yield f"item {number}", item
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield f"field {field.name!r}", getattr(value, field.name)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield f"field {name!r}", getattr(value, name)
