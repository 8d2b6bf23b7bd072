"""Order-independent sums: exact for floats, deterministic for other values.

While floats are added up, a sum that is no float is `Terms`: a few floats of which the sum is exact, each the nearest to what
those before it leave. It is rounded once, when it is shown. Integers stay as they are until they meet a float; decimals,
fractions and spans of time are added exactly. Of all else (complex numbers, NumPy's scalars, text, tuples) the sum depends on
the order: such values stay in an `Unordered` until their time is complete, and are added then in the order of their content.
Columns have exact sums of floats in arrays (`timely.data.sums.terms`).
"""

from __future__ import annotations

import datetime as dt
import operator
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, MutableMapping, Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import reduce
from itertools import chain, count
from math import fsum, inf, isfinite, nan
from operator import itemgetter
from typing import Any

import msgspec
import numpy as np

from timely.data.codec import register
from timely.data.content import by_content
from timely.data.sums.split import split_sums
from timely.errors import CodecError

_GREATEST = 2.0**1023
_UNIT = 1 << 1074
"""Number of units of 2**-1074 in 1: every float is a whole number of units."""

_MANY = 2048
"""Least pairs for NumPy, if keys repeat."""

_SAMPLE = 64
"""Sample of pairs examined for repeated keys."""


class Terms(msgspec.Struct, frozen=True, gc=False):
    """Exact sum of at least two floats, in canonical form.

    As few and as large ones as can be: so equal sums have equal terms.
    """

    first: float
    second: float
    more: tuple[float, ...] = ()

    @property
    def floats(self) -> tuple[float, ...]:
        """All floats of the sum."""
        return (self.first, self.second, *self.more)

    def __float__(self) -> float:
        total = sum(map(_units, self.floats))
        try:
            return total / _UNIT
        except OverflowError:
            return inf if total > 0 else -inf


class Unordered(msgspec.Struct, frozen=True, gc=False):
    """Pending order-dependent sum: exact sums by kind, then the other values."""

    exact: tuple[Any, ...]
    others: tuple[Any, ...] = ()

    def added(self) -> Any:
        """The sum: exact ones first, then the others in the order of their content."""
        return reduce(operator.add, map(lowered, [*self.exact, *by_content(list(self.others))]))


