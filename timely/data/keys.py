"""Canonical dictionary keys: all NaN are one key, as in columns.

Python's NaN equals nothing, not even another NaN. But a dictionary finds what is the very same object: so in keys every NaN
becomes `math.nan`. And -0.0, which equals 0.0, is written as 0.0, whichever of the two came first.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import uuid
from collections.abc import Collection, Iterable
from decimal import Decimal
from itertools import chain
from operator import ne
from typing import Any

import msgspec
import numpy as np

from timely.errors import shown

_PLAIN = frozenset({bool, int, str, bytes, type(None), dt.date, dt.datetime, dt.time, dt.timedelta, uuid.UUID})
"""Types always canonical as keys."""

_NUMBERS = _PLAIN | {float}
_TUPLES = {tuple}
_DECIMAL_NAN = Decimal("NaN")


def are_canonical(keys: Collection[Any]) -> bool:
    """True if `canonical` leaves all `keys` unchanged; False in doubt."""
    types = set(map(type, keys))
    if types <= _PLAIN:
        return True
    if types <= _NUMBERS:
        return not any(map(ne, keys, keys)) and 0.0 not in keys
    if types == _TUPLES:
        return _PLAIN.issuperset(map(type, chain.from_iterable(keys))) or are_canonical(list(chain.from_iterable(keys)))
    return False


def canonical(key: Any) -> Any:
    """Key with every NaN as `math.nan` and every -0.0 as 0.0.

    Raises:
        TypeError: for a NaN in a class of the user's: not every version of Python finds such an object again.
    """
    if type(key) in _PLAIN:
        return key
    if isinstance(key, float | np.floating):
        return math.nan if key != key else key + 0.0
    if isinstance(key, Decimal):
        return _DECIMAL_NAN if key.is_nan() else key
    if isinstance(key, tuple | frozenset):
        parts = list(map(canonical, key))
        if all(map(_is, parts, key)):
            return key
        return frozenset(parts) if isinstance(key, frozenset) else tuple.__new__(type(key), parts)
    if any(value != value for value in _fields(key)):
        raise TypeError(
            f"the key {shown(key)} holds a NaN, which equals nothing: put None there, or use a tuple as key"
        )
    return key


def _is(a: object, b: object) -> bool:
    return a is b


def _fields(key: Any) -> Iterable[Any]:
    if dataclasses.is_dataclass(key):
        names: Iterable[str] = [field.name for field in dataclasses.fields(key)]
    elif isinstance(key, msgspec.Struct):
        names = key.__struct_fields__
    else:
        return ()
    return [
        value for value in (getattr(key, name) for name in names) if isinstance(value, float | np.floating | Decimal)
    ]
