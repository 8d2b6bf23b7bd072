"""The format of values: columns all the way down.

A list of values is encoded as a *column*. Values that MessagePack tells apart by itself (None, bool, int,
float, str, bytes) are written as they are, all in one call of msgspec. For everything else the column is
split, never the value: equal-length tuples into the column of their items, a dataclass into its fields, lists
into their lengths and the column of all their items, a column of mixed types into one column a type. So the
cost in Python is paid once for each type and level, not once for each value, and exactness is checked by
`set(map(type, column))`.

On the wire a column is an array `[tag, ...]` whose parts are plain or columns again. A tag is a small integer
of `COLUMN_TAGS`; never change one, as stores hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import countOf, itemgetter
from typing import Any, TypeAlias

from timely.errors import CodecError

Column: TypeAlias = list[Any]
Pack: TypeAlias = Callable[["ColumnWriter", Sequence[Any]], Column]
Unpack: TypeAlias = Callable[[Column], Sequence[Any]]

FEW = 8  # Rows up to which it does not pay to split them into columns.

PLAIN: frozenset[type] = frozenset({type(None), bool, int, float, str, bytes})

BUILT_IN: set[type] = set(PLAIN)
"""Types with built-in encoding: neither registered nor described by fields."""

# What each tag stands for. Tags 16 and up belong to the other modules of this package.
VALUES = 0
MIXED = 1
BIG_INT = 2
ODD_TEXT = 3
TUPLES = 4
UNEVEN_TUPLES = 5

_packers: dict[type, Pack] = {}
_unpackers: dict[int, Unpack] = {}

class_packer: list[Callable[[type], Pack]] = []
"""Factory of packers for new classes, set by `classes`.

