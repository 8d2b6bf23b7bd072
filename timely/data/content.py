"""Total order of values by their content, independent of arrival order.

Within a time records have no order. What takes them one after another takes them in this one, so that it gives the same when
it does a time again, on another worker, or in another process.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from operator import itemgetter
from struct import Struct
from typing import Any

from msgspec.msgpack import Encoder

from timely.data.codec import encode
from timely.errors import CodecError

Item = tuple[Any, Any]
"""Pair of sort key and value."""

_PLAIN = {int, bool, str, bytes, dt.date, dt.timedelta}
"""Types with a total order and ties only between equal values."""

_bits = Struct(">d").pack
_packed = Encoder(order="deterministic").encode
"""Quick encoding as a sort key.

Equal bytes do not mean equal values: a list and a tuple, or a date and its text, look alike.
"""


def by_content(values: list[Any]) -> list[Any]:
    """Sort values by nothing but their content.

    Integers, text, bytes, dates, spans of time and floats are in their own order, if all are of one type; NaN anywhere. What
    cannot be encoded, and so neither travels nor is saved, stays in the order in which it is.

    >>> by_content([3, 1, 2])
    [1, 2, 3]
    """
    if len(values) < 2:
        return values
    types = set(map(type, values))
    if len(types) == 1:
        [kind] = types
        if kind in _PLAIN:
            return sorted(values)
        if kind is float:  # by bits first: then zeros of both signs, and NaN, are always met in the same order
            return sorted(sorted(values, key=_bits))
    try:
        items = [(_packed(value), value) for value in values]
    except (TypeError, ValueError, OverflowError, RecursionError):  # other classes: the codec may know them
        return _by_encoding(values)
    return [value for _, value in in_order(items, _by_encoding)]


def _by_encoding(values: list[Any]) -> list[Any]:
    try:
        return sorted(values, key=content_of)
    except CodecError:
        return values


def in_order(items: list[Item], settled: Callable[[list[Any]], list[Any]] = by_content) -> list[Item]:
    """Sort pairs by their first parts, and ties by `settled` (by content, as default).

    >>> in_order([(1, "b"), (0, "c"), (1, "a")])
    [(0, 'c'), (1, 'a'), (1, 'b')]
    """
    items = sorted(items, key=itemgetter(0))
    first = 0
    for after in range(1, len(items) + 1):
        if after == len(items) or items[after][0] != items[first][0]:
            if after - first > 1:
                at = items[first][0]
                items[first:after] = [(at, value) for value in settled([value for _, value in items[first:after]])]
            first = after
    return items


def ordered_by(key: Callable[[Any], Any], values: list[Any]) -> list[Any]:
    """The values in order of `key(value)`; those with equal ones by their content.

    >>> ordered_by(len, ["c", "ab", "a"])
    ['a', 'c', 'ab']
    """
    return [value for _, value in in_order([(key(value), value) for value in values])]


def content_of(value: Any) -> bytes:
    """Canonical bytes of a value, equal for equal content.

    The elements of sets are sorted by their bytes.

    Raises CodecError for a value that cannot be encoded.
    """
    return encode(_settled(value))


def _settled(value: Any) -> Any:
    kind = type(value)
    if kind is set or kind is frozenset:
        return [kind.__name__, sorted([content_of(each) for each in value])]
    if kind is tuple or kind is list:
        return kind([_settled(each) for each in value])
    if kind is dict:
        return {key: _settled(each) for key, each in value.items()}
    return value
