"""Equality and identity of values.

*Equal* are those that Python holds equal: 1, 1.0, True and Decimal(1), 0.0 and -0.0, (1, 2.0) and (1, 2); NaN equals itself.
Equal keys are one key, and equal values one value of a group. *The same* are those that are also of one type and written alike.
Only these are one row of a trace: so what goes in as 2.0 comes out as 2.0, and cancels with it.

`plain` gives the value that stands for all that equal it, whichever came first; `identity` what is equal for the same values
alone.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import uuid
from collections.abc import Iterable
from copy import copy
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from operator import is_
from typing import Any

import numpy as np

from timely.data.content import content_of
from timely.data.keys import canonical
from timely.errors import CodecError

THEMSELVES = frozenset({int, str, bytes, type(None), dt.date, dt.timedelta, uuid.UUID})
"""Types with identity implied by equality.

Equal values of such a type are the same, and no plain value of another type equals them.
"""

_NAN = (float, "nan")


def are_themselves(values: Iterable[Any]) -> bool:
    """True if the types show each value to be its own identity.

    Tuples are looked into to a depth of one.
    """
    types = set(map(type, values))
    if types <= THEMSELVES:
        return True
    if tuple not in types:
        return False
    return types <= THEMSELVES | {tuple} and THEMSELVES.issuperset(
        map(type, chain.from_iterable(each for each in values if type(each) is tuple))
    )


def identity(value: Any) -> Any:
    """Key of a value's identity: equal for the same values, and for no others."""
    kind = type(value)
    if kind in THEMSELVES:
        return value
    if kind is float:
        if value != value:
            return _NAN
        return (float, value, math.copysign(1.0, value)) if value.is_integer() else value
    if isinstance(value, tuple):
        parts = tuple(map(identity, value))
        return value if kind is tuple and all(map(is_, parts, value)) else (kind, parts)
    if isinstance(value, Decimal):
        return kind, str(value)
    if isinstance(value, frozenset):
        return kind, frozenset(map(identity, value))
    if isinstance(value, float | np.floating):
        return kind, repr(value)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return kind, value.replace(tzinfo=None), value.fold, str(value.tzinfo)
    if (names := _compared(value)) is not None:
        return kind, tuple(identity(getattr(value, name)) for name in names)
    return kind, value


def plain(value: Any) -> Any:
    """Canonical value among equals: an integer, a float or a bare tuple if possible.

    Raises:
        TypeError: for a NaN in a class of the user's: see `canonical`.
    """
    kind = type(value)
    if kind in THEMSELVES:
        return value
    if isinstance(value, tuple):
        parts = tuple(map(plain, value))
        return value if kind is tuple and all(map(is_, parts, value)) else parts
    if isinstance(value, np.generic):
        found = value.item()
        return canonical(value) if isinstance(found, np.generic) else plain(found)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, float | Decimal | Fraction):
        return _number(value)
    if isinstance(value, frozenset):
        return frozenset(map(plain, value))
    if isinstance(value, dt.datetime):
        return value if value.tzinfo is None else value.astimezone(dt.UTC)
    value = canonical(value)
    changed = [(name, new) for name in _compared(value) or () if (new := plain(old := getattr(value, name))) is not old]
    if changed:
        value = copy(value)
        for name, new in changed:
            object.__setattr__(value, name, new)
    return value


def with_one_nan(value: Any) -> Any:
    """`value` with each NaN replaced by one object, so that dictionaries find it."""
    if isinstance(value, float) and value != value:
        return math.nan
    if type(value) is tuple:
        parts = tuple(map(with_one_nan, value))
        return value if all(map(is_, parts, value)) else parts
    return value


def equal(one: Any, other: Any) -> bool:
    """True if two values are equal; NaN equals NaN."""
    return bool(identity(plain(one)) == identity(plain(other)))


def _number(value: Any) -> Any:
    if isinstance(value, Decimal) and not value.is_finite():
        value = math.nan if value.is_nan() else float(value)
    if value != value:
        return math.nan
    if isinstance(value, float):
        value = float(value)
        return int(value) if value.is_integer() else value
    if value == int(value):
        return int(value)
    try:
        near = float(value)
    except OverflowError:
        near = math.inf
    if near == value:
        return near
    if isinstance(value, Fraction):
        return value
    sign, digits, exponent = value.as_tuple()
    end = len(digits)
    while not digits[end - 1]:
        end -= 1
    return Decimal((sign, digits[:end], int(exponent) + len(digits) - end))


def _compared(value: Any) -> list[str] | None:
    """Fields compared by a dataclass's generated equality; None for other objects."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return None
    kind = type(value)
    params = getattr(kind, "__dataclass_params__", None)
    if params is None or not params.eq or kind.__hash__ is None:
        return None
    return [field.name for field in dataclasses.fields(value) if field.compare]


def rank(value: Any) -> Any:
    """Sort key among equal values: the plain one first, others by their content."""
    try:
        content = content_of(value)
    except CodecError:
        content = repr(value).encode()
    return identity(value) != identity(plain(value)), content
