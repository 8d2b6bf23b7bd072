"""Lossless common type for a column of differing types across batches.

Polars' own supertypes cut durations and instants to the coarser unit, round integers beside floats, and make text of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import polars as pl

_SIGNED: list[pl.DataType] = [pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64()]
_TEXTS = (pl.String, pl.Categorical, pl.Enum)
_UNITS = ("ms", "us", "ns")
_MOST_DIGITS = 38
_DIGITS_OF_INTEGERS = 20


def common_type(kinds: Sequence[pl.DataType]) -> pl.DataType:
    """The narrowest exact common type of `kinds`.

    Whether a float holds an integer of 64 bits its value says.

    Raises:
        TypeError: there is none.

    >>> common_type([pl.Int32(), pl.UInt32()]), common_type([pl.Duration("ms"), pl.Duration("us")])
    (Int64, Duration(time_unit='us'))
    """
    try:
        return reduce(_of_both, kinds)
    except TypeError:
        kinds_text = " and ".join(dict.fromkeys(map(str, kinds)))
        raise TypeError(f"{kinds_text}, which do not go together") from None


def widened(column: pl.Series, kind: pl.DataType) -> pl.Series:
    """Cast a series to a wider type, checking each value.

    Raises:
        TypeError: one of them would be another one.
    """
    if column.dtype == kind:
        return column
    try:
        made = column.cast(kind)
        same = made.cast(column.dtype).equals(column)
    except pl.exceptions.PolarsError:
        same = False
    if not same:
        raise TypeError(f"a value of type {column.dtype} that {kind} does not hold")
    return made


def _of_both(a: pl.DataType, b: pl.DataType) -> pl.DataType:
    if a == b or isinstance(b, pl.Null):
        return a
    if isinstance(a, pl.Null):
        return b
    if isinstance(a, _TEXTS) and isinstance(b, _TEXTS):
        return pl.String()
    if a.is_numeric() and b.is_numeric():
        return _of_numbers(a, b)
    if isinstance(a, pl.Date) and isinstance(b, pl.Datetime):
        return b
    if isinstance(a, pl.Datetime) and isinstance(b, pl.Date):
        return a
    if isinstance(a, pl.Datetime) and isinstance(b, pl.Datetime) and a.time_zone == b.time_zone:
        return pl.Datetime(max(a.time_unit, b.time_unit, key=_UNITS.index), a.time_zone)
    if isinstance(a, pl.Duration) and isinstance(b, pl.Duration):
        return pl.Duration(max(a.time_unit, b.time_unit, key=_UNITS.index))
    return _of_nested(a, b)


def _of_nested(a: pl.DataType, b: pl.DataType) -> pl.DataType:
    if isinstance(a, pl.List) and isinstance(b, pl.List):
        return pl.List(_of_both(_plain(a.inner), _plain(b.inner)))
    if isinstance(a, pl.Array) and isinstance(b, pl.Array) and a.size == b.size:
        return pl.Array(_of_both(_plain(a.inner), _plain(b.inner)), a.size)
    if isinstance(a, pl.Struct) and isinstance(b, pl.Struct):
        names = [field.name for field in a.fields]
        if names == [field.name for field in b.fields]:
            both = zip(a.fields, b.fields, strict=True)
            kinds = [_of_both(_plain(one.dtype), _plain(other.dtype)) for one, other in both]
            return pl.Struct(dict(zip(names, kinds, strict=True)))
    raise TypeError


def _of_numbers(a: pl.DataType, b: pl.DataType) -> pl.DataType:
    if isinstance(a, pl.Decimal) or isinstance(b, pl.Decimal):
        return _of_decimals(_digits(a), _digits(b))
    if a.is_float() and b.is_float():
        return max(a, b, key=_bits)
    if a.is_float() or b.is_float():
        real, whole = (a, b) if a.is_float() else (b, a)
        return pl.Float64() if _bits(whole) > 16 or _bits(real) == 64 else pl.Float32()  # of 24 bits, and of 53
    if a.is_signed_integer() == b.is_signed_integer():
        return max(a, b, key=_bits)
    signed, other = (a, b) if a.is_signed_integer() else (b, a)
    for kind in _SIGNED:
        if _bits(kind) >= _bits(signed) and _bits(kind) > _bits(other):
            return kind
    raise TypeError


def _digits(kind: pl.DataType) -> tuple[int, int]:
    """The digits before and after the point."""
    if isinstance(kind, pl.Decimal):
        return (kind.precision or _MOST_DIGITS) - kind.scale, kind.scale
    if kind.is_integer():
        return _DIGITS_OF_INTEGERS, 0
    raise TypeError


def _of_decimals(a: tuple[int, int], b: tuple[int, int]) -> pl.DataType:
    before, after = max(a[0], b[0]), max(a[1], b[1])
    if before + after > _MOST_DIGITS:
        raise TypeError
    return pl.Decimal(before + after, after)


def _bits(kind: pl.DataType) -> int:
    return int("".join(filter(str.isdigit, str(kind))))


def _plain(kind: pl.DataType | pl.datatypes.DataTypeClass) -> pl.DataType:
    return kind if isinstance(kind, pl.DataType) else kind()
