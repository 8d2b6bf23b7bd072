"""Rows of a time in an order, and the first rows of each key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from libraries.columns.kernels.added import RowReaders
from libraries.columns.kernels.grouping import group_numbers, union
from libraries.columns.kernels.row_store import take
from libraries.columns.operators.aggregate import REFUSALS
from libraries.columns.operators.joins.joining import CHANGE, refuse_change
from libraries.columns.state import CountedRows
from timely.data.batch import Batch, as_array, as_polars, concat
from timely.data.content import content_of
from timely.data.kernels.columns import TINY, Numbers, check_there, in_order, whole
from timely.data.kernels.series import frame_of, series_of
from timely.data.kernels.tables import Ids, distinct
from timely.errors import CodecError
from timely.operators.base import Context, Operator
from timely.operators.stateless import operator_error
from timely.state import Parts, TimedBatches
from timely.state.interface import State
from timely.time import Time


class _Top(Operator):
    """Base of both top-k operators.

    Emits the keys, then the other columns.

    Args:
        keys: the key columns, one or more. Input must be exchanged by them.
        k: the number of rows that are wanted of each key.
        by: the columns by whose values rows are in order: the first counts most. Null is behind all.
        least: for each of them, whether the least comes first, and not the greatest.
    """

    repeats_over = "time"

    def __init__(self, keys: Sequence[str], k: int, by: Sequence[str], least: Sequence[bool]) -> None:
        self._keys = list(keys)
        self._k = k
        self._by = dict(zip(by, least, strict=True))
        self._pending = TimedBatches()
        self.state: State = self._pending

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        try:
            frame = as_polars(batch)
            check_there(frame.columns, [*self._keys, *self._by])
            self._pending.add(time, self._read(frame))
        except REFUSALS as error:
            raise self._refused(ctx, time, error, batch) from error
        ctx.notify_at(time)

    def on_notify(self, ctx: Context, time: Time) -> None:
        batches = self._pending.pop(time)
        if not batches:
            return
        try:
            found = self._found(time, as_polars(concat(batches)))
        except REFUSALS as error:
            raise self._refused(ctx, time, error, batches[0]) from error
        ctx.send(found)

    def _refused(self, ctx: Context, time: Time, error: Exception, batch: Batch) -> Exception:
        return operator_error(f"top_k {ctx.name!r}", ctx.site, time, error, None, batch)

    def _read(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Batch in the form held until its time is complete."""
        return frame

    def _found(self, time: Time, rows: pl.DataFrame) -> Batch:
        """Rows emitted when a time is complete."""
        raise NotImplementedError

    def _names(self, columns: Sequence[str]) -> list[str]:
        """Output columns without the sign."""
        return [*self._keys, *(name for name in columns if name not in self._keys and name != CHANGE)]

    def _order(self, owners: Ids, names: Sequence[str], columns: Sequence[pa.Array]) -> Ids:
        """Row numbers in order, grouped by owner.

        Rows that are equal in `by` are in the order of their other columns, so that a replay gives the same.
        """
        others = dict(zip(names, columns, strict=True))
        places = [place for name, least in self._by.items() for place in _places(others.pop(name), least)]
        order = np.lexsort((*places[::-1], owners))
        tied = owners[order[1:]] == owners[order[:-1]]
        for place in places:
            tied &= place[order[1:]] == place[order[:-1]]
        if tied.any():
            places += [place for column in others.values() for place in _places_by_content(column)]
            order = np.lexsort((*places[::-1], owners))
        return order

    def _first(self, owners: Ids, counts: Numbers) -> Numbers:
        """Number of copies of each row among the first `k` of its owner.

        Rows are in order; `counts` has the number of copies of each.
        """
        counts = np.maximum(counts, 0)
        upto = np.cumsum(counts)
        begins = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
        before = np.repeat(upto[begins] - counts[begins], np.diff(begins, append=len(owners)))
        first: Numbers = np.clip(self._k - (upto - counts - before), 0, counts)
        return first


class TopOfTime(_Top):
    """The first `k` rows of each key among those of a time."""

    def _found(self, time: Time, rows: pl.DataFrame) -> Batch:
        names = self._names(rows.columns)
        columns = [rows.get_column(name) for name in names]
        arrays = [whole(as_array(column)) for column in columns]
        owners = group_numbers(arrays[: len(self._keys)])
        order = self._order(owners, names, arrays)
        first = self._first(owners[order], np.ones(len(order), np.int64)) > 0
        return frame_of(take(columns, np.sort(order[first])))


