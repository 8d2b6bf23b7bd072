"""Encoding of the standard library's types."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import chain
from operator import attrgetter, countOf, itemgetter
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from timely.data.codec.records import Column, ColumnWriter, carries, cut, read, read_rows, understands
from timely.errors import CodecError

LIST, SET, FROZENSET, DICT, DICT_ROWS = 16, 17, 18, 19, 20
DATETIME, DATE, TIME, TIMEDELTA, ZONE, OFFSET = 24, 25, 26, 27, 28, 29
DECIMAL, UUID_, COMPLEX, BYTEARRAY = 32, 33, 34, 35
DEQUE, COUNTER, ORDERED_DICT = 40, 41, 42


def _collection(cls: type, tag: int, make: Callable[[Sequence[Any]], Any]) -> None:
    def pack(writer: ColumnWriter, values: Sequence[Any]) -> Column:
        if len(values) == 1:
            return [tag, [len(values[0])], writer.column(list(values[0]))]
        return [tag, list(map(len, values)), writer.column(list(chain.from_iterable(values)))]

    def unpack(column: Column) -> list[Any]:
        return [make(part) for part in cut(column[1], read(column[2]))]

    carries(cls, tag, pack, unpack)


_collection(list, LIST, list)
_collection(set, SET, set)
_collection(frozenset, FROZENSET, frozenset)


def _pack_dicts(writer: ColumnWriter, values: Sequence[dict[Any, Any]]) -> Column:
    count = len(values)
    if count > 1 and values[0]:
        # Rows of a table, the same names in the same order? Text only: 1 and True are equal as keys.
        names = tuple(values[0])
        width = len(names)
        if (
            countOf(map(tuple, values), names) == count
            and countOf(map(type, chain.from_iterable(values)), str) == count * width
        ):
            columns = [writer.column(list(map(itemgetter(name), values))) for name in names]
            return [DICT_ROWS, writer.column(names), [width, count, None, *columns]]
    keys = writer.column(list(chain.from_iterable(values)))
    items = writer.column(list(chain.from_iterable(map(dict.values, values))))
    return [DICT, list(map(len, values)), keys, items]


def _read_dicts(column: Column) -> list[dict[Any, Any]]:
    _, lengths, keys, items = column
    pairs = zip(cut(lengths, read(keys)), cut(lengths, read(items)), strict=True)
    return [dict(zip(names, values)) for names, values in pairs]


def _read_dict_rows(column: Column) -> list[dict[Any, Any]]:
    names = read(column[1])
    return [dict(zip(names, row)) for row in read_rows(column[2])]


carries(dict, DICT, _pack_dicts, _read_dicts)
understands(DICT_ROWS, _read_dict_rows)


def _datetimes(writer: ColumnWriter, values: Sequence[dt.datetime]) -> Column:
    folds = [value.fold for value in values]
    zones: list[Any] = [value.tzinfo for value in values]
    if len(set(map(id, zones))) == 1:
        zones = zones[:1]
    if zones != [None]:
        values = [value.replace(tzinfo=None) for value in values]
    return [
        DATETIME,
        list(map(dt.datetime.isoformat, values)),
        folds if any(folds) else None,
        None if zones == [None] else writer.column(zones),
    ]


def _read_datetimes(column: Column) -> list[dt.datetime]:
    _, texts, folds, zones = column
    values = list(map(dt.datetime.fromisoformat, texts))
    if folds is not None:
        values = [value.replace(fold=fold) for value, fold in zip(values, folds, strict=True)]
    if zones is not None:
        infos = read(zones)
        infos = list(infos) * len(values) if len(infos) == 1 else infos
        values = [value.replace(tzinfo=info) for value, info in zip(values, infos, strict=True)]
    return values


def _times(writer: ColumnWriter, values: Sequence[dt.time]) -> Column:
    return [
        TIME,
        [value.replace(tzinfo=None).isoformat() for value in values],
        [value.fold for value in values],
        writer.column([value.tzinfo for value in values]),
    ]


def _read_times(column: Column) -> list[dt.time]:
    _, texts, folds, zones = column
    return [
        dt.time.fromisoformat(text).replace(fold=fold, tzinfo=zone)
        for text, fold, zone in zip(texts, folds, read(zones), strict=True)
    ]


def _zones(_: ColumnWriter, values: Sequence[ZoneInfo]) -> Column:
    keys = [value.key for value in values]
    if None in keys:
        raise CodecError("a ZoneInfo made from a file has no name; make it by name, as in ZoneInfo('Europe/Rome')")
    return [ZONE, keys]


def _zone(key: Any) -> ZoneInfo:
    if not _ZONE_NAME.fullmatch(key):  # the data of zones is imported by name where the system has none
        raise CodecError(f"there is no time zone {key[:100]!r}")
    try:
        return ZoneInfo(key)
    except (OSError, LookupError, ValueError) as error:
        raise CodecError(f"this computer has no time zone {key[:100]!r}") from error


_ZONE_NAME = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")


def _offsets(writer: ColumnWriter, values: Sequence[dt.timezone]) -> Column:
    return [OFFSET, writer.column([value.__getinitargs__() for value in values])]  # type: ignore[attr-defined]


def _timedeltas(writer: ColumnWriter, values: Sequence[dt.timedelta]) -> Column:
    return [TIMEDELTA, *writer.rows(list(map(attrgetter("days", "seconds", "microseconds"), values)), 3)]


def _simple(cls: type, tag: int, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
    """Register a type with a plain form of each value."""
    carries(
        cls,
        tag,
        lambda _, values: [tag, [pack(value) for value in values]],
        lambda column: [unpack(value) for value in column[1]],
    )


carries(dt.datetime, DATETIME, _datetimes, _read_datetimes)
carries(dt.time, TIME, _times, _read_times)
carries(ZoneInfo, ZONE, _zones, lambda column: list(map(_zone, column[1])))
carries(dt.timezone, OFFSET, _offsets, lambda column: [dt.timezone(*args) for args in read(column[1])])
carries(
    dt.timedelta,
    TIMEDELTA,
    _timedeltas,
    lambda column: [dt.timedelta(*parts) for parts in read_rows(column[1:])],
)
_simple(dt.date, DATE, dt.date.toordinal, dt.date.fromordinal)
_simple(Decimal, DECIMAL, str, Decimal)
_simple(UUID, UUID_, attrgetter("bytes"), lambda data: UUID(bytes=data))
_simple(complex, COMPLEX, lambda value: [value.real, value.imag], lambda parts: complex(*parts))
_simple(bytearray, BYTEARRAY, bytes, lambda data: bytearray(memoryview(data)))  # not of a number: so many zeros


def _through(cls: type, tag: int, pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> None:
    """Register a type encoded through another encodable type."""
    carries(
        cls,
        tag,
        lambda writer, values: [tag, writer.column([pack(value) for value in values])],
        lambda column: [unpack(value) for value in read(column[1])],
    )


def _read_counter(counts: Iterable[Any]) -> Counter[Any]:
    counter: Counter[Any] = Counter()
    dict.update(counter, counts)
    return counter


_through(deque, DEQUE, lambda value: (list(value), value.maxlen), lambda parts: deque(*parts))
_through(Counter, COUNTER, dict, _read_counter)
_through(OrderedDict, ORDERED_DICT, dict, OrderedDict)
