"""Session windows over columns: rows of a key less than a gap apart.

A row is a session by itself, and so is each partial result; overlapping sessions of a key are merged. Merging works on
all rows of a batch, and again on all keys of an epoch, by sorting and running maxima. The cost of an epoch grows with
the sessions of its keys and those that close, not with all that are open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from libraries.columns import agg
from libraries.columns.agg import Aggregate
from libraries.columns.kernels.added import Added, grouped
from libraries.columns.kernels.grouping import group_numbers, union
from libraries.columns.kernels.partial import partial
from libraries.columns.kernels.parts import Part
from libraries.columns.operators.aggregate import PreAggregate
from libraries.columns.operators.reading import VALUE, Reading
from libraries.columns.operators.windows import AT, FAR, FIRST, LAST, START, Windowing
from libraries.columns.state import ExpiringTotals, ValuesOfSessions
from timely.data.batch import Batch
from timely.data.kernels.columns import Numbers, column_of, numbers, whole
from timely.data.kernels.tables import Ids, distinct
from timely.state import Parts
from timely.time import Time

_NUMBER = "number()"
"""Session number column, within a batch."""

_FIRST, _LAST = Part("min", AT), Part("max", AT)


def sessions(keys: Ids, first: Numbers, last: Numbers, gap: int) -> tuple[Ids, Numbers]:
    """Merge the sessions of each key closer than `gap`.

    Returns the number of the merged session for each, and the start of each merged one.

    Args:
        keys: a number for each session, which says whose it is.
        first, last: the event times of its first and its last row.
    """
    order = np.lexsort((first, keys))
    keys, first, last = keys[order], first[order], last[order]
    begins = np.ones(len(order), np.bool_)
    if len(order) > 1:
        reached = _reached(keys, last)
        begins[1:] = (keys[1:] != keys[:-1]) | (first[1:] >= reached[:-1] + gap)
    number = np.empty(len(order), np.intp)
    number[order] = np.cumsum(begins) - 1
    return number, first[begins]


def _reached(keys: Ids, last: Numbers) -> Numbers:
    """Running maximum of `last` within each key; rows of a key are adjacent."""
    number = np.cumsum(keys[1:] != keys[:-1])
    low, high = int(last.min()), int(last.max())
    if (high - low + 1) * (int(number[-1]) + 1) < FAR:  # those of each key are above those of the key before
        above = np.zeros(len(keys), np.int64)
        above[1:] = number * (high - low + 1)
        reached: Numbers = np.maximum.accumulate(last - low + above) - above + low
        return reached
    order = np.argsort(last, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return last[order[_reached(keys, rank)]]


def _with_bounds(aggregates: Mapping[str, Aggregate]) -> dict[str, Aggregate]:
    return {**aggregates, FIRST: agg.min(AT), LAST: agg.max(AT)}


def _partial(table: pa.Table, reading: Reading, gap: int) -> pa.Table:
    """Partial table of the sessions of a batch.

    It is also by value, for columns with counted distinct values.
    """
    count = len(reading.keys)
    keys, values, parts = reading.keys[:-1], reading.grouping[count:], reading.carried
    at = numbers(whole(table[AT]))
    plain = [whole(table[key]) for key in keys]
    number, start = sessions(group_numbers(plain), at, at, gap)
    found = partial(table.append_column(_NUMBER, pa.array(number)), [_NUMBER, *values], parts)
    row = np.empty(len(start), np.intp)
    row[number] = np.arange(len(number))
    chosen = whole(found[_NUMBER]).to_numpy()
    of = pa.array(row[chosen])
    starts = column_of(start[chosen], table.schema.field(START).type)
    rest = [*values, *(part.name for part in parts)]
    columns = [*(column.take(of) for column in plain), starts, *(found[name] for name in rest)]
    return pa.Table.from_arrays(columns, [*keys, START, *rest])


class PreSessions(PreAggregate):
    """Combines the rows of each batch before an exchange by `keys`.

    See `PreAggregate`.
    """

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, Aggregate], gap: int) -> None:
        super().__init__([*keys, START], _with_bounds(aggregates))
        self._gap = gap

    def _partial(self, table: pa.Table) -> pa.Table:
        return _partial(table, self._reading, self._gap)


class ColumnSessions(Windowing):
    """Aggregates for each session.

    Rows have `AT` beside `START`, and are each a session that starts with them.

    Args:
        keys: the key columns, one or more. Input must be exchanged by them.
        aggregates: output column → aggregate.
        gap: the length of the silence that ends a session.
        combined: whether rows come from `PreSessions` where there are several workers.
    """

    def __init__(
        self, keys: Sequence[str], aggregates: Mapping[str, Aggregate], gap: int, combined: bool = False
    ) -> None:
        super().__init__([*keys, START], _with_bounds(aggregates), combined)
        self._gap = gap
        self._kept = self._reading.carried
        self._open = ExpiringTotals(self._keys, self._kept, AT)
        self._met = {column: ValuesOfSessions([*self._keys, VALUE]) for column in self._reading.distinct}
        """Distinct values seen so far, counted when a session closes."""
        self.state = Parts(self._pending, self._watermarks, self._open, **self._met)

    def _partial(self, table: pa.Table) -> pa.Table:
        return _partial(table, self._reading, self._gap)

    def _keep(self, time: Time, tables: list[Batch]) -> None:
        rows = self._without_values(time, self._rows(tables))
        open_ = self._open
        totals = open_.totals
        owners = [totals.index.leading(added.keys[:-1]) for added in rows]
        keys = distinct(np.concatenate(owners))
        held, owners_held = open_.alike(keys)
        first, last = [], []
        for added in rows:
            values = dict(zip(self._kept, added.values, strict=True))
            first.append(values[_FIRST])
            last.append(values[_LAST])
        if len(held):
            first.append(totals.of(_FIRST)[held])
            last.append(totals.of(_LAST)[held])
        number, starts = sessions(
            np.concatenate([*owners, owners_held]), np.concatenate(first), np.concatenate(last), self._gap
        )
        start, end = starts[number], 0
        moves = start[len(start) - len(held) :] != first[-1] if len(held) else np.zeros(0, np.bool_)
        joined = []
        for added in rows:
            begin, end = end, end + len(added)
            joined.append(_starting(added, start[begin:end]))
        if moves.any():
            moved = held[moves]
            joined.append(_starting(grouped(totals.table(moved), self._keys, self._kept), start[end:][moves]))
            open_.remove(time, moved)
        changed = open_.add(time, joined)
        open_.relate(keys, union([held[~moves], changed.ids], len(totals)))

    def _without_values(self, time: Time, rows: list[Added]) -> list[Added]:
        """Rows by session, made from rows by session and value.

        The values are kept, each at the start of the session it came in.
        """
        if not self._met:
            return rows
        count = len(self._keys)
        for column, met in self._met.items():
            at = self._reading.grouping.index(column)
            met.new(time, [[*added.keys[:count], added.keys[at]] for added in rows])
        return [replace(added, keys=added.keys[:count]) for added in rows]

    def _close(self, time: Time, watermark: int | None) -> tuple[Mapping[str, pa.Array], Numbers] | None:
        closed = self._open.expire(time, None if watermark is None else watermark - self._gap)
        if closed is None:
            return None
        columns = dict(closed.columns(self._finishing))
        last = numbers(whole(columns[_LAST.name]))
        for column, met in self._met.items():
            keys = [columns[key] for key in self._keys[:-1]]
            of_each = met.take(time, keys, numbers(whole(columns[START])), last)
            columns[Part("distinct", column).name] = pa.array(of_each)
        return columns, last + self._gap


def _starting(added: Added, start: Numbers) -> Added:
    """Rows moved to sessions starting at `start`."""
    return replace(added, keys=[*added.keys[:-1], column_of(start, added.keys[-1].type)])
