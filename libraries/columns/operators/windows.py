"""Windows over columns, of event time or epochs: late rows, totals by key.

Event times are integers, or instants, which count as microseconds since 1970. A worker tests its own rows for lateness,
against the watermark that all workers agree on (`timely.operators.watermark`), puts each into its windows, and adds
them up by window and key before the exchange. So exchanged data and open windows are partial tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from libraries.columns.agg import Aggregate
from libraries.columns.operators.aggregate import REFUSALS, Grouping, refused
from libraries.columns.operators.open_tables import OpenTables
from timely.data.batch import Batch, as_arrow, as_polars, divide
from timely.data.kernels.columns import TINY, Numbers, column_of, numbers, whole
from timely.data.kernels.series import series_of
from timely.data.kernels.tables import distinct
from timely.data.span import Span
from timely.operators.base import Context, notify_of
from timely.operators.stateless import operator_error
from timely.operators.watermark import EventTimes, Lateness
from timely.operators.window_shapes import Bounds, Epochs
from timely.operators.windows import END
from timely.state import Parts, TimedValues
from timely.time import Time

START = "start()"
"""Window start column of rows."""

AT = "at()"
"""Event time column of rows, as 64-bit integers."""

FIRST, LAST = "first()", "last()"
"""Names of the aggregates with the first and the last event time of a session."""

HIDDEN = (FIRST, LAST)
"""Aggregates left out of results."""

_DAY = 86_400_000_000
FAR = 1 << 61
_MARK = "watermark"


def event_times(frame: pl.DataFrame | Span, column: str, instants: bool) -> pl.Series:
    """The event times of rows as 64-bit integers.

    Raises:
        TypeError: if they are of the wrong type. ValueError: for nulls, and what is too far away to be added to. KeyError: if
            there is no such column.
    """
    if column not in frame.columns:
        raise KeyError(f"no column {column!r} with event times; this batch has {', '.join(map(repr, frame.columns))}")
    found = frame.get_column(column)
    kind = found.dtype
    check_type(column, kind, instants)
    if found.null_count():
        raise ValueError(f"null is no event time: filter rows without {column!r} out before")
    times = found if kind == pl.Int64 else found.to_physical().cast(pl.Int64)
    unit = kind.time_unit if isinstance(kind, pl.Datetime) else "us"
    factor = _DAY if isinstance(kind, pl.Date) else 1000 if unit == "ms" else 1
    if len(times) and max(-times.min(), times.max()) > FAR // factor:  # type: ignore[operator, type-var]
        raise ValueError(f"an event time in {column!r} is too far from 0")
    return times // 1000 if unit == "ns" else times * factor if factor > 1 else times


def check_type(column: str, kind: pl.DataType, instants: bool) -> None:
    """Raise TypeError if the type of event times does not fit the lengths of windows."""
    if not (isinstance(kind, pl.Datetime | pl.Date) if instants else kind.is_integer()):
        lengths = "are timedeltas" if instants else "are numbers"
        wanted = "a column of datetimes or dates" if instants else "a column of integers; for datetimes say timedeltas"
        raise TypeError(f"lengths {lengths}, so time= is {wanted}, and {column!r} is of type {kind}")


class ColumnTimes(EventTimes):
    """Port 0: the rows as they are. Port 1: the greatest event time of each epoch."""

    spans = True

    def __init__(self, column: str, instants: bool) -> None:
        super().__init__()
        self._column = column
        self._instants = instants

    def _stamped(self, ctx: Context, batch: Batch) -> tuple[Batch, Any]:
        try:
            return batch, int(event_times(as_polars(batch), self._column, self._instants).max())  # type: ignore[arg-type]
        except (*REFUSALS, OverflowError) as error:
            raise operator_error(f"the event time of {ctx.name!r}", ctx.site, ctx.time, error, None, batch) from error

    def on_span(self, ctx: Context, port: int, span: Span) -> None:
        try:
            times = event_times(span, self._column, self._instants).to_numpy()
        except (*REFUSALS, OverflowError):
            super().on_span(ctx, port, span)
            return
        greatest = np.maximum.reduceat(times, [0, *span.ends[:-1]]).tolist()
        for time, most in zip(span.times, greatest, strict=True):
            ctx.time = time
            self._reaches(time, most)
            ctx.notify_at()
        ctx.spans.append(span)


class ColumnOnTime(Lateness):
    """Holds the rows of an epoch until it is complete, and splits late ones off.

    Rows before the watermark are late.

    The others get their event time as columns: `AT`, and, in the type in which windows come out, `START`, if `add` has them.
    """

    def __init__(self, column: str, instants: bool, allowed: int, add: Collection[str] = ()) -> None:
        super().__init__(allowed)
        self._column = column
        self._instants = instants
        self._add = add

    def _part(self, batch: Batch, watermark: Any) -> tuple[Batch, Batch]:
        frame = as_polars(batch)
        times = event_times(frame, self._column, self._instants)
        made = {AT: lambda: times.alias(AT), START: lambda: self._as_column(times, frame)}
        timed = _beside(frame, *(made[name]() for name in self._add))
        if watermark is None or not (late := times < watermark).any():
            return timed, []
        return divide(timed, ~late)[0], divide(frame, late)[0]

    def _as_column(self, start: pl.Series, frame: pl.DataFrame | Span) -> pl.Series:
        """Starts of windows in the type in which they come out."""
        kind = frame.get_column(self._column).dtype
        if self._instants:
            start = start.cast(pl.Datetime("us", kind.time_zone if isinstance(kind, pl.Datetime) else None))
        return start.alias(START)


class ColumnLateness(ColumnOnTime):
    """Puts the rows of a complete epoch into those of their windows that are open.

    Out go the rows with the start of a window, once for each window; the rows of which a window has closed, as they came; and
    the watermark whenever it moves.
    """

    def __init__(self, column: str, length: int, every: int, instants: bool, allowed: int) -> None:
        super().__init__(column, instants, allowed)
        self._length = length
        self._every = every

    spans = True

    def on_span(self, ctx: Context, port: int, span: Span) -> None:
        self._records.add_span(span)
        notify_of(ctx, span.times)

    def on_notify_several(self, ctx: Context, times: Sequence[Time]) -> None:
        marks = self._marks(times)
        span = self._all_on_time(times, marks)
        if span is None:
            super().on_notify_several(ctx, times)
            return
        self._records.drop(times)
        ctx.spans.append(span)
        for time in times:
            ctx.time = time
            self._raise(ctx, time, marks.pop(0))

    def _all_on_time(self, times: Sequence[Time], marks: Sequence[int | None]) -> Span | None:
        """Rows of times with their windows, if each is in one window and none is late.

        None otherwise. `marks` are the watermarks.
        """
        if self._length != self._every:
            return None
        try:
            span = self._records.span(times)
            if span is None:
                return None
            at = event_times(span, self._column, self._instants).to_numpy()
        except (*REFUSALS, OverflowError):
            return None
        start = at // self._every * self._every
        mark_of = dict(zip(times, marks, strict=True))
        known = [-FAR if (mark := mark_of[time]) is None else mark for time in span.times]
        earliest = np.minimum.reduceat(start, [0, *span.ends[:-1]])  # of each time, which has some rows
        if (earliest + self._length <= known).any():
            return None
        return span.beside(self._as_column(series_of(START, start), span))

    def _part(self, batch: Batch, watermark: Any) -> tuple[Batch, Batch]:
        frame = as_polars(batch)
        times = event_times(frame, self._column, self._instants).to_numpy()
        newest = times // self._every * self._every
        late = None
        parts = []
        for back in range(ceil(self._length / self._every)):
            start = newest - back * self._every if back else newest
            end = start + self._length
            holds = end > times
            if watermark is not None:
                closed = end <= watermark
                if closed.any():
                    missed = holds & closed
                    late = missed if late is None else late | missed
                    holds &= ~closed
            if holds.all():
                parts.append(_beside(frame, self._as_column(series_of(START, start), frame)))
            elif holds.any():
                timed = _beside(frame, self._as_column(series_of(START, start), frame))
                parts.append(as_polars(divide(timed, series_of("", holds))[0]))
        on_time: Batch = pl.concat(parts) if len(parts) > 1 else parts[0] if parts else []
        return on_time, [] if late is None else divide(frame, series_of("", late))[0]


def _beside(frame: pl.DataFrame, *columns: pl.Series) -> pl.DataFrame:
    """Frame with added columns.

    It is made without a plan of Polars, which is costly for few rows.
    """
    return frame.hstack(list(columns)) if columns else frame


class Windowing(Grouping):
    """Base of windows over columns: port 0 takes rows with `START`, port 1 watermarks.

    Emits Arrow tables when windows close: the keys, start, end, then the aggregates. The rest comes when the input has ended.
    """

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, Aggregate], combined: bool) -> None:
        super().__init__(keys, aggregates, combined)
        self._watermarks = TimedValues()

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        if port == 0:
            super().on_batch(ctx, port, time, batch)
            ctx.notify_at(END)
        else:
            self._watermarks.at(time)[_MARK] = batch[0]
            ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        tables = self._pending.pop(time)
        try:
            if tables:
                self._keep(time, tables)
            self._close_at(ctx, time, time)
        except REFUSALS as error:
            raise refused(ctx, time, error, tables[0] if tables else []) from error

    def _close_at(self, ctx: Context, time: Time, upto: Time) -> None:
        """Send the windows closing at `time`; all windows up to `upto` are known."""
        reached = self._watermarks.pop(time)
        if time == END or reached:
            closed = self._close(upto, None if time == END else reached[_MARK])
            if closed is not None:
                ctx.send(self._results(*closed))

    def _keep(self, time: Time, tables: list[Batch]) -> None:
        """Add the rows held for a time to their windows."""
        raise NotImplementedError

    def _close(self, time: Time, watermark: int | None) -> tuple[Mapping[str, pa.Array], Numbers] | None:
        """Take out the windows ending by `watermark` (None: all).

        Returns columns by name, and ends; None if there are no such windows.
        """
        raise NotImplementedError

    def _results(self, columns: Mapping[str, pa.Array], ends: Numbers) -> pa.Table:
        found = self._finish(columns)
        start = whole(found[START])
        keys = [key for key in self._keys if key != START]
        results = [name for name in self._aggregates if name not in HIDDEN]
        made = [*(found[key] for key in keys), start, column_of(ends, start.type), *(found[name] for name in results)]
        return pa.Table.from_arrays([whole(column) for column in made], [*keys, "start", "end", *results])


class ColumnWindows(Windowing):
    """Aggregates for each key and window.

    Args:
        keys: the key columns, none for one result a window. Input must be exchanged by `START` and them.
        aggregates: output column → aggregate.
        length: of a window.
        combined: whether rows come from `PreAggregate` where there are several workers.
    """

    def __init__(
        self, keys: Sequence[str], aggregates: Mapping[str, Aggregate], length: int, combined: bool = False
    ) -> None:
        super().__init__([START, *keys], aggregates, combined)
        self._length = length
        self._open = OpenTables(lambda tables: self._as_table([self._of_partial(table) for table in tables]))
        self.spans = True
        self.state = Parts(self._pending, self._watermarks, self._open)

    def on_span(self, ctx: Context, port: int, span: Span) -> None:
        if not self._hold(ctx, span):
            super().on_span(ctx, port, span)
        ctx.notify_at(END)

    def on_notify_several(self, ctx: Context, times: Sequence[Time]) -> None:
        """Handle several complete times in one pass.

        Rows that are on time at one of `times` are of windows that none of those before closes.
        """
        try:
            span = self._pending.span(times)
            rows = None if span is None else self._reading.rows(span.frame)
        except TypeError:  # partial tables, or other columns
            super().on_notify_several(ctx, times)
            return
        self._pending.drop(times)
        upto = times[-1]
        try:
            if rows is not None:
                self._keep(upto, [rows if len(rows) < TINY else self._partial(as_arrow(rows))])
            for ctx.time in times:
                self._close_at(ctx, ctx.time, upto)
        except REFUSALS as error:
            raise refused(ctx, times[0], error, [] if span is None else span.frame) from error

    def _keep(self, time: Time, tables: list[Batch]) -> None:
        self._open.add(time, _by_start(self._united(tables)))

    def _close(self, time: Time, watermark: int | None) -> tuple[Mapping[str, pa.Array], Numbers] | None:
        closing = {start for start in self._open.starts() if watermark is None or start + self._length <= watermark}
        if not closing:
            return None
        columns = self._summed([self._of_partial(table) for table in self._open.take(time, closing)])
        return columns, numbers(whole(columns[START])) + self._length


def _by_start(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Split a table by window start."""
    starts = numbers(whole(table[START]))
    different = distinct(starts)
    for start in different.tolist():
        yield start, table if len(different) == 1 else table.filter(pa.array(starts == start))


