"""Event-time windows as queries.

The watermark is a table, with a row for each epoch: the greatest event time up to there. Rows are late by that of the epoch
before theirs, and a window closes at the first epoch that has come far enough, or when all input has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

import polars as pl

from libraries.columns.agg import Aggregate
from libraries.columns.operators.windows import FAR, START
from libraries.spark.engine.totals import Added, Continued, finished, raised, totals
from libraries.spark.engine.types import EPOCH, instant, listed, microseconds, quoted
from timely.time import INF

_EPOCH = quoted(EPOCH)
_MARK = "`mark()`"
"""Column of a watermark, or of event times that raise it."""
_BEFORE, _BACK, _AT, _END = "`before()`", "`back()`", "`at()`", "`end()`"

BATCH = "micro_batch"
"""One-row view about a micro-batch: its epoch `number`, and the flag `ended`.

Then all input has ended before it.
"""

_DAY = 86_400_000_000


def event_time(column: str, schema: pl.Schema, where: str) -> str:
    """Event time of a row as an integer; fails for nulls and values too far from 0."""
    kind, name = schema[column], quoted(column)
    factor = _DAY if kind == pl.Date else 1
    if kind == pl.Date:
        at = f"bigint(unix_date({name}))"
    else:
        at = microseconds(name) if isinstance(kind, pl.Datetime) else f"bigint({name})"
    null = raised(f"{where} failed: null is no event time: filter rows without {column!r} out before window()")
    far = raised(f"{where} failed: an event time in {column!r} is too far from 0")
    return (
        f"(case when {name} is null then bigint({null}) when {at} not between -{FAR // factor}L and {FAR // factor}L "
        f"then bigint({far}) else {at} * {factor}L end)"
    )


def greatest(view: str, column: str, schema: pl.Schema, where: str) -> str:
    """Query for the greatest event time of each epoch."""
    return f"select {_EPOCH}, max({event_time(column, schema, where)}) as {_MARK} from {view} group by {_EPOCH}"


def watermarks(marks: str, allowed: int) -> str:
    """Query for the watermark after each epoch, and `before` it."""
    reached = f"max({_MARK}) over (order by {_EPOCH}) - {allowed}L"
    before = f"lag({_MARK}) over (order by {_EPOCH}) as {_BEFORE}"
    return f"select *, {before} from (select {_EPOCH}, {reached} as {_MARK} from {marks})"


def watermarks_continued(marks: str, state: str, allowed: int) -> Continued:
    """Watermark queries for a micro-batch, with the greatest event time before it."""
    before = f"(select max({_MARK}) from {state})"
    reached = f"greatest({_MARK}, {before}) - {allowed}L"
    return Continued(
        f"select {_EPOCH}, {reached} as {_MARK}, {before} - {allowed}L as {_BEFORE} from {marks}",
        f"select max({_MARK}) as {_MARK} from (select {_MARK} from {marks} union all select {_MARK} from {state})",
        f"select {_MARK} from {marks} where false",
    )


class Judged:
    """Queries for on-time and late rows, by the watermark before their epoch."""

    def __init__(
        self, rows: str, marks: str, schema: pl.Schema, column: str, length: int, every: int, where: str
    ) -> None:
        at = event_time(column, schema, where)
        self._rows = (
            f"(select r.*, {_AT}, {_BEFORE} from (select *, {at} as {_AT} from {rows}) r "
            f"join {marks} m on r.{_EPOCH} = m.{_EPOCH})"
        )
        self._columns = listed(_EPOCH, *map(quoted, schema))
        self._start = f"{_AT} - pmod({_AT}, {every}L) - {_BACK} * {every}L"
        self._length = length
        self._backs = f"sequence(0L, {ceil(length / every) - 1}L)"

    def on_time(self, kind: pl.DataType) -> str:
        """Query for rows on time, once for each open window, with its start.

        The start is a column of type `kind`.
        """
        start = instant(self._start, kind) if isinstance(kind, pl.Datetime) else f"bigint({self._start})"
        end = f"{self._start} + {self._length}L"
        return (
            f"select {self._columns}, {start} as {quoted(START)} from {self._rows} "
            f"lateral view explode({self._backs}) b as {_BACK} where {end} > {_AT} and ({_BEFORE} is null or {end} > {_BEFORE})"
        )

    def late(self) -> str:
        """Query for rows with a closed window."""
        end = f"{self._start} + {self._length}L"
        return (
            f"select {self._columns} from {self._rows} "
            f"where exists({self._backs}, {_BACK} -> {end} > {_AT} and {end} <= {_BEFORE})"
        )


def window_type(kind: pl.DataType) -> pl.DataType:
    """The type of a window's start and end, for event times of a type."""
    if isinstance(kind, pl.Datetime | pl.Date):
        return pl.Datetime("us", kind.time_zone if isinstance(kind, pl.Datetime) else None)
    return pl.Int64()


def windows(
    rows: str,
    marks: str,
    schema: pl.Schema,
    keys: Sequence[str],
    aggregates: Mapping[str, Aggregate],
    length: int,
    where: str,
) -> str:
    """Query for aggregates by window and key, at the epoch of the window's close."""
    kind, start = schema[START], quoted(START)
    added = totals(rows, schema, [START, *keys], aggregates, False, where, by_epoch=False)
    of_start = microseconds(start) if isinstance(kind, pl.Datetime) else start
    end = f"({of_start} + {length}L)"
    closing = (
        f"select s.*, coalesce(m.{_EPOCH}, {INF}L) as {_EPOCH} from (select *, {end} as {_END} from "
        f"(select distinct {start} from {rows})) s left join {marks} m on m.{_MARK} >= {_END} and "
        f"(m.{_BEFORE} is null or m.{_BEFORE} < {_END})"
    )
    ends = instant(_END, kind) if isinstance(kind, pl.Datetime) else _END
    columns = listed(
        f"c.{_EPOCH}",
        *(f"t.{quoted(key)}" for key in keys),
        f"t.{start} as start",
        f"{ends} as end",
        *(f"t.{quoted(name)}" for name in aggregates),
    )
    return f"select {columns} from ({added}) t join ({closing}) c on t.{start} = c.{start}"


def windows_continued(
    rows: str,
    marks: str,
    state: str,
    schema: pl.Schema,
    keys: Sequence[str],
    aggregates: Mapping[str, Aggregate],
    length: int,
    where: str,
) -> Continued:
    """Aggregates of windows over a micro-batch and earlier parts in view `state`.

    Windows that close come out, the others are kept.
    """
    added = Added(rows, state, schema, [START, *keys], aggregates)
    kind, start = schema[START], quoted(START)
    end = f"({microseconds(start) if isinstance(kind, pl.Datetime) else start} + {length}L)"
    closes = f"(coalesce({end} <= (select max({_MARK}) from {marks}), false) or (select ended from {BATCH}))"
    results = listed(
        f"(select number from {BATCH}) as {_EPOCH}",
        *map(quoted, keys),
        f"{start} as start",
        f"{instant(end, kind) if isinstance(kind, pl.Datetime) else end} as end",
        *(f"{finished(aggregate, added.parts, where)} as {quoted(name)}" for name, aggregate in aggregates.items()),
    )
    return Continued(
        f"select {results} from ({added.combined}) where {closes}",
        f"select * from ({added.combined}) where not {closes}",
        added.first,
    )
