"""Totals of signed rows, including extremes, first, last and distinct counts.

Rows taken back do not count.

A sum subtracts a value taken back; a minimum needs the next value. So all distinct values of each key are kept, each
with the sum of its signs, and dropped when that is 0. A change of a key looks at all its values. First and last work on
pairs (order, value).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from libraries.columns import agg
from libraries.columns.agg import Aggregate, parts_of
from libraries.columns.kernels.added import RowReaders
from libraries.columns.kernels.grouping import group_numbers, union
from libraries.columns.kernels.parts import Part, compared_kind
from libraries.columns.operators.aggregate import REFUSALS, Grouping, refused
from libraries.columns.state import ExpiringTotals, TotalsState
from libraries.columns.state.totals import Changed
from timely.data.batch import Batch, as_arrow
from timely.data.kernels.columns import Numbers, comparable, in_their_order, is_number, select, whole
from timely.data.kernels.tables import Ids
from timely.operators.base import Context
from timely.state import Parts, State
from timely.time import Time


class _Found(NamedTuple):
    """Least and greatest value (ids; -1: none) of each key, and its number of values."""

    least: Ids
    greatest: Ids
    number: Ids
    """Number of the key's values (a count, not an id)."""


_WHICH = {"min": 0, "first": 0, "max": 1, "last": 1, "n_unique": 2}
"""Field of `_Found` used by each kind of aggregate."""

KEPT = tuple(_WHICH)
"""Aggregates with kept values."""


class ChangedAggregate(Grouping):
    """Running aggregates of signed rows by key; emits the keys that changed.

    Args:
        keys: the key columns, one or more. Input must be exchanged by them.
        sums: output column → count, sum, mean, var, std or quantile by the sign.
        of_values: output column → one of `KEPT`. Null is no value, also for `n_unique`.
        sign: the column of the sign.
        signed: whether results have such a column, too, the last: what a key had before is taken back.
    """

    def __init__(
        self,
        keys: Sequence[str],
        sums: Mapping[str, Aggregate],
        of_values: Mapping[str, Aggregate],
        sign: str,
        signed: bool = False,
    ) -> None:
        super().__init__(keys, sums, combined=False)
        self._sign = sign if signed else None
        self._of_values = dict(of_values)
        self._count = Part("sum", sign)
        self._totals = TotalsState(self._keys, self._parts)
        parts = parts_of({"there": agg.max(sign), "count": agg.sum(sign)})
        together = dict.fromkeys(map(_ordered, of_values.values()))
        self._values = {columns: ExpiringTotals([*keys, *columns], parts, sign, len(keys)) for columns in together}
        self._value_readers = {columns: RowReaders([*keys, *columns], parts) for columns in together}
        read = (column for columns in together for column in columns)
        self._needed = list(dict.fromkeys([*self._reading.given, *read, sign]))
        kept: dict[str, State] = {", ".join(columns): values for columns, values in self._values.items()}
        self.state = Parts(self._pending, self._totals, **kept)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        try:
            table = select(batch, self._needed)
            for name, column in self._reading.made(table).items():
                table = table.append_column(name, column)
            self._readers.of(table)  # what is refused is refused where it comes
            for aggregate in self._of_values.values():
                aggregate.result_kind(*(table.schema.field(column).type for column in aggregate.columns()))
        except REFUSALS as error:
            raise refused(ctx, time, error, batch) from error
        self._pending.add(time, table)
        ctx.notify_at(time)

    def on_notify(self, ctx: Context, time: Time) -> None:
        tables = [as_arrow(batch) for batch in self._pending.pop(time)]
        if not tables:
            return
        try:
            result = self._results(time, tables)
        except REFUSALS as error:
            raise refused(ctx, time, error, tables[0]) from error
        ctx.send(result)

    def _results(self, time: Time, tables: list[pa.Table]) -> pa.Table:
        changed_rows = np.zeros(0, np.bool_)

        def differ(before: Mapping[Part, Numbers], after: Mapping[Part, Numbers]) -> npt.NDArray[np.bool_]:
            nonlocal changed_rows
            changed_rows = np.logical_or.reduce([each.differs(before, after) for each in self._aggregates.values()])
            return np.ones(len(changed_rows), np.bool_)  # all are wanted, for their values

        changed = self._totals.add(time, [self._readers.of(table).read(table) for table in tables], differ)
        changed_rows |= changed.ids >= changed.known
        keys = changed.totals.index.keys(changed.ids)
        found: dict[tuple[str, ...], _Found] = {}
        former: dict[str, pa.Array] = {}
        for columns, values in self._values.items():
            leading = values.totals.index.leading(keys)
            before = _look(values, leading, len(columns))
            if self._sign is not None:  # as long as these values are there
                former |= self._of(columns, before, tables[0])
            found[columns] = self._replace(time, columns, values, leading, tables)
            for which in {_WHICH[each.kind] for each in self._of_values.values() if _ordered(each) == columns}:
                was, now = before[which], found[columns][which]
                changed_rows |= was != now if len(columns) == 1 else _differ(values, was, now)
        present = {
            name: array for columns in found for name, array in self._of(columns, found[columns], tables[0]).items()
        }
        come = self._chosen(keys, changed, present, changed_rows)
        if self._sign is None:
            return come
        before_it = replace(changed, values=list(changed.before))
        gone = self._chosen(keys, before_it, former, changed_rows & (changed.ids < changed.known))
        signs = np.repeat(np.array([-1, 1], np.int8), [len(gone), len(come)])
        return pa.concat_tables([gone, come]).append_column(self._sign, pa.array(signs))

    def _of(self, columns: tuple[str, ...], found: _Found, like: pa.Table) -> dict[str, pa.Array]:
        """Results of the aggregates over values ordered by `columns`, for each key."""
        results: dict[str, pa.Array] = {}
        for name, aggregate in self._of_values.items():
            if _ordered(aggregate) == columns:
                ids = found[_WHICH[aggregate.kind]]
                kind = compared_kind(like.schema.field(columns[-1]).type, columns[-1])
                kept = aggregate.kind != "n_unique"
                results[name] = _values(self._values[columns], ids, kind) if kept else pa.array(ids)
        return results

    def _chosen(
        self,
        keys: Sequence[pa.Array],
        totals: Changed,
        of_values: Mapping[str, pa.Array],
        changed_rows: npt.NDArray[np.bool_],
    ) -> pa.Table:
        """Results of the keys selected by the mask."""
        mask = pa.array(changed_rows)
        sums = totals.columns(set(self._parts))
        results = dict(zip(self._keys, keys, strict=True))
        results |= {name: self._finished(aggregate, sums) for name, aggregate in self._aggregates.items()}
        results |= {name: of_values[name] for name in self._of_values}
        return pa.table({name: whole(column).filter(mask) for name, column in results.items()})

    def _replace(
        self, time: Time, columns: tuple[str, ...], values: ExpiringTotals, leading: Ids, tables: list[pa.Table]
    ) -> _Found:
        """Add rows to the kept values of their keys; return the new extremes and counts."""
        held, _ = values.alike(leading)
        some = tables
        for column in columns:
            some = [table.filter(table[column].is_valid()) for table in some]
        readers = self._value_readers[columns]
        rows = [readers.of(table).read(table) for table in some if len(table)]
        if rows:
            new = values.add(time, rows).ids
            ids = union([held, new], len(values.totals))
            none = values.totals.of(self._count)[ids] == 0
            values.remove(time, ids[none])
            values.relate(leading, ids[~none])
        return _look(values, leading, len(columns))


