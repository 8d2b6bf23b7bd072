"""Totals of changes with least and greatest values: what they are without the rows that have been taken back.

A sum loses what is taken back; a minimum needs to know which value comes next. So of each key all different values are kept,
each with the sum of its signs, and given up when that is 0. A key that changes has all its values looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timely.data.batch import Batch, as_arrow
from timely.data.kernels.columns import Numbers, comparable, is_number, numbers, select, whole
from timely.data.kernels.tables import Ids
from timely.data.kernels.totals import Part, RowReaders, compared_kind, union
from timely.operators import agg
from timely.operators.agg import Aggregate, parts_of
from timely.operators.aggregate import REFUSALS, Grouping, refused
from timely.operators.base import Context
from timely.state import ExpiringTotals, Parts, TotalsState
from timely.time import Time


class ChangedAggregate(Grouping):
    """Running sums, and least and greatest values, for each key, of rows with a sign. Emits the keys that changed.

    Args:
        keys: the key columns, one or more. Input must be exchanged by them.
        sums: output column → sum of a column that has been multiplied by the sign.
        extremes: output column → minimum or maximum of a column.
        sign: the column of the sign.
    """

    def __init__(
        self, keys: Sequence[str], sums: Mapping[str, Aggregate], extremes: Mapping[str, Aggregate], sign: str
    ) -> None:
        super().__init__(keys, sums, combined=False)
        self._extremes = dict(extremes)
        self._count = Part("sum", sign)
        self._totals = TotalsState(self._keys, self._parts)
        parts = parts_of({"there": agg.max(sign), "count": agg.sum(sign)})
        columns = dict.fromkeys(str(each.column) for each in extremes.values())
        self._values = {column: ExpiringTotals([*keys, column], parts, sign) for column in columns}
        self._of_values = {column: RowReaders([*keys, column], parts) for column in columns}
        self._needed = list(dict.fromkeys([*self._reading.names, *columns, sign]))
        self.state = Parts(self._pending, self._totals, *self._values.values())

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        try:
            table = select(batch, self._needed)
            self._readers.of(table)  # what is refused is refused where it comes
            for column in self._values:
                compared_kind(table.schema.field(column).type, column)
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
        told = np.zeros(0, np.bool_)

        def differ(before: Mapping[Part, Numbers], after: Mapping[Part, Numbers]) -> npt.NDArray[np.bool_]:
            nonlocal told
            told = np.logical_or.reduce([each.differs(before, after) for each in self._aggregates.values()])
            return np.ones(len(told), np.bool_)  # all are wanted, for their extremes

        changed = self._totals.add(time, [self._readers.of(table).read(table) for table in tables], differ)
        told |= changed.ids >= changed.known
        keys = changed.totals.index.keys(changed.ids)
        found: dict[str, tuple[Ids, Ids]] = {}
        for column, values in self._values.items():
            leading = values.totals.index.leading(keys)
            before = _extremes(values, leading)
            found[column] = self._replace(time, column, values, leading, tables)
            for was, now in zip(before, found[column], strict=True):
                told |= was != now
        columns = dict(zip(self._keys, (key.filter(pa.array(told)) for key in keys), strict=True))
        sums = changed.columns(set(self._parts))
        for name, aggregate in self._aggregates.items():
            columns[name] = aggregate.finish(sums).filter(pa.array(told))
        for name, aggregate in self._extremes.items():
            column = str(aggregate.column)
            ids = found[column][0 if aggregate.kind == "min" else 1][told]
            columns[name] = _values(
                self._values[column], ids, compared_kind(tables[0].schema.field(column).type, column)
            )
        return pa.Table.from_arrays(list(columns.values()), list(columns))

    def _replace(
        self, time: Time, column: str, values: ExpiringTotals, leading: Ids, tables: list[pa.Table]
    ) -> tuple[Ids, Ids]:
        """Add the rows to the values that their keys have; the extremes after that."""
        held, _ = values.alike(leading)
        some = [table.filter(table[column].is_valid()) for table in tables]
        readers = self._of_values[column]
        rows = [readers.of(table).read(table) for table in some if len(table)]
        if rows:
            new = values.add(time, rows).ids
            ids = union([held, new], len(values.totals))
            none = values.totals.of(self._count)[ids] == 0
            values.remove(time, ids[none])
            values.relate(leading, ids[~none])
        return _extremes(values, leading)


def _extremes(values: ExpiringTotals, leading: Ids) -> tuple[Ids, Ids]:
    """The ids of the least and the greatest value of each key; -1 where it has none."""
    least, greatest = np.full(len(leading), -1, np.intp), np.full(len(leading), -1, np.intp)
    ids, owners = values.alike(leading)
    if len(ids):
        sorted_ = np.argsort(leading)
        at = sorted_[np.searchsorted(leading, owners, sorter=sorted_)]
        column = whole(values.totals.index.keys(ids)[-1])
        places = numbers(column) if is_number(column.type) else comparable(column)[0]
        low = np.lexsort((places, at))[::-1]  # of what is put in one place, the last stays; NaN is the last of all
        least[at[low]] = ids[low]
        high = np.lexsort((np.where(np.isnan(places), -np.inf, places) if places.dtype.kind == "f" else places, at))
        greatest[at[high]] = ids[high]
    return least, greatest


def _values(values: ExpiringTotals, ids: Ids, kind: pa.DataType) -> pa.Array:
    """The values of these ids, null where they are -1."""
    if not len(values.totals):
        return pa.nulls(len(ids), kind)
    there = np.flatnonzero(ids >= 0)
    places = np.zeros(len(ids), np.int64)
    places[there] = np.arange(len(there))
    column = whole(values.totals.index.keys(ids[there])[-1])
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.take(pa.array(places, mask=ids < 0)).cast(kind)