class ColumnEpochs(Grouping):
    """Aggregates for each key and window of epochs.

    Emits Arrow tables at the last epoch of a window: the keys, start, end, then the aggregates.

    Args:
        keys: the key columns, one or more. Input must be exchanged by them.
        aggregates: output column → aggregate.
        shape: says how many epochs a window has. What comes after every epoch has a window of its own.
        combined: whether rows come from `PreAggregate` where there are several workers.
    """

    def __init__(
        self, keys: Sequence[str], aggregates: Mapping[str, Aggregate], shape: Epochs, combined: bool = False
    ) -> None:
        super().__init__(keys, aggregates, combined)
        self._shape = shape
        self._open = OpenTables(lambda tables: self._as_table([self._of_partial(table) for table in tables]))
        self.state = Parts(self._pending, self._open)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        super().on_batch(ctx, port, time, batch)
        if time != END:
            ctx.notify_at((self._shape.around(time)[1] - 1,))

    def on_notify(self, ctx: Context, time: Time) -> None:
        tables = self._pending.pop(time)
        start, end = span = self._shape.around(time)
        try:
            if time == END or end == time[0] + 1:
                rows = [*self._rows(tables), *(self._of_partial(table) for table in self._open.take(time, {start}))]
                if rows:
                    ctx.send(self._results(self._summed(rows), span))
            elif tables:
                self._open.add(time, [(start, self._united(tables))])
        except REFUSALS as error:
            raise refused(ctx, time, error, tables[0] if tables else []) from error

    def _results(self, columns: Mapping[str, pa.Array], span: Bounds) -> pa.Table:
        found = self._finish(columns)
        bounds = {name: pa.array(np.full(len(found), at)) for name, at in zip(("start", "end"), span, strict=True)}
        keys = {key: found[key] for key in self._keys}
        return pa.table({**keys, **bounds, **{name: found[name] for name in self._aggregates}})
