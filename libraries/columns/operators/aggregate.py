"""Group-by over columns, per time or running.

A batch becomes a *partial* table as it arrives (vectorised, one row a key); when its time is complete the partial
tables of that time are added up. Running totals live in dense arrays behind an index of keys, so that an epoch costs
what it brings and not what is known. With several workers `PreAggregate` makes the partial tables before the exchange.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from typing import Any, Literal, TypeGuard

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from libraries.columns import agg
from libraries.columns.agg import Aggregate
from libraries.columns.kernels.added import Added, RowReaders, grouped, table_of
from libraries.columns.kernels.index import Encoder
from libraries.columns.kernels.partial import combine, combined, partial
from libraries.columns.kernels.parts import Part
from libraries.columns.kernels.sorted_rows import in_content_order
from libraries.columns.kernels.totals import Result
from libraries.columns.operators.reading import ROWS, VALUE, Reading, first_met
from libraries.columns.state import ExpiringTotals, TotalsState, ValuesOfKeys
from libraries.columns.state.totals import Changed
from timely.data.batch import Batch, Columns, as_array, as_arrow, as_polars, concat, length
from timely.data.kernels.columns import TINY, Numbers, in_their_order, is_number, whole
from timely.data.kernels.series import frame_of, series_of
from timely.data.span import Span
from timely.errors import GraphError, user_site
from timely.operators.base import Context, Operator, notify_of
from timely.operators.stateless import operator_error
from timely.state import Parts, TimedBatches
from timely.time import Time

Over = Literal["time", "scope"]

ALL = "all()"
"""Constant column used as the key of totals over all rows."""

REFUSALS = (TypeError, KeyError, ValueError, OverflowError, pa.ArrowException, pl.exceptions.PolarsError)
_MANY = 16

_SAMPLE = 2048
"""Sample size for estimating the rows saved by grouping."""

_ALONE = 2
"""Largest mean number of rows per key for keys to count as mostly unique."""

_EPOCH = "epoch()"
"""Epoch column of rows, for keys with a time to live."""

_OF_EPOCH = (Part("values", _EPOCH), Part("max", _EPOCH))


class PreAggregate:
    """Combines the rows of a batch before its exchange: `combine` of an `Exchange`.

    Args:
        keys: the key columns.
        aggregates: output column → aggregate. Give the same to the `ColumnAggregate` behind the exchange.
        sparing: whether many rows that are mostly alone with their keys are left as they are, for that one to group.
    """

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, Aggregate], sparing: bool = False) -> None:
        self._reading = Reading(keys, aggregates)
        self._keys = self._reading.grouping
        self._parts = self._reading.carried
        self._readers = RowReaders(self._keys, self._parts)
        self._sparing = sparing

    def apply(self, batch: Batch) -> pa.Table:
        """Partial table of `batch`: the keys, then one column for each part.

        A batch of few rows gives one row for each of them.
        """
        table = self._reading.rows(batch)
        if len(table) < TINY:  # to send them all costs less than to find out which have one key
            return table_of(self._readers.of(table).read(table), self._keys, self._parts)
        rows = as_arrow(table)
        return rows if self._sparing and mostly_single(rows, self._keys) else self._partial(rows)

    def _partial(self, table: pa.Table) -> pa.Table:
        return partial(table, self._keys, self._parts)


class Grouping(Operator):
    """Base of aggregations over columns: partial tables of a time, and their results."""

    repeats_over = "time"
    moves_by_key = True

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, Aggregate], combined: bool) -> None:
        check_aggregate(keys, aggregates)
        self._keys = list(keys)
        self._aggregates = dict(aggregates)
        self._reading = Reading(keys, aggregates)
        self._parts = self._reading.parts
        self._partial_names = [*self._reading.grouping, *(part.name for part in self._reading.carried)]
        self._finishing = {part for aggregate in aggregates.values() for part in aggregate.finishing()}
        self._combined = combined
        self._waits = False
        """True if rows from several workers are grouped only when their time is complete."""
        self._encoder: Encoder | None = None
        self._plain = False
        self._readers = RowReaders(self._reading.grouping, self._reading.carried)
        self._pending = TimedBatches()

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        try:
            # One worker gets combined rows too, if they were sent when there were several.
            if self._combined and (
                ctx.workers > 1 or (isinstance(batch, pa.Table) and batch.column_names == self._partial_names)
            ):
                table = as_arrow(batch)
                if self._is_rows(table):
                    self._add_rows(time, table, self._waits)
                else:
                    # Batches of several workers were joined: each chunk has its own dictionary, and is best taken by itself.
                    for part in table.to_batches():
                        self._add(time, pa.Table.from_batches([part]))
            else:
                self._add_rows(time, self._reading.rows(batch))
        except REFUSALS as error:
            raise refused(ctx, time, error, batch) from error
        ctx.notify_at(time)

    def _hold(self, ctx: Context, span: Span) -> bool:
        """Hold the rows of a span ungrouped; False if each time must be handled by itself.

        In that case nothing is held.
        """
        if self._reading.makes or (self._combined and ctx.workers > 1):
            return False
        try:
            rows = frame_of([span.get_column(name) for name in self._reading.names])
            self._readers.of(rows)  # what is refused is refused where it comes
        except REFUSALS:
            return False
        self._pending.add_span(Span(rows, span.times, span.ends))
        notify_of(ctx, span.times)
        return True

    def _partial(self, table: pa.Table) -> pa.Table:
        return partial(self._encode(table), self._reading.grouping, self._reading.carried)

    def _add_rows(self, time: Time, rows: Columns, as_they_are: bool = False) -> None:
        if len(rows) < TINY:
            self._readers.of(rows)  # what is refused is refused where it comes
        elif not as_they_are:
            rows = self._partial(as_arrow(rows))
        self._add(time, rows)

    def _add(self, time: Time, rows: Columns) -> None:
        held = self._pending.add(time, rows)
        many = len(held)
        # Looked at when the number of tables doubles, so that many tiny ones cost O(1) each.
        if many >= _MANY and many & (many - 1) == 0 and length(held[0]) <= sum(map(length, held[1:])):
            self._pending.replace(time, self._as_table(self._rows(held)))

    def _rows(self, tables: Sequence[Batch]) -> list[Added]:
        """Rows held for a time, by key and value: partial tables and small raw batches."""
        found = []
        for table in tables:
            if self._is_rows(table):
                found.append(self._readers.of(table).read(table))
            else:
                found.append(self._of_partial(as_arrow(table)))
        return found

    def _is_rows(self, batch: Batch) -> TypeGuard[Columns]:
        """True for raw rows, False for a partial table."""
        return isinstance(batch, pl.DataFrame) or as_arrow(batch).column_names == self._reading.names

    def _of_partial(self, table: pa.Table) -> Added:
        return grouped(table, self._reading.grouping, self._reading.carried)

    def _as_table(self, rows: Sequence[Added]) -> pa.Table:
        """Merge several partial tables into one."""
        return combine(rows, self._reading.grouping, self._reading.carried)

    def _united(self, tables: Sequence[Batch]) -> pa.Table:
        """Partial table of everything held for a time; keys may repeat."""
        if len(tables) == 1 and not self._is_rows(tables[0]):
            return as_arrow(tables[0])
        return self._as_table(self._rows(tables))

    def _summed(self, rows: Sequence[Added]) -> dict[str, pa.Array]:
        """Columns of keys and parts, added up by key over all rows."""
        return combined(self._reading.by_key(rows, first_met), self._keys, self._parts, self._finishing)

    def _encode(self, table: pa.Table) -> pa.Table:
        if self._encoder is None or pa.types.is_dictionary(table.schema.field(0).type):
            return table
        self._plain = True
        plain = whole(table.column(0))
        encoded = self._encoder.encode(plain)
        if encoded is plain:
            return table
        return table.set_column(0, self._keys[0], encoded)

    def of_batch(self, batch: Batch) -> pa.Table:
        """The results of one batch by itself: the keys, then the aggregates."""
        partial_table = self._partial(as_arrow(self._reading.rows(batch)))
        return self._finish(self._summed([self._of_partial(partial_table)]))

    def _finished(self, aggregate: Aggregate, columns: Mapping[str, pa.Array]) -> pa.Array:
        """The results of an aggregate, from the columns of keys and parts."""
        try:
            return aggregate.finish(columns)
        except pa.ArrowInvalid:
            keys = pa.table({key: columns[key] for key in self._keys})
            sums = columns[aggregate.summed.name].to_pylist()
            raise too_large(keys, self._keys, str(aggregate.column), sums) from None

    def _finish(self, columns: Mapping[str, pa.Array]) -> pa.Table:
        result = {key: columns[key] for key in self._keys}
        if self._plain:  # what came as plain strings leaves as such
            key = result[self._keys[0]]
            result[self._keys[0]] = key.dictionary_decode() if pa.types.is_dictionary(key.type) else key
        for name, aggregate in self._aggregates.items():
            result[name] = self._finished(aggregate, columns)
        return pa.Table.from_arrays(list(result.values()), list(result))


class ColumnAggregate(Grouping):
    """Operator for group_by(keys).agg(...) over columns.

    Emits tables, or frames of a few rows: the keys, then the aggregates.

    Args:
        keys: the key columns, one or more. Input must be exchanged by them.
        aggregates: output column → aggregate.
        over: "time" for one result a key and time; "scope" for totals that run on along the innermost coordinate,
            emitted for the keys that changed.
        combined: whether input comes from `PreAggregate` where there are several workers.
        ttl: of totals that run on in the root scope: a key that has had no row in so many epochs is forgotten.
        sign: of totals that run on: what a key had before is taken back. A last column of this name has -1 for that, and 1 for
            what it has now.
    """

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        over: Over = "scope",
        combined: bool = False,
        ttl: int | None = None,
        sign: str | None = None,
    ) -> None:
        super().__init__(keys, aggregates, combined)
        self._sign = sign
        self._grows = any(aggregate.grows for aggregate in aggregates.values())
        # Strings that run on are met again and again: encode them once, as they come.
        self._encoder = Encoder() if over == "scope" and len(keys) == 1 else None
        self._waits = over == "time"
        self._direct = _simple(aggregates, self._parts)
        of_values = [*keys, VALUE]
        self._met: dict[str, TotalsState] = {
            column: TotalsState(of_values, ROWS) if ttl is None else ValuesOfKeys(of_values)
            for column in self._reading.distinct
        }
        """Distinct values seen so far in each counted column, by key."""
        self._totals = TotalsState(self._keys, self._parts) if over == "scope" else None
        self.ttl = ttl
        self.converges = ttl is None
        self._expiring: ExpiringTotals | None = None
        if ttl is not None:
            self._expiring = self._totals = ExpiringTotals(self._keys, [*self._parts, *_OF_EPOCH], _EPOCH)
        self.state = self._pending if self._totals is None else Parts(self._pending, self._totals, **self._met)

    def on_notify(self, ctx: Context, time: Time) -> None:
        tables = self._pending.pop(time)
        if not tables:
            return
        signs = None
        try:
            if self._totals is not None:
                changed = self._changed(self._totals, time, tables)
                if self._sign is not None:
                    changed, signs = changed.signed()
                if self._direct and len(changed) < TINY and (few := changed.frame(self._direct)) is not None:
                    if len(few):
                        ctx.send(few if signs is None else few.hstack([series_of(str(self._sign), signs)]))
                    return
                result = changed.columns(self._finishing) if len(changed) else None
            elif len(tables) == 1 and self._is_result(ctx, tables[0]):
                result = by_name(as_arrow(tables[0]))
            else:
                result = self._summed(self._rows(tables))
            if result is not None:
                found = self._finish(result)
                ctx.send(found if signs is None else found.append_column(str(self._sign), pa.array(signs)))
        except REFUSALS as error:
            first = tables[0]  # a partial table may have what Polars does not, sums of more than 64 bits
            sample = as_polars(first) if self._is_rows(first) else first
            raise refused(ctx, time, error, sample) from error

    def _changed(self, totals: TotalsState, time: Time, tables: Sequence[Batch]) -> Changed:
        """Totals changed by the rows of a time."""
        epoch = int(time[0])  # INF is more than any number of epochs behind all others
        if self._expiring is not None and self.ttl is not None:  # keys that are too old for these to be added to
            forget_values(time, self._keys, self._expiring.expire(time, epoch - self.ttl - 1), self._met.values())
        rows = self._reading.by_key(self._rows(tables), lambda column, met: self._new(time, column, met))
        if self._expiring is not None:
            rows = _dated(epoch, rows)
        return totals.add(time, rows, None if self._grows else self._differs)

    def _new(self, time: Time, column: str, met: list[Added]) -> list[pa.Array]:
        """Keys and values seen for the first time."""
        known = self._met[column]
        if isinstance(known, ValuesOfKeys):
            return known.new(time, [added.keys for added in met])
        changed = known.add(time, met)
        return changed.totals.index.keys(changed.ids[changed.ids >= changed.known])

    def _is_result(self, ctx: Context, batch: Batch) -> bool:
        """True if the batch is a complete result: all of its time, each key once."""
        if self._reading.distinct or self._is_rows(batch):
            return False
        table = as_arrow(batch)
        several = self._combined and ctx.workers > 1
        return _rises(table, self._keys) if several else _distinct(table, self._keys)

    def _differs(self, before: Mapping[Part, Numbers], after: Mapping[Part, Numbers]) -> npt.NDArray[np.bool_]:
        """Mask of keys with a changed result."""
        found = [aggregate.differs(before, after) for aggregate in self._aggregates.values()]
        if self.ttl is not None:
            found.append(before[_OF_EPOCH[0]] == 0)
        return reduce(np.logical_or, found)


def _dated(epoch: int, rows: Sequence[Added]) -> list[Added]:
    """Rows with an added epoch part."""
    kinds = [pa.int64(), pa.int64()]
    return [
        replace(
            added,
            kinds=[*added.kinds, *kinds],
            values=[*added.values, np.ones(len(added), np.int64), np.full(len(added), epoch)],
            valid=[*added.valid, None, None],
        )
        for added in rows
    ]


def forget_values(time: Time, keys: Sequence[str], gone: Changed | None, values: Iterable[TotalsState]) -> None:
    """Forget the values of expired keys."""
    if gone is not None:
        columns = gone.columns(())
        for each in values:
            assert isinstance(each, ValuesOfKeys)
            each.give_up(time, [columns[key] for key in keys])


class ColumnDistinct(ColumnAggregate):
    """Emits each key once in a scope.

    It is an aggregate that never changes: rows of known keys add nothing to it.
    """

    spans = True

    def on_span(self, ctx: Context, port: int, span: Span) -> None:
        if not self._hold(ctx, span):
            super().on_span(ctx, port, span)

    def on_notify_several(self, ctx: Context, times: Sequence[Time]) -> None:
        try:
            span = self._pending.span(times)
            keys = [] if span is None else [whole(as_array(span.get_column(key))) for key in self._keys]
        except TypeError:  # of different columns, or grouped already
            super().on_notify_several(ctx, times)
            return
        self._pending.drop(times)
        if span is None or self._totals is None:
            return
        try:
            changed, rows = self._totals.meet_first(times[-1], keys)
            if len(rows):
                found = changed.frame(self._direct)
                if found is None:
                    found = as_polars(self._finish(changed.columns(self._finishing)))
                ctx.spans.append(Span.cut(found, times, span.numbers(times)[rows]))
        except REFUSALS as error:
            raise refused(ctx, times[0], error, span.frame) from error

    def _changed(self, totals: TotalsState, time: Time, tables: Sequence[Batch]) -> Changed:
        return totals.meet(time, [[_key_of(table, key) for key in self._keys] for table in tables])


def _key_of(table: Batch, key: str) -> pa.Array:
    if isinstance(table, pl.DataFrame):
        return whole(as_array(table.get_column(key)))
    return whole(as_arrow(table).column(key))


def too_large(table: Columns, keys: Sequence[str], column: str, sums: Sequence[Any]) -> OverflowError:
    """Error for a sum beyond 64-bit integers or 38 decimal digits.

    `sums` has one for each row of `table`.
    """
    longest = max((row for row, total in enumerate(sums) if total is not None), key=lambda row: abs(sums[row]))
    decimals = isinstance(sums[longest], Decimal) and len(sums[longest].as_tuple().digits) > _MOST_DIGITS
    row = longest
    if not decimals:
        row = next(row for row, total in enumerate(sums) if total is not None and not -(1 << 63) <= total < 1 << 63)
    of = as_polars(table.select(list(keys)))[row]
    key = ", ".join(f"{name}={of[name][0]!r}" for name in keys if name != ALL)
    rows, before = (f"for {key}", "group_by") if key else ("of all rows", "agg")
    if decimals:
        return OverflowError(
            f"the sum of column {column!r} {rows} is {sums[row]}, which has more than the 38 digits of decimals; before "
            f"{before}, cast the column: with_columns(pl.col({column!r}).cast(pl.Float64)) rounds"
        )
    return OverflowError(
        f"the sum of column {column!r} {rows} is {sums[row]}, which is beyond 64-bit integers; before {before}, cast the "
        f"column: with_columns(pl.col({column!r}).cast(pl.Float64)) rounds, pl.Decimal(38, 0) is exact"
    )


_MOST_DIGITS = 38

_ROW = "row()"
"""Row number column, to order groups by their first rows."""


class ExpressionAggregate(Operator):
    """Operator for group_by(keys).agg(Polars expressions) over all rows of a time.

    Emits Polars frames.

    Aggregates of `libraries.columns.agg` among them are what they are without expressions beside them.

    Args:
        keys: the key columns, one or more. Input must be exchanged by them.
        aggregates: output column → Polars expression, or aggregate of `libraries.columns.agg`.
    """

    repeats_over = "time"

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, pl.Expr | Aggregate]) -> None:
        check_aggregate(keys, aggregates)
        self._keys = list(keys)
        self._names = list(aggregates)
        known = {name: item for name, item in aggregates.items() if isinstance(item, Aggregate)}
        self._expressions = {name: item for name, item in aggregates.items() if isinstance(item, pl.Expr)}
        self._known = Grouping(keys, {**known, _ROW: agg.min(_ROW)}, False) if known else None
        self._pending = TimedBatches()
        self.state = self._pending

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self._pending.add(time, batch)
        ctx.notify_at(time)

    def on_notify(self, ctx: Context, time: Time) -> None:
        batches = self._pending.pop(time)
        if not batches:
            return
        try:
            result = self._results(as_polars(concat(batches)))
        except REFUSALS as error:
            raise refused(ctx, time, error, batches[0]) from error
        ctx.send(result)

    def _results(self, frame: pl.DataFrame) -> pl.DataFrame:
        # An expression may depend on the order of rows: a sum of floats does.
        rows = in_content_order(frame, self._keys)
        result = rows.group_by(self._keys, maintain_order=True).agg(**self._expressions)
        if self._known is None:
            return result
        known = as_polars(self._known.of_batch(rows.with_row_index(_ROW))).sort(_ROW)
        return result.hstack(known.drop(*self._keys, _ROW)).select(*self._keys, *self._names)


def column_aggregate(
    keys: Sequence[str],
    aggregates: Mapping[str, Aggregate | pl.Expr],
    over: Over,
    combined: bool = False,
    ttl: int | None = None,
    sign: str | None = None,
    once: bool = False,
) -> Operator:
    """Operator for `group_by(*keys).agg(over=..., **aggregates)`.

    `once`: the aggregate is of a column that is the same integer in all rows.

    Raises:
        GraphError: for Polars expressions with `over="scope"`: only aggregates whose partial results combine can run on.
    """
    known = {name: item for name, item in aggregates.items() if isinstance(item, Aggregate)}
    if once and over == "scope" and ttl is None:
        return ColumnDistinct(keys, known, over, combined)
    if len(known) == len(aggregates):
        return ColumnAggregate(keys, known, over, combined, ttl, sign)
    if over == "scope" or combined:
        name = next(name for name in aggregates if name not in known)
        raise GraphError(
            f"aggregate {name!r} is a Polars expression, which cannot run on across times; "
            'use over="time", or libraries.columns.agg'
        )
    return ExpressionAggregate(keys, aggregates)


def check_aggregate(keys: Sequence[str], aggregates: Mapping[str, Any]) -> None:
    """Refuse to aggregate nothing, or into columns with the same name."""
    if not keys:
        raise GraphError(f"{user_site()}: group_by needs at least one key column")
    if not aggregates:
        raise GraphError(f"{user_site()}: agg needs at least one aggregate, for instance n=agg.count()")
    twice = [key for number, key in enumerate(keys) if key in keys[:number] or key in aggregates]
    if twice:
        raise GraphError(f"{user_site()}: column {twice[0]!r} would come out twice; give the aggregate another name")


def _simple(aggregates: Mapping[str, Aggregate], parts: Sequence[Part]) -> list[Result]:
    """Results taken directly from parts, or as means; empty if one needs more."""
    found = []
    for name, each in aggregates.items():
        if each.kind not in ("count", "sum", "min", "max", "mean", "n_unique"):
            return []
        by = parts.index(each.parts()[0]) if each.kind == "mean" else None
        of = each.summed if each.kind in ("sum", "mean") else each.parts()[-1]
        found.append(Result(name, parts.index(of), by, whole=each.sign is not None))
    return found


def by_name(table: pa.Table) -> dict[str, pa.Array]:
    """Columns of a table by name, each as one array."""
    return {name: whole(column) for name, column in zip(table.column_names, table.columns, strict=True)}


def mostly_single(table: pa.Table, keys: Sequence[str]) -> bool:
    """True if most keys are surely unique, so grouping saves little.

    Only for rows of numbers with one integer key.

    By the pairs with one key in a sample, as if all keys were equally frequent.
    """
    kind = table.schema.field(keys[0]).type
    if len(keys) > 1 or not pa.types.is_integer(kind):
        return False
    if not all(is_number(column.type) and not column.null_count for column in table.columns):
        return False
    sample = np.sort(in_their_order(whole(table[keys[0]]))[:: max(1, len(table) // _SAMPLE)])
    pairs = int(np.count_nonzero(sample[1:] == sample[:-1]))
    return 4 * pairs < len(sample) and 2 * pairs * len(table) < _ALONE * len(sample) ** 2


def _rises(table: pa.Table, keys: list[str]) -> bool:
    """True if keys of a partial table rise strictly and no value is null.

    Then the table has each key once, and needs no further grouping.

    Rows that were not grouped (`table_of`) have null for the sum of no values.
    """
    key = table.column(keys[0])
    if len(keys) > 1 or key.num_chunks != 1 or not pa.types.is_integer(key.type):
        return False
    if any(column.null_count for column in table.columns):
        return False
    values = in_their_order(key.chunk(0))
    return bool((values[1:] > values[:-1]).all())


def _distinct(table: pa.Table, keys: list[str]) -> bool:
    """True if a partial table has each key once.

    Only a dictionary with repeated entries can break that.
    """
    if len(keys) > 1 or not pa.types.is_dictionary(table.schema.field(keys[0]).type):
        return True
    dictionary = whole(table[keys[0]]).dictionary
    return bool(pc.count_distinct(dictionary).as_py() == len(dictionary))


def refused(ctx: Context, time: Time, error: Exception, batch: Batch) -> Exception:
    """The error for the user, when rows cannot be aggregated."""
    if isinstance(batch, pl.DataFrame):  # without the key of all rows, which is nobody's column
        batch = batch.drop(ALL, strict=False)
    return operator_error(f"aggregate {ctx.name!r}", ctx.site, time, error, None, batch)