_MOST_DIGITS = 1 << 12
_DECIMALS = Context(prec=_MOST_DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
"""Exact decimal arithmetic, to a thousand digits on either side of the point."""


def _kind(value: Any) -> int | None:
    """Kind of number with exact addition among its own; None if there is none."""
    if isinstance(value, int | float | Terms):  # truth values and NumPy's float64, too
        return 0
    kind = type(value)
    if kind is Decimal:
        return 1 if value.is_finite() and value.adjusted() < 1000 and value.as_tuple().exponent > -1000 else None
    return 2 if kind is Fraction else 3 if kind is dt.timedelta else None


def _add_kind(kind: int, values: list[Any]) -> Any:
    """Exact sum of numbers of one kind."""
    if kind == 1:
        return reduce(_DECIMALS.add, values)
    if kind > 1:
        return reduce(operator.add, values)
    if any(isinstance(value, float | Terms) for value in values):
        floats = list(map(_floats_of, values))
        if None not in floats:
            return _sum(list(chain.from_iterable(floats)))  # type: ignore[arg-type]  # None is not among them
        integers = sum(value for value in values if isinstance(value, int))
        rest = _sum([each for value in values if not isinstance(value, int) for each in _floats_of(value) or ()])
        return lowered(rest) + integers
    return sum(values)


def _sum_of_kinds(values: Iterable[Any]) -> Any:
    """Sum of values of any kinds, independent of their order."""
    kinds: defaultdict[int, list[Any]] = defaultdict(list)
    others: list[Any] = []
    for value in values:
        for each in (*value.exact, *value.others) if type(value) is Unordered else (value,):
            kind = _kind(each)
            if kind is None:
                others.append(each)
            else:
                kinds[kind].append(each)
    exact = [_add_kind(kind, kinds[kind]) for kind in sorted(kinds)]
    if len(exact) == 1 and not others:
        return exact[0]
    if len(exact) == 2 and not others and type(exact[0]) in (int, bool):
        return _DECIMALS.add(exact[1], int(exact[0])) if type(exact[1]) is Decimal else exact[0] + exact[1]
    if not exact and len(others) == 1:
        return others[0]
    found = Unordered(tuple(exact), tuple(others))
    Unordered(found.exact[:1], found.others[:1]).added()  # values that cannot be added are an error where they came
    return found


def _sum(values: list[float]) -> float | Terms:
    """Exact sum of floats, a plain float if possible.

    The list is not to be used again.
    """
    try:
        total = fsum(values)
    except (ValueError, OverflowError):
        total = nan
    if not -_GREATEST < total < _GREATEST:
        return _of_floats(_settled(values))
    values.append(-total)
    rest = fsum(values)
    if rest == 0.0:
        return total + 0.0
    values.append(-rest)
    if fsum(values) == 0.0:
        return Terms(total, rest)
    del values[-2:]
    return _of_floats(_settled(values))


def _of_floats(terms: Sequence[float]) -> float | Terms:
    return terms[0] if len(terms) == 1 else Terms(terms[0], terms[1], tuple(terms[2:]))


def _settled(values: list[float]) -> tuple[float, ...]:
    """Canonical terms of a sum of floats."""
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
    """Terms of a sum beyond the range of floats, at the end or on the way."""
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
    """Decomposition of a number into floats with that sum; None if impossible."""
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
    """Sum of two values or sums; exact for floats."""
    kind, other = type(a), type(b)
    if kind is int and other is int:
        return a + b
    if other is float:
        if kind is float:
            total = a + b
            part = total - a
            rest = (a - (total - part)) + (b - part)
            if rest == 0.0:
                return total + 0.0
            if -_GREATEST < total < _GREATEST:
                return Terms(total, rest)
        elif kind is Terms and not a.more:
            first, second = a.first, a.second
            total = first + b
            part = total - first
            rest = (first - (total - part)) + (b - part)
            low = second + rest
            part = low - second
            if (second - (low - part)) + (rest - part) == 0.0:
                # Two terms are enough: make the first as large as it can be.
                top = total + low
                part = top - total
                rest = (total - (top - part)) + (low - part)
                if rest == 0.0:
                    return top + 0.0
                if -_GREATEST < top < _GREATEST:
                    return Terms(top, rest)
    return _sum_of_kinds((a, b))


def plus_time(before: Any, value: Any) -> Any:
    """Sum of a total and of all later values of a time."""
    total = plus(before, value)
    return lowered(before) + lowered(value) if type(total) is Unordered else total


def lowered(value: Any) -> Any:
    """Final form of a sum: rounded or added up."""
    if type(value) is not Terms:
        return value.added() if type(value) is Unordered else value
    first = value.first
    return first if -_GREATEST < first < _GREATEST else float(value)


def lowered_all(totals: Iterable[Any]) -> list[Any]:
    """Final form of sums."""
    return list(map(lowered, totals))


def lowered_pairs(totals: Mapping[Hashable, Any]) -> list[tuple[Any, Any]]:
    """Keys with the final form of their sums."""
    if not _SUMS.isdisjoint(map(type, totals.values())):
        return [(key, value if type(value) is float else lowered(value)) for key, value in totals.items()]
    return list(totals.items())


def add_up(totals: MutableMapping[Hashable, Any], pairs: Iterable[tuple[Any, Any]]) -> None:
    """Add the values of pairs (key, value) to `totals`."""
    if isinstance(pairs, list) and len(pairs) >= _MANY and type(pairs[0][1]) is float:
        sample = [key for key, _ in pairs[:: len(pairs) // _SAMPLE]]
        if len(set(sample)) < len(sample):
            pairs = _add_floats(totals, pairs)
    rest = iter(pairs)
    if not totals:  # while there are integers alone, they are added in place
        for key, value in rest:
            if type(value) is not int:
                rest = chain([(key, value)], rest)
                break
            totals[key] = totals[key] + value if key in totals else value
    several: dict[Hashable, list[Any]] = {}
    for key, value in rest:
        if key in several:
            several[key].append(value)
        elif key in totals:
            several[key] = [totals[key], value]
        else:
            totals[key] = value + 0.0 if isinstance(value, float) and not value else value  # never -0.0
    for key, values in several.items():
        totals[key] = _total(values)


def _add_floats(totals: MutableMapping[Hashable, Any], pairs: list[tuple[Any, Any]]) -> Iterable[tuple[Any, Any]]:
    """Add many pairs if their values are floats; returns the remaining pairs."""
    values = [value for _, value in pairs]
    if set(map(type, values)) != {float}:
        return pairs
    numbers: defaultdict[Hashable, int] = defaultdict(count().__next__)
    ids = np.fromiter(map(numbers.__getitem__, map(itemgetter(0), pairs)), np.intp, len(pairs))
    cut, left = split_sums(ids, len(numbers), np.array(values), int(np.bincount(ids).max()))
    first, second = cut.T
    total = first + second
    part = total - first
    rest = (first - (total - part)) + (second - part)
    for key, top, low in zip(numbers, total.tolist(), rest.tolist()):
        found = Terms(top, low) if low else top
        totals[key] = plus(totals[key], found) if key in totals else found
    return [pairs[row] for row in left.tolist()]


def _total(values: list[Any]) -> Any:
    if len(values) == 1:
        (value,) = values
        return value + 0.0 if isinstance(value, float) else value
    if len(values) == 2:
        return plus(*values)
    kinds = set(map(type, values))
    if kinds == {float}:
        return _sum(values)
    return sum(values) if kinds == {int} else _sum_of_kinds(values)


def total_of(values: Iterable[Any]) -> Any:
    """Unrounded sum of at least one value."""
    return _total(list(values))


_SUMS = {Terms, Unordered}


def _read(floats: Any) -> Terms:
    if not isinstance(floats, tuple | list) or len(floats) < 2 or set(map(type, floats)) != {float}:
        raise CodecError("a damaged sum of floats: it has no terms, or one that is no float")
    return Terms(floats[0], floats[1], tuple(floats[2:]))


def _read_unordered(parts: Any) -> Unordered:
    if (
        not isinstance(parts, tuple | list)
        or len(parts) != 2
        or not all(isinstance(each, tuple | list) for each in parts)
    ):
        raise CodecError("a damaged sum: it has no values")
    return Unordered(tuple(parts[0]), tuple(parts[1]))


register(Unordered, lambda sum: (sum.exact, sum.others), _read_unordered, "falkirk.unordered")
register(Terms, lambda terms: terms.floats, _read, "falkirk.terms")
