"""Locate the value refused by the codec.

Slow, and only run after an error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from timely.data.codec.records import CarefulWriter
from timely.errors import CodecError

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
