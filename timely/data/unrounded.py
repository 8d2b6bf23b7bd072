"""Sums of Python's floats that nothing has been rounded in, so that they do not depend on the order of what is added.

While values are added up, a sum that is no float is `Terms`: a few floats of which the sum is exact, each the nearest to what
those before it leave. It is rounded once, when it is shown. Integers stay as they are until they meet a float. Columns have the
same in arrays (`timely.data.kernels.terms`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, MutableMapping
from itertools import chain
from math import fsum, inf, isfinite, nan
from typing import Any

from timely.data.codec import register

_GREATEST = 2.0**1023
_UNIT = 1 << 1074
"""Every float is a whole number of 2**-1074."""


class Terms:
    """The exact sum of several floats, as few and as large ones as can be."""

    __slots__ = ("floats",)

    def __init__(self, floats: tuple[float, ...]) -> None:
        self.floats = floats

    def __float__(self) -> float:
        first = self.floats[0]
        if -_GREATEST < first < _GREATEST:
            return first
        total = sum(map(_units, self.floats))
        try:
            return total / _UNIT
        except OverflowError:
            return inf if total > 0 else -inf

    def __repr__(self) -> str:
        return f"Terms({self.floats})"


def _sum(values: list[float]) -> float | Terms:
    """The sum of some floats: a float, if it is one."""
    if len(values) == 2:
        one, other = values
        total = one + other
        part = total - one
        rest = (one - (total - part)) + (other - part)
        if rest == 0.0:
            return total + 0.0
        if -_GREATEST < total < _GREATEST:
            return Terms((total, rest))
    terms = _settled(values)
    return terms[0] if len(terms) == 1 else Terms(terms)


def _settled(values: list[float]) -> tuple[float, ...]:
    """The terms of a sum: they follow from its value."""
    found: list[float] = []
    try:
        total = fsum(values)
        while total:
            found.append(total)
            if not isfinite(total):
                return (total if total == total else nan,)
            values.append(-total)
            total = fsum(values)
    except ValueError:  # infinities of both signs
        return (nan,)
    except OverflowError:
        return _settled_far(values[: len(values) - len(found)])
    return tuple(found) or (0.0,)


def _settled_far(values: list[float]) -> tuple[float, ...]:
    """The terms of a sum that leaves the floats, or did on the way."""
    odd = [value for value in values if not isfinite(value)]
    if odd:
        total = sum(odd)
        return (total if total == total else nan,)
    left, most = sum(map(_units, values)), _units(_GREATEST)
    found = []
    while left:
        found.append(max(-most, min(left, most)) / _UNIT)
        left -= _units(found[-1])
    return tuple(found) or (0.0,)


def _units(value: float) -> int:
    above, below = value.as_integer_ratio()
    return above * (_UNIT // below)


def _floats_of(value: Any) -> Iterable[float] | None:
    """The floats whose sum a number is; None if it is none of those that can be said so."""
    if isinstance(value, Terms):
        return value.floats
    if isinstance(value, float):
        return (float(value),)
    if not isinstance(value, int):
        return None
    found = []
    left = value
    while left:
        try:
            found.append(float(left))
        except OverflowError:
            return None
        left -= int(found[-1])
    return found


def plus(a: Any, b: Any) -> Any:
    """The sum of two values, which may be sums; of floats it is exact."""
    if type(a) is float and type(b) is float:
        return _sum([a, b])
    if (type(a) is int and type(b) is int) or not (isinstance(a, float | Terms) or isinstance(b, float | Terms)):
        return a + b
    some, more = _floats_of(a), _floats_of(b)
    if some is None or more is None:
        return lowered(a) + lowered(b)
    return _sum([*some, *more])


def lowered(value: Any) -> Any:
    """A sum as it is shown."""
    return float(value) if type(value) is Terms else value


def lowered_all(totals: Iterable[Any]) -> list[Any]:
    """Sums as they are shown."""
    return list(map(lowered, totals))


def lowered_pairs(totals: MutableMapping[Hashable, Any]) -> list[tuple[Any, Any]]:
    """Keys with their sums as they are shown."""
    if Terms in set(map(type, totals.values())):
        return [(key, lowered(total)) for key, total in totals.items()]
    return list(totals.items())


def add_up(totals: MutableMapping[Hashable, Any], pairs: Iterable[tuple[Any, Any]]) -> None:
    """Add the values of pairs (key, value) to `totals`."""
    rest = iter(pairs)
    if totals:  # which may hold floats
        _add_floats(totals, rest)
        return
    for key, value in rest:
        if type(value) is int:
            if key in totals:
                totals[key] = totals[key] + value
            else:
                totals[key] = value
        elif isinstance(value, float | Terms):
            _add_floats(totals, chain([(key, value)], rest))
            return
        else:
            totals[key] = plus(totals[key], value) if key in totals else value


def _add_floats(totals: MutableMapping[Hashable, Any], pairs: Iterable[tuple[Any, Any]]) -> None:
    """The same, where floats may come: those of a key are added all at once."""
    several: dict[Hashable, list[float]] = {}
    for key, value in pairs:
        if type(value) is int and type(before := totals.get(key, 0)) is int and key not in several:
            totals[key] = before + value
        elif key in several:
            more = (value,) if type(value) is float else _floats_of(value)
            if more is not None:
                several[key] += more
                continue
            totals[key] = plus(_sum(several.pop(key)), value)
        elif key not in totals:
            totals[key] = value + 0.0 if isinstance(value, float) else value
        elif isinstance(value, float | Terms):
            some, more = _floats_of(totals[key]), _floats_of(value)
            if some is None or more is None:
                totals[key] = plus(totals[key], value)
            else:
                several[key] = [*some, *more]
        else:
            totals[key] = plus(totals[key], value)
    for key, values in several.items():
        totals[key] = _sum(values)


def total_of(values: Iterable[Any]) -> Any:
    """The sum of some values, of which there is one at least; not rounded yet."""
    totals: dict[Hashable, Any] = {}
    add_up(totals, ((None, value) for value in values))
    return totals[None]


register(Terms, lambda terms: terms.floats, Terms, "falkirk.terms")
