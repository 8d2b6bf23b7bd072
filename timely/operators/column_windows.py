"""Windows of event time over columns: which rows are late, and totals for each key and window, by integer arithmetic.

Event times are integers, or instants, which count as microseconds since 1970. A worker judges its own rows, against the
watermark that all workers agree on (`timely.operators.watermark`), puts each into its windows, and adds them up by window and
key before they travel. So what travels, and what open windows hold, is partial tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from timely.data.batch import Batch, as_polars
from timely.data.kernels.columns import column_of, numbers, whole
from timely.data.kernels.totals import combine, grouped
from timely.operators.agg import Aggregate
from timely.operators.aggregate import REFUSALS, Grouping, by_name, refused
from timely.operators.base import Context
from timely.operators.stateless import operator_error
from timely.operators.watermark import EventTimes, Lateness
from timely.operators.windows import END
from timely.state import KeyedState, Parts, TimedValues
from timely.time import Time

START = "start()"
"""The column of the start of a row's window."""

_DAY = 86_400_000_000
_FAR = 1 << 61
_ROOT: Time = (0,)
_MARK = "watermark"


def event_times(frame: pl.DataFrame, column: str, instants: bool) -> pl.Series:
    """The event times of rows as 64-bit integers.

    Raises:
        TypeError: if they are of the wrong type. ValueError: for nulls, and what is too far away to be added to. KeyError: if
            there is no such column.
    """
    if column not in frame.columns:
        raise KeyError(f"no column {column!r} with event times; this batch has {', '.join(map(repr, frame.columns))}")
    found = frame[column]
    kind = found.dtype
    check_type(column, kind, instants)
    if found.null_count():
        raise ValueError(f"null is no event time: filter rows without {column!r} out before window()")
    times = found.to_physical().cast(pl.Int64)
    unit = kind.time_unit if isinstance(kind, pl.Datetime) else "us"
    factor = _DAY if isinstance(kind, pl.Date) else 1000 if unit == "ms" else 1
    reach = _FAR // factor
    if not times.is_between(-reach, reach).all():
        raise ValueError(f"an event time in {column!r} is too far from 0")
    return times // 1000 if unit == "ns" else times * factor


def check_type(column: str, kind: pl.DataType, instants: bool) -> None:
    """Raise TypeError if event times are of a type that does not go with the lengths of windows."""
    if not (isinstance(kind, pl.Datetime | pl.Date) if instants else kind.is_integer()):
        lengths = "are timedeltas" if instants else "are numbers"
        wanted = "a column of datetimes or dates" if instants else "a column of integers; for datetimes say timedeltas"
        raise TypeError(f"the lengths of the windows {lengths}, so time= is {wanted}, and {column!r} is of type {kind}")


class ColumnTimes(EventTimes):
    """Port 0: the rows as they are. Port 1: the greatest event time of each epoch."""

    def __init__(self, column: str, instants: bool) -> None:
        super().__init__()
        self._column = column
        self._instants = instants

    def _stamped(self, ctx: Context, batch: Batch) -> tuple[Batch, Any]:
        try:
            return batch, int(event_times(as_polars(batch), self._column, self._instants).max())  # type: ignore[arg-type]
        except (*REFUSALS, OverflowError) as error:
            raise operator_error(f"the event time of {ctx.name!r}", ctx.site, ctx.time, error, None, batch) from error