def _differ(values: ExpiringTotals, was: Ids, now: Ids) -> npt.NDArray[np.bool_]:
    """Mask of ids with different values; two ids may hold equal values."""
    found: npt.NDArray[np.bool_] = was != now
    both = np.concatenate([was[found], now[found]])
    same, of = np.unique(both, return_inverse=True)
    there = same >= 0
    codes = np.full(len(same), -1, np.intp)
    if there.any():
        codes[there] = group_numbers([whole(values.totals.index.keys(same[there])[-1])])
    before, after = np.split(codes[of], 2)
    found[found] = before != after
    return found


def _ordered(aggregate: Aggregate) -> tuple[str, ...]:
    """Ordering columns of the values kept for an aggregate."""
    return tuple(column for column in (aggregate.order_by, aggregate.column) if column is not None)


def _look(values: ExpiringTotals, leading: Ids, columns: int) -> _Found:
    """Extremes and counts of the keys' values, each of `columns` columns."""
    least, greatest, number = (np.full(len(leading), start, np.intp) for start in (-1, -1, 0))
    ids, owners = values.alike(leading)
    if len(ids):
        sorted_ = np.argsort(leading)
        at = sorted_[np.searchsorted(leading, owners, sorter=sorted_)]
        number += np.bincount(at, minlength=len(leading))
        of = [whole(column) for column in values.totals.index.keys(ids)[-columns:]]
        places = [in_their_order(column) if is_number(column.type) else comparable(column)[0] for column in of]
        if columns > 1:  # in the order of an order NaN is a value like others, behind all
            places = [_ranks(each) for each in places]
        low = np.lexsort((*places[::-1], at))[
            ::-1
        ]  # of what is put in one place, the last stays; NaN is the last of all
        least[at[low]] = ids[low]
        places = [np.where(np.isnan(each), -np.inf, each) if each.dtype.kind == "f" else each for each in places]
        high = np.lexsort((*places[::-1], at))
        greatest[at[high]] = ids[high]
    return _Found(least, greatest, number)


def _ranks(places: Numbers) -> Numbers:
    """Ranks: integers in the same order."""
    ranks: Numbers = np.unique(places, return_inverse=True)[1]
    return ranks


def _values(values: ExpiringTotals, ids: Ids, kind: pa.DataType) -> pa.Array:
    """Values of these ids, null for -1."""
    if not len(values.totals):
        return pa.nulls(len(ids), kind)
    there = np.flatnonzero(ids >= 0)
    places = np.zeros(len(ids), np.int64)
    places[there] = np.arange(len(there))
    column = whole(values.totals.index.keys(ids[there])[-1])
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.take(pa.array(places, mask=ids < 0)).cast(kind)