It raises CodecError for classes that are not carried.
"""


def carries(cls: type, tag: int, pack: Pack, unpack: Unpack) -> None:
    """Register packer and unpacker for values of exactly type `cls`."""
    _packers[cls] = pack
    BUILT_IN.add(cls)
    understands(tag, unpack)


def understands(tag: int, unpack: Unpack) -> None:
    """Register the reader of columns with a tag."""
    if _unpackers.setdefault(tag, unpack) is not unpack:
        raise ValueError(f"tag {tag} is taken")


def set_packer(cls: type, pack: Pack) -> None:
    """Register a packer for `cls` into a format already understood."""
    _packers[cls] = pack


def packer_of(cls: type) -> Pack:
    """Packer for values of type `cls`.

    Raises:
        CodecError: if they are not carried.
    """
    pack = _packers.get(cls)
    if pack is None:
        pack = _packers[cls] = class_packer[0](cls)
    return pack


class ColumnWriter:
    """Encoder from values to columns.

    Trusts that integers fit 64 bits and text is Unicode; msgspec refuses others.
    """

    plain = PLAIN

    def column(self, values: Sequence[Any]) -> Column:
        """Encode `values`, a list or tuple, as a column."""
        if values:
            cls = type(values[0])
            # Counting is twice as quick as a set: it compares identities and hashes nothing.
            if countOf(map(type, values), cls) == len(values):
                return [VALUES, values] if cls in self.plain else packer_of(cls)(self, values)
        types = set(map(type, values))
        return [VALUES, values] if types <= self.plain else self._mixed(values, types)

    def _mixed(self, values: Sequence[Any], types: set[type]) -> Column:
        plain = types & self.plain
        order = sorted(types - plain, key=lambda cls: (cls.__module__, cls.__qualname__))
        groups: list[list[Any]] = [[] for _ in range(len(order) + 1)]
        number = dict.fromkeys(plain, 0) | {cls: place for place, cls in enumerate(order, 1)}
        codes = [number[type(value)] for value in values]
        for code, value in zip(codes, values):
            groups[code].append(value)
        return [
            MIXED,
            bytes(codes) if len(groups) <= 256 else codes,
            [VALUES, groups[0]],
            *(packer_of(cls)(self, group) for cls, group in zip(order, groups[1:])),
        ]

    def rows(self, rows: Sequence[Sequence[Any]], width: int) -> Column:
        """Encode rows of equal width: flat if few and plain, or very wide; else by column.

        What `read_rows` reads: `[width, count, flat, *columns]`, with None for `flat` where there are
        columns.
        """
        count = len(rows)
        if not width:
            return [0, count, bytes(count)]  # So that a damaged count cannot ask for more memory than there are bytes.
        if count <= FEW:
            flat = list(chain.from_iterable(rows))
            if set(map(type, flat)) <= self.plain:
                return [width, count, flat]
        if width > 2 * count + FEW:
            return [width, count, {"column": self.column(list(chain.from_iterable(rows)))}]
        return [
            width,
            count,
            None,
            *(self.column(list(map(itemgetter(place), rows))) for place in range(width)),
        ]


def read_rows(parts: Sequence[Any]) -> Iterable[tuple[Any, ...]]:
    """Decode rows as tuples.

    There are never more items than `parts` holds, whatever its numbers say.
    """
    width, count, flat, *columns = parts
    if type(width) is not int or type(count) is not int:  # a sequence times a number would take memory
        raise CodecError("damaged value: the size of rows is no number")
    if flat is None:
        if len(columns) != width or not columns:
            raise CodecError(f"damaged value: {len(columns)} columns where there should be {width}")
        return zip(*map(read, columns), strict=True)
    if width == 0:
        return [()] * len(flat)
    if isinstance(flat, dict):
        flat = read(flat["column"])
    if width < 0 or not flat or len(flat) != width * count:
        raise CodecError("damaged value: a row is cut short")
    return zip(*[iter(flat)] * width)


class CarefulWriter(ColumnWriter):
    """Encoder for integers beyond 64 bits and for lone surrogates in text."""

    plain = PLAIN - {int, str}


def _pack_ints(_: ColumnWriter, values: Sequence[int]) -> Column:
    if min(values) >= -(1 << 63) and max(values) < 1 << 64:
        return [VALUES, values]
    return [BIG_INT, [value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True) for value in values]]


def _read_big_ints(column: Column) -> list[int]:
    return [int.from_bytes(data, "little", signed=True) for data in column[1]]


def _pack_text(_: ColumnWriter, values: Sequence[str]) -> Column:
    try:
        "".join(values).encode()
    except UnicodeEncodeError:
        return [ODD_TEXT, [value.encode("utf-8", "surrogatepass") for value in values]]
    return [VALUES, values]


def _read_odd_text(column: Column) -> list[str]:
    return [data.decode("utf-8", "surrogatepass") for data in column[1]]


def read(column: Column) -> Sequence[Any]:
    """Decode a column.

    Whatever a hostile column says, reading it takes time and memory in proportion to its bytes. What is wrong with it shows as
    some exception; `timely.data.codec.batches` makes a CodecError of any.
    """
    return _unpackers[column[0]](column)


def _read_values(column: Column) -> Sequence[Any]:
    values = column[1]
    if type(values) is not list:
        raise CodecError("damaged value: a column without values")
    return values


def _read_mixed(column: Column) -> list[Any]:
    groups: list[Iterator[Any]] = [iter(read(part)) for part in column[2:]]
    try:
        return [next(groups[code]) for code in column[1]]
    except StopIteration:
        raise CodecError("damaged value: fewer values of a type than there should be") from None


understands(VALUES, _read_values)
understands(MIXED, _read_mixed)
carries(int, BIG_INT, _pack_ints, _read_big_ints)
carries(str, ODD_TEXT, _pack_text, _read_odd_text)


# Tuples are most of what streams carry: (key, value), (source, target), ((key, time), value).


def _pack_tuples(writer: ColumnWriter, values: Sequence[tuple[Any, ...]]) -> Column:
    width = len(values[0])
    if width == 2 and len(values) > FEW:
        # Pairs are most of what is exchanged. Unpacking them checks their length on the way.
        try:
            keys, items = [key for key, _ in values], [item for _, item in values]
        except ValueError:
            pass
        else:
            return [TUPLES, 2, len(values), None, writer.column(keys), writer.column(items)]
    if countOf(map(len, values), width) == len(values):
        return [TUPLES, *writer.rows(values, width)]
    return [UNEVEN_TUPLES, list(map(len, values)), writer.column(list(chain.from_iterable(values)))]


def _read_tuples(column: Column) -> list[tuple[Any, ...]]:
    return list(read_rows(column[1:]))


def cut(lengths: Sequence[int], items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Cut `items` into pieces of these lengths."""
    # First: lengths that go back and forth would give each item again and again.
    if sum(lengths) != len(items) or (lengths and min(lengths) < 0):
        raise CodecError("damaged value: lengths do not match")
    end = 0
    for length in lengths:
        start, end = end, end + length
        yield items[start:end]


def _read_uneven_tuples(column: Column) -> list[tuple[Any, ...]]:
    return list(map(tuple, cut(column[1], read(column[2]))))


carries(tuple, TUPLES, _pack_tuples, _read_tuples)
understands(UNEVEN_TUPLES, _read_uneven_tuples)
