"""Stable hash of keys: part of the store format, as the encoded bytes are.

The hash of a key is written into stores (state is kept by shard), so it must be the same in every process,
after every restart, in every version of Python and of our libraries, and for a key in a record and the same
key in a column. Changing it breaks every store; tests pin golden values.

Equal keys hash equal whatever their type: 1 == 1.0 == True == Decimal(1). Numbers are therefore hashed by
value modulo the Mersenne prime 2^61 - 1, where powers of two become rotations, so that columns of floats stay
vectorised. Text and bytes are hashed by CRC-32 and length: 32 bits to spread over 1,024 shards. This is for
routing, not for identity: unequal keys may share a hash.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import uuid
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any, TypeAlias, cast
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from timely.data.batch import as_array
from timely.errors import CodecError

Hashes: TypeAlias = npt.NDArray[np.uint64]

_MASK = (1 << 64) - 1
_PRIME = (1 << 61) - 1
_MIX_1 = 0x9E3779B97F4A7C15
_MIX_2 = 0xD6E8FEB86659FD93
MIXING = (_PRIME, _MIX_1, _MIX_2)
"""Constants of the integer hash: its modulus and two multipliers.

An integer below the modulus needs no reduction: see `_hash_int`.
"""

# What is hashed besides plain numbers starts from a seed of its own, so that 7, b"\7" and "day 7" part ways.
_TEXT = 0x51ED270B35AE2C61
_BYTES = 0x2545F4914F6CDD1D
_NONE = 0x8CB92BA72F3D8DD7
_NAN = 0xA0761D6478BD642F
_INFINITY = 0xE7037ED1A0B428DB
_MINUS_INFINITY = 0x589965CC75374CC3
_TUPLE = 0x1D8E4E27C47D124F
_DATE = 0xEB44ACCAB455D165
_INSTANT = 0x9FB21C651E98DF25
_DURATION = 0xC2B2AE3D27D4EB4F
_CLOCK = 0x165667B19E3779F9
_SET = 0x27D4EB2F165667C5


def _mix(value: int) -> int:
    value = (value * _MIX_1) & _MASK
    value ^= value >> 32
    return (value * _MIX_2) & _MASK


def _hash_int(value: int) -> int:
    if not -_PRIME < value < _PRIME:
        value = value % _PRIME if value >= 0 else -(-value % _PRIME)
    value = (value * _MIX_1) & _MASK
    value ^= value >> 32
    return (value * _MIX_2) & _MASK


def _hash_float(value: float) -> int:
    if value.is_integer():
        return _hash_int(int(value))
    if value != value:
        return _mix(_NAN)
    if math.isinf(value):
        return _mix(_INFINITY if value > 0 else _MINUS_INFINITY)
    mantissa, exponent = math.frexp(abs(value))
    turn = (exponent - 53) % 61
    whole = int(mantissa * 2.0**53)
    residue = ((whole << turn) & _PRIME) | (whole >> (61 - turn))
    return _hash_int(residue if value > 0 else -residue)


def _hash_decimal(value: Decimal) -> int:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        if exponent == "F":
            return _mix(_MINUS_INFINITY if sign else _INFINITY)
        return _mix(_NAN)
    whole = int("".join(map(str, digits)) or "0") if len(digits) < 4000 else int(value.scaleb(-exponent))
    residue = whole * pow(10, exponent, _PRIME) % _PRIME
    return _hash_int(-residue if sign else residue)


def _hash_text(value: str) -> int:
    data = value.encode("utf-8", "surrogatepass")
    return _mix(_TEXT ^ (len(data) << 32 | crc32(data)))


def _hash_bytes(value: bytes) -> int:
    return _mix(_BYTES ^ (len(value) << 32 | crc32(value)))


def _hash_tuple(values: Iterable[Any]) -> int:
    result = _TUPLE
    for value in values:
        result = _mix((result * 31 + stable_hash(value)) & _MASK)
    return result


def _hash_set(values: Iterable[Any]) -> int:
    return _mix((_SET + sum(_mix(stable_hash(value) ^ _SET) for value in values)) & _MASK)


def _hash_pair(seed: int, major: int, minor: int) -> int:
    return _mix((_mix((seed + major) & _MASK) + minor) & _MASK)


_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = _EPOCH.toordinal()


def _hash_datetime(value: dt.datetime) -> int:
    # Naive and aware never compare equal, but both are seconds since 1970 (in UTC) and nanoseconds, as columns are.
    since = value.replace(fold=0) - _EPOCH if value.tzinfo is None else value - _EPOCH_UTC
    return _hash_pair(_INSTANT, since.days * 86_400 + since.seconds, since.microseconds * 1000)


def _hash_date(value: dt.date) -> int:
    return _mix((_DATE + value.toordinal() - _EPOCH_DAY) & _MASK)


def _hash_timedelta(value: dt.timedelta) -> int:
    return _hash_pair(_DURATION, value.days * 86_400 + value.seconds, value.microseconds * 1000)


def _hash_time(value: dt.time) -> int:
    if value.tzinfo is not None:
        raise CodecError("a time of day with a time zone cannot be a key; use a datetime, or drop its zone")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return _hash_pair(_CLOCK, seconds, value.microsecond * 1000)


def _hash_none(_: None) -> int:
    return _mix(_NONE)


_HASHERS: dict[type, Callable[[Any], int]] = {
    int: _hash_int,
    bool: _hash_int,
    str: _hash_text,
    float: _hash_float,
    bytes: _hash_bytes,
    tuple: _hash_tuple,
    frozenset: _hash_set,
    type(None): _hash_none,
    dt.datetime: _hash_datetime,
    dt.date: _hash_date,
    dt.timedelta: _hash_timedelta,
    dt.time: _hash_time,
    Decimal: _hash_decimal,
    uuid.UUID: lambda value: _hash_bytes(value.bytes),
}


def stable_hash(key: Any) -> int:
    """64-bit key hash, stable across processes and versions; equal keys hash equal.

    Carried: None, bool, int, float, str, bytes, Decimal, date, datetime, time, timedelta, UUID, enum members,
    NumPy scalars of those; tuples, frozensets, NamedTuples, frozen dataclasses and frozen msgspec Structs of
    them.

    Raises:
        CodecError: for any other type.
    """
    hasher = _HASHERS.get(type(key))
    if hasher is None:
        hasher = _HASHERS[type(key)] = _hasher_for(type(key))
    return hasher(key)


def _hasher_for(cls: type) -> Callable[[Any], int]:
    """Hash function for a class of keys, looked up once.

    Subclasses compare as their base does.
    """
    if issubclass(cls, np.generic):
        # A span of time is an integer for NumPy; and what is longer than Python's floats has no form among them.
        if issubclass(cls, np.bool_ | np.integer | np.floating | np.str_ | np.bytes_) and not issubclass(
            cls, np.timedelta64 | np.longdouble
        ):
            return lambda key: stable_hash(key.item())
        raise _unfit(cls)
    if cls.__name__ == "NaTType":  # a datetime that is none, and equals nothing
        raise _unfit(cls)
    if issubclass(cls, Enum) and cls.__hash__ is Enum.__hash__:
        return lambda key: _hash_text(key.name)
    for base in (
        int,
        str,
        float,
        bytes,
        frozenset,
        tuple,
        dt.datetime,
        dt.date,
        dt.timedelta,
        Decimal,
        uuid.UUID,
    ):
        if issubclass(cls, base):
            return _HASHERS[base]
    if issubclass(cls, Enum):
        return lambda key: _hash_text(key.name)
    if dataclasses.is_dataclass(cls):
        # The class is left out on purpose: it goes by another name where a program is the main module.
        if not cls.__dataclass_params__.eq or cls.__hash__ in (None, object.__hash__):  # type: ignore[attr-defined]
            raise CodecError(f"{_name(cls)} cannot be a key: it has no hash by value; make it @dataclass(frozen=True)")
        names = [
            field.name for field in dataclasses.fields(cls) if (field.compare if field.hash is None else field.hash)
        ]
        return lambda key: _hash_tuple([getattr(key, name) for name in names])
    if issubclass(cls, msgspec.Struct):
        if not cls.__struct_config__.frozen:
            raise CodecError(f"{_name(cls)} cannot be a key, as it can change; make it frozen=True")
        fields = cls.__struct_fields__
        return lambda key: _hash_tuple([getattr(key, name) for name in fields])
    raise _unfit(cls)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _unfit(cls: type) -> CodecError:
    return CodecError(
        f"a value of type {_name(cls)} cannot be a key: it has no hash that is the same in every process; "
        "use a tuple of numbers, text, bytes, dates, or a frozen dataclass of such"
    )


# Columns ---------------------------------------------------------------------------------------------------


def _mix_column(values: Hashes) -> Hashes:
    """`_mix` of every value, in place."""
    values *= np.uint64(_MIX_1)
    values ^= values >> np.uint64(32)
    values *= np.uint64(_MIX_2)
    return values


def _hash_integers(values: npt.NDArray[Any]) -> Hashes:
    if values.dtype.kind == "u":
        if values.dtype.itemsize == 8:
            return _mix_column(values % np.uint64(_PRIME))
    elif values.dtype.itemsize == 8 and values.size and (values.max() >= _PRIME or values.min() <= -_PRIME):
        values = np.fmod(values, _PRIME)  # Keeps the sign, as the residue of a negative number does.
    return _mix_column(values.astype(np.int64).view(np.uint64))


def _hash_floats(values: npt.NDArray[Any]) -> Hashes:
    values = values.astype(np.float64)
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64)
        simple = (whole == values) & (np.abs(values) < 2.0**60)
    residues = np.where(simple, whole, 0)
    hashes = _hash_integers(residues)
    if not simple.all():
        rest = np.flatnonzero(~simple)
        hashes[rest] = _hash_other_floats(values[rest])
    return hashes


def _hash_other_floats(values: npt.NDArray[np.float64]) -> Hashes:
    finite = np.isfinite(values)
    mantissas, exponents = np.frexp(np.where(finite, np.abs(values), 0.5))
    whole = (mantissas * 2.0**53).astype(np.int64)
    turns = ((exponents - 53) % 61).astype(np.int64)
    residues = ((whole & (_PRIME >> turns)) << turns) | (whole >> (61 - turns))
    hashes = _mix_column(np.where(values < 0, -residues, residues).view(np.uint64))
    hashes[np.isnan(values)] = _mix(_NAN)
    hashes[values == np.inf] = _mix(_INFINITY)
    hashes[values == -np.inf] = _mix(_MINUS_INFINITY)
    return hashes


def _hash_instants(values: npt.NDArray[Any], seed: int, per_second: int) -> Hashes:
    seconds, parts = np.divmod(values.astype(np.int64), per_second)
    hashes = _mix_column(seconds.view(np.uint64) + np.uint64(seed))
    hashes += (parts * (1_000_000_000 // per_second)).view(np.uint64)
    return _mix_column(hashes)


_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def hash_column(column: Any) -> Hashes:
    """Hash of each value of a column, equal to `stable_hash` of the same record value.

    Args:
        column: an Arrow array or chunked array, a Polars series, or a NumPy array (of numbers). Nulls hash as
            None.

    Raises:
        CodecError: if the column's type holds no hashable keys.
    """
    if isinstance(column, np.ndarray):
        if column.dtype.kind in "biu":
            return _hash_integers(column)
        if column.dtype.kind == "f":
            return _hash_floats(column)
        column = pa.array(column)
    elif isinstance(column, pl.Series):
        try:
            column = as_array(column)
        except TypeError as error:
            raise CodecError(str(error)) from error
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            return _hash_array(column.chunk(0))
        if column.num_chunks == 0:
            return np.zeros(0, np.uint64)
        parts: list[Hashes] = [_hash_array(chunk) for chunk in column.chunks]
        return np.concatenate(parts)
    return _hash_array(column)


def _hash_array(array: pa.Array) -> Hashes:
    types, kind = pa.types, array.type
    if types.is_dictionary(kind):
        return _hash_dictionary(array)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return _hash_array(array.cast(pa.large_string() if types.is_string_view(kind) else pa.large_binary()))
    if array.null_count and not types.is_null(kind):
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        hashes = np.full(len(array), _mix(_NONE), np.uint64)
        hashes[valid] = _hash_array(array.drop_null())
        return hashes
    if types.is_integer(kind):
        return _hash_integers(array.to_numpy(zero_copy_only=False))
    if types.is_floating(kind):
        return _hash_floats(array.to_numpy(zero_copy_only=False))
    if types.is_boolean(kind):
        return _hash_integers(array.cast(pa.uint8()).to_numpy())
    if types.is_date(kind):
        days = array.cast(pa.date32()).view(pa.int32()).to_numpy().astype(np.int64)
        return _mix_column(days.view(np.uint64) + np.uint64(_DATE))
    if types.is_timestamp(kind) or types.is_duration(kind) or types.is_time(kind):
        seed = _INSTANT if types.is_timestamp(kind) else _DURATION if types.is_duration(kind) else _CLOCK
        whole = array.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_numpy()
        return _hash_instants(whole, seed, _PER_SECOND[kind.unit])
    if types.is_null(kind):
        return np.full(len(array), _mix(_NONE), np.uint64)
    if len(array) >= _MANY and (types.is_string(kind) or types.is_large_string(kind)):
        return _hash_distinct(array)  # hashing a string twice is cheaper than finding out that it came twice
    try:
        return _hash_dictionary(array.dictionary_encode())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, CodecError) as error:
        raise CodecError(
            f"a column of type {kind} cannot be a key; use numbers, text, bytes, dates, or several such columns"
        ) from error


def _hash_dictionary(array: pa.DictionaryArray) -> Hashes:
    """Hash every distinct value once."""
    dictionary, indices = array.dictionary, array.indices
    codes = indices.fill_null(0).to_numpy(zero_copy_only=False) if indices.null_count else indices.to_numpy()
    if len(dictionary) > 2 * len(codes) + 64:
        used, codes = np.unique(codes, return_inverse=True)
        dictionary = dictionary.take(pa.array(used)) if len(dictionary) else dictionary
    hashes = _hash_distinct(dictionary)
    if not len(hashes):
        return np.full(len(array), _mix(_NONE), np.uint64)
    result: Hashes = hashes[codes]
    if indices.null_count:
        result[indices.is_null().to_numpy(zero_copy_only=False)] = _mix(_NONE)
    return result


def _hash_distinct(values: pa.Array) -> Hashes:
    kind = values.type
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind):
        return _hash_buffers(values.cast(pa.binary() if types.is_string(kind) else pa.large_binary()), _TEXT)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _hash_buffers(values, _BYTES)
    if types.is_decimal(kind):
        return np.array([stable_hash(value) for value in values.to_pylist()], np.uint64)
    if types.is_nested(kind) or types.is_dictionary(kind):
        raise _unfit(type(kind))
    return _hash_array(values)


_MANY = 2048
"""Least column length for compiled loops; the first such column loads them."""


def _hash_buffers(values: pa.Array, seed: int) -> Hashes:
    if len(values) >= _MANY and not pa.types.is_fixed_size_binary(values.type):
        from timely.data.kernels.crc import hash_each

        hashes = hash_each(values, seed, (_MIX_1, _MIX_2))
        if values.null_count:
            hashes[values.is_null().to_numpy(zero_copy_only=False)] = _mix(_NONE)
        return hashes
    data = values.to_pylist()
    nulls = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)) if values.null_count else ()
    for index in nulls:
        data[index] = b""
    sizes = np.fromiter(map(len, data), np.uint64, len(data))
    hashes = np.fromiter(map(crc32, data), np.uint64, len(data))
    hashes |= sizes << np.uint64(32)
    hashes ^= np.uint64(seed)
    hashes = _mix_column(hashes)
    if len(nulls):
        hashes[nulls] = _mix(_NONE)
    return hashes


def hash_columns(columns: Sequence[Any]) -> Hashes:
    """Hash of each row's key: one column's value, or the tuple of several.

    Raises:
        CodecError: if a column's type holds no hashable keys, or there is no column.
    """
    if not columns:
        raise CodecError("a key needs at least one column")
    if len(columns) == 1:
        return hash_column(columns[0])
    result: Hashes | None = None
    for column in columns:
        hashes = hash_column(column)
        if result is None:
            hashes += np.uint64((_TUPLE * 31) & _MASK)
        else:
            result *= np.uint64(31)
            hashes += result
        result = _mix_column(hashes)
    return cast(Hashes, result)