class ColumnLateness(Lateness):
    """Holds the rows of an epoch until it is complete, and then puts each into those of its windows that are open.

    Out go the rows with the start of a window, once for each window; the rows of which a window has closed, as they came; and
    the watermark whenever it moves.
    """

    def __init__(self, column: str, length: int, every: int, instants: bool, allowed: int) -> None:
        super().__init__(allowed)
        self._column = column
        self._length = length
        self._every = every
        self._instants = instants

    def _part(self, batch: Batch, watermark: Any) -> tuple[Batch, Batch]:
        frame = as_polars(batch)
        times = event_times(frame, self._column, self._instants)
        newest = times // self._every * self._every
        late = pl.repeat(False, len(frame), eager=True)
        parts = []
        for back in range(ceil(self._length / self._every)):
            start = newest - back * self._every
            holds = start + self._length > times
            if watermark is not None:
                closed = start + self._length <= watermark
                late |= holds & closed
                holds &= ~closed
            if holds.any():
                parts.append(frame.with_columns(self._as_column(start, frame)).filter(holds))
        on_time: Batch = pl.concat(parts) if parts else []
        return on_time, frame.filter(late) if late.any() else []

    def _as_column(self, start: pl.Series, frame: pl.DataFrame) -> pl.Series:
        """Starts of windows in the type in which they come out."""
        kind = frame.schema[self._column]
        if self._instants:
            start = start.cast(pl.Datetime("us", kind.time_zone if isinstance(kind, pl.Datetime) else None))
        return start.alias(START)


class ColumnWindows(Grouping):
    """Aggregates for each key and window. Port 0 takes rows with the start of a window, port 1 the watermarks.

    Emits Arrow tables when windows close: the keys, start, end, then the aggregates. The rest comes when the input has ended.

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
        self._watermarks = TimedValues()
        self._open = KeyedState()
        """(start, number) → a partial table: those of a window are each more than twice as long as the next."""
        self.state = Parts(self._pending, self._watermarks, self._open)

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
                self._keep(time, combine(self._rows(tables), self._keys, self._parts))
            closed = [table for mark in self._watermarks.pop(time).values() for table in self._close(time, mark)]
            if time == END:
                closed += self._close(time, None)
            if closed:
                ctx.send(self._results(closed))
        except REFUSALS as error:
            raise refused(ctx, time, error, tables[0] if tables else []) from error

    def _keep(self, time: Time, table: pa.Table) -> None:
        """Add the partial table of a time to the windows that it is of."""
        held = self._open.read(_ROOT)
        numbered: dict[int, list[int]] = {}
        for start, number in held:
            numbered.setdefault(start, []).append(number)
        new: dict[Any, pa.Table] = {}
        joined: list[tuple[int, int]] = []
        for start, part in _by_start(table):
            there = sorted(numbered.get(start, ()))
            while there and len(held[start, there[-1]]) <= 2 * len(part):
                slot = start, there.pop()
                part = combine([self._grouped(held[slot]), self._grouped(part)], self._keys, self._parts)
                joined.append(slot)
            new[start, there[-1] + 1 if there else 0] = part
        self._open.remove(time, [slot for slot in joined if slot not in new])
        self._open.write(time, new)

    def _close(self, time: Time, watermark: int | None) -> list[pa.Table]:
        """Take out the windows that end by `watermark` (None: all), in order."""
        held = self._open.read(_ROOT)
        closing = sorted(slot for slot in held if watermark is None or slot[0] + self._length <= watermark)
        tables = [held[slot] for slot in closing]
        self._open.remove(time, closing)
        return tables

    def _results(self, tables: list[pa.Table]) -> pa.Table:
        found = self._finish(by_name(combine([self._grouped(table) for table in tables], self._keys, self._parts)))
        start = whole(found[START])
        end = column_of(numbers(start) + self._length, start.type)
        keys, results = self._keys[1:], list(self._aggregates)
        columns = [*(found[key] for key in keys), start, end, *(found[name] for name in results)]
        return pa.Table.from_arrays([whole(column) for column in columns], [*keys, "start", "end", *results])

    def _grouped(self, table: pa.Table) -> Any:
        return grouped(table, self._keys, self._parts)


def _by_start(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each window by itself."""
    starts = numbers(whole(table[START]))
    different = np.unique(starts)
    for start in different.tolist():
        yield start, table if len(different) == 1 else table.filter(pa.array(starts == start))
