"""Partial tables: rows or other partial tables aggregated by key.

A partial table holds key columns, then a column for each part (`libraries.columns.kernels.parts`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from libraries.columns.kernels import sketches
from libraries.columns.kernels.added import Added, are_ones, present_values, ungrouped, values_to_add
from libraries.columns.kernels.grouping import group, group_integers
from libraries.columns.kernels.parts import ADDS, Kind, Part, compared_kind, sum_kind, sums_column
from libraries.columns.kernels.reduce import count_rows, reduce, reduce_pieces
from libraries.columns.kernels.totals import Totals
from timely.data.kernels.columns import (
    TINY,
    BeyondSigned,
    Numbers,
    as_integers,
    column_of,
    comparable,
    in_their_order,
    integers_type,
    is_number,
    numbers,
    of_integers,
    pooled_take,
    scratch,
    whole,
)
from timely.data.kernels.tables import MANY, Ids
from timely.data.sums.terms import is_terms, squares


def partial(table: pa.Table, keys: Sequence[str], parts: Sequence[Part]) -> pa.Table:
    """Partial table of a batch: keys, then parts.

    A dictionary-encoded key keeps its dictionary.

    Raises:
        TypeError: if a column cannot be a key, or cannot be added up or compared as a number.
    """
    if len(table) < TINY:
        return combine([ungrouped(table, keys, parts)], keys, parts)
    if len(table) >= MANY and (found := _regroup([ungrouped(table, keys, parts)], keys, parts)) is not None:
        return pa.Table.from_arrays(list(found.values()), list(found))
    groups, count, keys_of = group([whole(table[key]) for key in keys])
    rows, present = count_rows(groups, count)
    full = len(present) == count
    rows_column = pa.array(rows if full else pooled_take(rows, present))
    of_column: dict[str, _Column] = {}
    columns = []
    for part in parts:
        if part.column is None:
            columns.append(rows_column)
            continue
        of = of_column.get(part.column)
        if of is None:
            of = of_column[part.column] = _Column(whole(table[part.column]), part.column, groups, count)
        filled = None if of.filled is None else (of.filled if full else of.filled[present])
        if part.kind == "values":
            columns.append(rows_column if filled is None else pa.array(filled))
            continue
        if part.kind == "squares":
            result = reduce("sum", of.groups, count, squares(of.to_add()), rows)
            columns.append(sums_column(result if full else result[present], pa.float64()))
            continue
        if part.kind == "sketch":
            made = sketches.of_groups(of.groups, count, of.to_add())
            columns.append(pa.array((made if full else made[present]).tolist(), sketches.KIND))
            continue
        result = reduce(part.kind, of.groups, count, of.to_add() if part.kind == "sum" else of.to_compare(), rows)
        if not full:
            plain = result.dtype.kind != "O" and result.ndim == 1
            result = pooled_take(result, present) if plain else result[present]
        empty = None if filled is None else filled == 0
        columns.append(sums_column(result, of.kind) if part.kind == "sum" else of.compared(result, empty))
    names = [*keys, *(part.name for part in parts)]
    return pa.table([*keys_of(present), *columns], names)


class _Column:
    """Values of a column by group.

    `filled` is the number of values of each group (None: as many as rows).
    """

    def __init__(self, column: pa.Array, name: str, groups: Ids, count: int) -> None:
        self.kind = column.type
        self._name = name
        self._column, valid = present_values(column)
        self.groups = groups if valid is None else groups[valid]
        self.filled = None if valid is None else np.bincount(self.groups, minlength=count)
        self._numbers: Numbers | None = None
        self._places: Numbers | None = None
        self._ranked: pa.Array | None = None

    def to_add(self) -> Numbers:
        """Values as addable numbers.

        Raises:
            TypeError: if they cannot.
        """
        sum_kind(self.kind, self._name)
        return self._as_numbers()

    def to_compare(self) -> Numbers:
        """Order-preserving numbers; for text, bytes and decimals their ranks.

        Raises:
            TypeError: if they have no order.
        """
        compared_kind(self.kind, self._name)
        if pa.types.is_null(self.kind) or (is_number(self.kind) and not pa.types.is_uint64(self.kind)):
            return self._as_numbers()
        if self._places is None:
            if is_number(self.kind):
                self._places = in_their_order(self._column)
            else:
                self._places, self._ranked = comparable(self._column)
        return self._places

    def _as_numbers(self) -> Numbers:
        if self._numbers is None:
            try:
                self._numbers = values_to_add(self._column)
            except BeyondSigned as error:
                raise error.of(self._name) from None
        return self._numbers

    def compared(self, chosen: Numbers, empty: npt.NDArray[np.bool_] | None) -> pa.Array:
        """Inverse of `to_compare`: a column of values, null where `empty`."""
        if self._ranked is None:
            return column_of(chosen, self.kind, empty)
        return self._ranked.take(pa.array(chosen if empty is None else np.where(empty, 0, chosen), mask=empty))


def combine(many: Sequence[Added], keys: Sequence[str], parts: Sequence[Part]) -> pa.Table:
    """Merge partial inputs into one partial table, each key once."""
    columns = combined(many, keys, parts)
    return pa.Table.from_arrays(list(columns.values()), list(columns))


def combined(
    many: Sequence[Added], keys: Sequence[str], parts: Sequence[Part], only: Collection[Part] | None = None
) -> dict[str, pa.Array]:
    """Columns of `combine` by name; of the parts at least those in `only`."""
    regrouped = _regroup(many, keys, parts) if sum(map(len, many)) >= MANY else None
    if regrouped is not None:
        return regrouped
    totals = Totals(keys, parts, expected=max(map(len, many), default=0))
    for added in many:
        totals.add(totals.ids(added.keys, added.kinds), added, unique=False)
    return totals.columns(None, totals.values(), only)


def _regroup(many: Sequence[Added], keys: Sequence[str], parts: Sequence[Part]) -> dict[str, pa.Array] | None:
    """Fast `combined` for many rows with one integer key and no nulls, else None.

    Needs no index.

    A part that would be a sketch may have no values at all.
    """
    many = [added for added in many if len(added)]
    first = many[0]
    if len(keys) > 1 or not pa.types.is_integer(first.keys[0].type):
        return None
    bare = {
        i for i, part in enumerate(parts) if part.kind == "sketch" and not any(len(each.values[i]) for each in many)
    }
    for added in many:
        alike = added.keys[0].type.equals(first.keys[0].type) and added.kinds == first.kinds
        some = [each for i, each in enumerate(zip(added.kinds, added.valid, strict=True)) if i not in bare]
        full = not added.keys[0].null_count and all(valid is None for _, valid in some)
        if not alike or not full or not all(is_number(kind) or is_terms(kind) for kind, _ in some):
            return None
    with scratch() as room:
        groups, values, rows = group_integers([numbers(as_integers(added.keys[0])) for added in many], room)
        kind = first.keys[0].type
        columns = {keys[0]: of_integers(column_of(values, integers_type(kind)), kind)}
        counted: pa.Array | None = None
        for i, part in enumerate(parts):
            if i in bare:
                columns[part.name] = pa.nulls(len(rows), first.kinds[i])
                continue
            given = [added.values[i] for added in many]
            if all(map(are_ones, given)):
                if counted is None:
                    counted = column_of(rows, pa.int64())
                columns[part.name] = counted
                continue
            reduced: Kind = "sum" if part.kind in ADDS else part.kind
            result = reduce_pieces(reduced, groups, len(rows), given, rows)
            if result.dtype.kind == "O":
                columns[part.name] = sums_column(result, pa.int64())
            else:
                columns[part.name] = column_of(result, first.kinds[i])
    return columns
