"""Type-exact encoding and stable hashing of values for wire and store.

`decode(encode(x)) == x`, with equal types too.

`batches` is the way in; `records` is the format of values; `standard`, `classes` and `numeric` say how each
type is carried; `tables` carries columns as Arrow IPC. `hashing` is the stable hash that routing and stores
rest on.

Enters: values. Leaves: bytes, and the same values again, on another worker or after a restart.

Each name is imported when it is first used: messages (`typed`) are read without Arrow and Polars, too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from timely.data.codec.batches import check_columns, decode, decode_batch, encode, encode_batch
    from timely.data.codec.classes import carry, register

__all__ = ["carry", "check_columns", "decode", "decode_batch", "encode", "encode_batch", "register"]

_OF_CLASSES = ("carry", "register")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(f"{__name__}.{'classes' if name in _OF_CLASSES else 'batches'}")
    value = globals()[name] = getattr(home, name)
    return value
