"""Deterministic representative of equal dictionary keys, as of 5, 5.0 and True.

A dictionary keeps whichever came first, and that may differ when a time is done again, and so would all that is
made of the key.

So of equal keys of one time
the same one stands for all of them, whatever their order and however they are divided: one of a plain type (an integer, text)
only if nothing else is equal to it, and among others the least by content.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Collection, Hashable, Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

from timely.data.content import content_of
from timely.errors import CodecError

PLAIN = frozenset({int, str, bytes, type(None), dt.date, dt.timedelta, uuid.UUID})
"""Types with indistinguishable equal values."""

_SAME = PLAIN | {float, bool}
"""Types with indistinguishable equal values, but for zeros.

`timely.data.keys` makes one of both zeros.
"""

_TUPLES = {tuple}

Represented = dict[Hashable, Hashable]
"""Representative of each non-plain key."""


def are_plain(keys: Iterable[Any]) -> bool:
    """True if no two equal keys are distinguishable; False in doubt.

    >>> are_plain(["a", 5]), are_plain([("a", 5)]), are_plain([5, 5.0])
    (True, True, False)
    """
    keys = keys if isinstance(keys, Collection) else list(keys)
    types = set(map(type, keys))
    if types <= PLAIN:
        return True
    return types == _TUPLES and are_plain(list(chain.from_iterable(keys)))


def represent(found: Represented, keys: Collection[Any]) -> None:
    """Add the keys of more records of a time to `found`."""
    if are_plain(keys):
        return
    for key in keys:
        kind = type(key)
        if kind in PLAIN or key != key or (kind is tuple and are_plain(key)):
            continue
        held = found.setdefault(key, key)
        if held is not key and not (kind is type(held) and kind in _SAME) and _content(key) < _content(held):
            found[key] = key


def _content(key: Any) -> bytes:
    try:
        return content_of(key)
    except CodecError:  # it neither travels nor is saved
        return b""


def represented(found: Represented, totals: dict[Hashable, Any]) -> dict[Hashable, Any]:
    """Totals under the representative of each key.

    >>> found = {}
    >>> represent(found, [5, True]), represent(found, [5.0])
    (None, None)
    >>> represented(found, {5: "a", 1: "b", 2: "c"})
    {5.0: 'a', True: 'b', 2: 'c'}
    """
    return {found.get(key, key): value for key, value in totals.items()} if found else totals


def represent_all(keys: list[Any]) -> list[Any]:
    """Representative of each key.

    >>> represent_all([5, 5.0, 2])
    [5.0, 5.0, 2]
    """
    found: Represented = {}
    kinds = set(map(type, keys))
    if len(kinds) > 1 or not kinds <= _SAME:
        represent(found, keys)
    return [found.get(key, key) for key in keys] if found else keys


def keys_of(pairs: Iterable[Sequence[Any]]) -> list[Any]:
    """First items of pairs (key, value) or longer records."""
    return list(map(itemgetter(0), pairs))