class RunningTop(_Top):
    """First `k` rows of each key so far, as changes.

    In a last column, `CHANGE`, rows that leave the first `k` have -1, and rows that enter them 1.

    Args:
        signed: whether rows that come have such a column, too, and are taken back by -1.
    """

    moves_by_key = True

    def __init__(self, keys: Sequence[str], k: int, by: Sequence[str], least: Sequence[bool], signed: bool) -> None:
        super().__init__(keys, k, by, least)
        self._signed = signed
        self._rows = CountedRows(keys, CHANGE)
        self._readers: RowReaders | None = None
        self.state = Parts(self._pending, self._rows)

    def _read(self, frame: pl.DataFrame) -> pl.DataFrame:
        floats = [name for name, kind in frame.schema.items() if kind.is_float()]
        if floats:  # rows that differ in the sign of a zero are counted as one
            frame = frame.with_columns(
                pl.when(pl.col(name) == 0).then(pl.col(name).abs()).otherwise(pl.col(name)) for name in floats
            )
        if not self._signed:
            refuse_change(frame.columns)
            frame = frame.hstack([series_of(CHANGE, np.ones(len(frame), np.int8))])
        return frame

    def _found(self, time: Time, rows: pl.DataFrame) -> Batch:
        held = self._rows
        if held.columns is None:
            held.name(self._names(rows.columns))
        names = held.columns
        assert names is not None
        if {*rows.columns} != {*names, CHANGE}:
            raise TypeError(f"rows had the columns {names} before; select the same ones for all")
        if self._readers is None:
            self._readers = RowReaders(names, held.parts)
        changed = held.add(time, [self._readers.of(rows).read(rows)])
        totals = held.totals
        leading = distinct(totals.index.leading_of(changed.ids, held.leading))
        ids = union([held.alike(leading)[0], changed.ids], len(totals))
        now = totals.of(held.count)[ids]
        was = now.copy()
        was[np.searchsorted(ids, changed.ids)] = changed.before[held.parts.index(held.count)]
        owners = totals.index.leading_of(ids, held.leading)
        order = self._order(owners, names, totals.index.keys(ids))
        owners, was, now, ids = owners[order], was[order], now[order], ids[order]
        first = self._first(owners, now)
        growth = first - self._first(owners, was)
        kept = (now if self._signed else first) != 0
        held.remove(time, ids[~kept])
        held.relate(leading, ids[kept])
        gone, come = np.flatnonzero(growth < 0), np.flatnonzero(growth > 0)
        chosen = np.concatenate([gone.repeat(-growth[gone]), come.repeat(growth[come])])
        signs = np.ones(len(chosen), np.int8)
        signs[: -growth[gone].sum()] = -1
        return self._changes(names, ids[chosen], signs)

    def _changes(self, names: list[str], ids: Ids, signs: Numbers) -> Batch:
        index = self._rows.totals.index
        columns = index.series(names, ids) if len(ids) < TINY else None
        if columns is not None:
            return frame_of([*columns, series_of(CHANGE, signs)])
        return pa.Table.from_arrays([*index.keys(ids), pa.array(signs)], [*names, CHANGE])


def _places(column: pa.Array, least: bool) -> list[Numbers]:
    """Sort keys in the order of the values, the most significant first.

    Null is the last.
    """
    valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    values = in_order(column if valid is None else column.drop_null())
    places = values if least else ~values
    if valid is None:
        return [places]
    some = np.zeros(len(valid), np.int64)
    some[valid] = places
    return [(~valid).astype(np.int8), some]


def _places_by_content(column: pa.Array) -> list[Numbers]:
    """Sort keys as by `_places`, least first, also for nested values such as lists."""
    if not pa.types.is_nested(column.type):
        return _places(column, True)
    try:
        contents = [content_of(value) for value in column.to_pylist()]
    except CodecError as error:
        raise TypeError(str(error)) from error
    place = {content: number for number, content in enumerate(sorted(set(contents)))}
    return [np.array([place[content] for content in contents], np.int64)]


class SortOfTime(Operator):
    """Sorts all rows of a complete time by `by`.

    Input must be gathered at one worker.

    Rows that are equal in these go by their other columns, the least first, so that a replay gives the same.

    Args:
        by: names of columns and expressions of a column each: the first counts most.
        descending: for each of them.
        nulls_last: for each of them.
    """

    repeats_over = "time"
    one_batch = True

    def __init__(self, by: Sequence[str | pl.Expr], descending: Sequence[bool], nulls_last: Sequence[bool]) -> None:
        self._by = list(by)
        self._named = {each for each in by if isinstance(each, str)}
        self._descending = list(descending)
        self._nulls_last = list(nulls_last)
        self._pending = TimedBatches()
        self.state = self._pending

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        try:
            frame = as_polars(batch)
        except TypeError as error:
            raise operator_error(f"sort {ctx.name!r}", ctx.site, time, error, None, batch) from error
        self._pending.add(time, frame)
        ctx.notify_at(time)

    def on_notify(self, ctx: Context, time: Time) -> None:
        batches = self._pending.pop(time)
        try:
            found = self._sorted(as_polars(concat(batches)))
        except REFUSALS as error:
            raise operator_error(f"sort {ctx.name!r}", ctx.site, time, error, None, batches[0]) from error
        ctx.send(found)

    def _sorted(self, rows: pl.DataFrame) -> pl.DataFrame:
        others = [name for name in rows.columns if name not in self._named]
        ties = [False] * len(others)
        return rows.sort([*self._by, *others], descending=self._descending + ties, nulls_last=self._nulls_last + ties)
