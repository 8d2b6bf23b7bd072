"""Group numbers for rows, equal for equal keys, without a persistent key index."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from libraries.columns.kernels.index import KeyIndex, bits
from libraries.columns.kernels.reduce import count_pieces
from timely.data.kernels.columns import (
    TINY,
    Numbers,
    Scratch,
    as_integers,
    column_of,
    is_number,
    numbers,
    of_integers,
    pooled_empty,
)
from timely.data.kernels.tables import Ids, IntTable, compiled_loops, distinct, read_only

SPARSE = 8
"""Most range per row of integers used directly as group numbers, with gaps."""

Keys = Callable[[Ids], list[pa.Array]]
"""Function from group numbers to their keys, one array a column."""


def group(columns: list[pa.Array]) -> tuple[Ids, int, Keys]:
    """Group number of each row, an upper bound, and a function from numbers to keys.

    Codes of a dictionary and integers in a narrow range are group numbers already; other keys are looked up.
    """
    kinds = [column.type for column in columns]
    columns = [as_integers(column) for column in columns]
    groups, count, keys_of = _group(columns)
    if all(column.type is kind for column, kind in zip(columns, kinds, strict=True)):
        return groups, count, keys_of
    return groups, count, lambda ids: [of_integers(*each) for each in zip(keys_of(ids), kinds, strict=True)]


def _group(columns: list[pa.Array]) -> tuple[Ids, int, Keys]:
    """`group` for columns without temporal types."""
    if len(columns) == 1 and len(columns[0]) >= TINY and not columns[0].null_count:
        column = columns[0]
        if pa.types.is_dictionary(column.type):
            dictionary = column.dictionary
            codes = column.indices.to_numpy().astype(np.intp)
            if len(dictionary) <= 2 * len(column):
                return codes, len(dictionary), lambda ids: [_encoded(ids, dictionary)]
            if not dictionary.null_count:
                table = IntTable(len(codes) // 4)
                groups = table.ids(codes)
                return groups, len(table), lambda ids: [_encoded(table.values()[ids], dictionary)]
        elif is_number(column.type) and not pa.types.is_floating(column.type):
            kind, values = column.type, numbers(column)
            low, high = int(values.min()), int(values.max())
            if high - low < SPARSE * len(values):
                # In key order, so equal input gives equal output.
                return (
                    values - low,
                    high - low + 1,
                    lambda ids: [column_of(np.add(ids, low, out=pooled_empty(len(ids), np.int64)), kind)],
                )
    if len(columns[0]) >= TINY and all(is_number(column.type) and not column.null_count for column in columns):
        return _group_numbers(columns)
    index = KeyIndex(len(columns), expected=len(columns[0]) // 4)
    return index.ids(columns), len(index), lambda ids: index.keys(ids)


def _group_numbers(columns: list[pa.Array]) -> tuple[Ids, int, Keys]:
    """`group` for numeric columns, combined one after another.

    Groups have gaps as long as there are not many more of them than rows.
    """
    rows = len(columns[0])
    groups, count = _codes(columns[0], rows)
    for column in columns[1:]:
        codes, width = _codes(column, rows)
        groups, count = groups * width + codes, count * width
        if count >= SPARSE * rows:
            table = IntTable(rows // 4)
            groups = table.ids(groups)
            count = len(table)
    row = np.zeros(count, np.intp)
    row[groups[::-1]] = np.arange(rows - 1, -1, -1)  # the first one of each
    return groups, count, lambda ids: [_taken_of(column, row[ids]) for column in columns]


def _codes(column: pa.Array, rows: int) -> tuple[Ids, int]:
    """Code of each value, and an upper bound."""
    values = bits(numbers(column))
    low, high = int(values.min()), int(values.max())
    if high - low < SPARSE * rows:
        return values - low, high - low + 1
    table = IntTable(rows // 4)
    return table.ids(values), len(table)


def _taken_of(column: pa.Array, rows: Ids) -> pa.Array:
    return column_of(numbers(column)[rows], column.type)


def group_numbers(columns: list[pa.Array]) -> Ids:
    """Group number of each row."""
    return group(columns)[0]


def _encoded(ids: Ids, dictionary: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(ids.astype(np.int32)), dictionary, safe=False)


def union(many: Sequence[Ids], count: int) -> Ids:
    """Sorted distinct ids, all below `count`."""
    if sum(map(len, many)) * 16 < count:
        return distinct(np.concatenate(many))
    seen = np.zeros(count, np.bool_)
    for ids in many:
        seen[ids] = True
    return seen.nonzero()[0]


def group_integers(pieces: list[Numbers], room: Scratch) -> tuple[list[Ids], Numbers, Numbers]:
    """Group number of each value (maybe in `room`), with each group's value and rows.

    Integers in a narrow range are numbered in their order: so equal input gives equal output.
    """
    low, high = min(int(piece.min()) for piece in pieces), max(int(piece.max()) for piece in pieces)
    total, loops = sum(map(len, pieces)), compiled_loops()
    if high - low >= SPARSE * total:
        table = IntTable(total // 4)
        found = [table.ids(piece) for piece in pieces]
        return found, table.values(), count_pieces(found, len(table))[0]
    # One of several workers has few of the values of a range: numbered, what is added up lies close together.
    places = room.room("places", high - low + 1, np.int32)
    places.fill(0)
    for piece in pieces:
        loops.count_values(read_only(piece), low, places)
    present = room.room("present", len(places) + 1, np.int64)
    rows = pooled_empty(min(len(places), total) + 1, np.int64)
    count = loops.number_values(places, present, rows)
    given, groups = room.room("groups", total, np.intp), []
    for piece in pieces:
        groups.append(given[: len(piece)])
        given = given[len(piece) :]
        loops.numbers_of_values(read_only(piece), low, places, groups[-1])
    return groups, np.add(present[:count], low, out=pooled_empty(count, np.int64)), rows[:count]
