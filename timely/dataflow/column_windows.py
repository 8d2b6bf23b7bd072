"""Windows over columns: `columns.window(Tumbling(60), time="at")` and what can be asked of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

import polars as pl

from timely.dataflow import schemas, verbs
from timely.dataflow.stream import Stream, view
from timely.dataflow.windows import add_judge, check_at_root, check_lateness
from timely.errors import GraphError, user_site
from timely.operators.agg import Aggregate
from timely.operators.aggregate import PreAggregate, check_aggregate, refuse_values
from timely.operators.base import Operator
from timely.operators.channels import Exchange
from timely.operators.column_sessions import ColumnSessions, PreSessions
from timely.operators.column_windows import (
    AT,
    START,
    ColumnLateness,
    ColumnOnTime,
    ColumnTimes,
    ColumnWindows,
    check_type,
)
from timely.operators.watermark import LATE, ON_TIME, WATERMARKS
from timely.operators.window_shapes import Epochs, Length, Session, Sliding, Tumbling

if TYPE_CHECKING:
    from timely.dataflow.columns import Columns

ALL = "all()"
"""A column that is the same in all rows."""

_MICROSECOND = dt.timedelta(microseconds=1)


class WindowedColumns:
    """A stream of columns cut into windows of event time: what `Columns.window` returns.

    `agg` gives a row for each window that is not empty, or, after `group_by`, for each key in it, when the window closes: the
    keys, `start`, `end`, and the aggregates. When windows close, and which rows are late for them, is as for records
    (`Windowed`): by the greatest event time of the epochs that are complete, minus `lateness`. When the input ends, all close.
    """

    def __init__(
        self,
        columns: Columns,
        shape: Tumbling | Sliding | Session,
        time: str,
        lateness: Length | None,
        name: str | None,
    ) -> None:
        if isinstance(shape, Epochs):
            raise GraphError(
                f"{user_site()}: windows of columns are Tumbling, Sliding or Session; for {shape} turn the rows into pairs "
                "first: key_by(column).window(...)"
            )
        if not isinstance(shape, Tumbling | Sliding | Session):
            raise GraphError(f"{user_site()}: window() of columns takes Tumbling, Sliding or Session, not {shape!r}")
        if not isinstance(time, str):
            raise GraphError(f"{user_site()}: window(time=...) of columns takes the name of a column, not {time!r}")
        check_at_root(columns)
        instants = isinstance(shape.length, dt.timedelta)
        length, every = (
            whole_length(shape.length),
            whole_length(shape.every if isinstance(shape, Sliding) else shape.length),
        )
        allowed = whole_length(check_lateness(lateness, instants))
        judge: Callable[[], Operator] = lambda: ColumnLateness(time, length, every, instants, allowed)  # noqa: E731
        if isinstance(shape, Session):
            judge = lambda: ColumnOnTime(time, instants, allowed, [AT, START])  # noqa: E731
        schemas.check_columns("window", [time], columns.schema)
        if columns.schema is not None:
            check_time("window", time, columns.schema[time], instants)
        self._time = time
        self._instants = instants
        self._columns = columns
        self._length = length
        self._sessions = isinstance(shape, Session)
        self._keys: tuple[str, ...] = ()
        self._name = name if name is not None else columns.graph.fresh_name("window")
        self._judge = add_judge(
            columns,
            self._name,
            lambda: ColumnTimes(time, instants),
            judge,
            verbs=(verbs.Times(time), None if self._sessions else verbs.Windows(time, length, every, allowed)),
        )

    def late(self) -> Columns:
        """The rows that came too late for one of their windows or more, each once, at its own epoch."""
        return self._columns._of(self._judge, LATE, self._columns.schema)

    def group_by(self, *keys: str) -> WindowedColumns:
        """The same windows, with a result for each key."""
        if not keys or not all(isinstance(key, str) for key in keys):
            raise GraphError(f"{user_site()}: group_by in windows takes names of columns, not {keys!r}")
        schemas.check_columns("group_by in windows", keys, self._columns.schema)
        grouped = copy(self)
        grouped._keys = keys
        return grouped

    def agg(self, *exprs: Any, name: str | None = None, **aggregates: Aggregate) -> Columns:
        """The aggregates of `timely.operators.agg` for each window, and each key in it."""
        for given in (*exprs, *aggregates.values()):
            if not isinstance(given, Aggregate) or exprs:
                raise GraphError(
                    f"{user_site()}: agg in windows takes name=agg.count(), name=agg.sum(column), ..., not {given!r}"
                )
        columns = self._columns
        check_aggregate((*self._keys, "start", "end"), aggregates)
        if self._sessions:
            refuse_values(aggregates, "in sessions, which may come to be one: count in windows of a fixed length")
        schema = schemas.windowed(self._keys, aggregates, self._time, self._instants, columns.schema)
        rows = columns._of(self._judge, ON_TIME)
        if not self._sessions:
            keys = (START, *self._keys)
            factory: Callable[[], Operator] = lambda: ColumnWindows(self._keys, aggregates, self._length, combined=True)  # noqa: E731
            combine = PreAggregate(keys, aggregates)
        else:
            keys = self._keys or (ALL,)
            rows = rows if self._keys else rows._marked()
            factory = lambda: ColumnSessions(keys, aggregates, self._length, combined=True)  # noqa: E731
            combine = PreSessions(keys, aggregates, self._length)
        node = columns.graph.add_node(
            "window",
            columns.scope,
            name if name is not None else columns.graph.fresh_name(f"{self._name}-agg"),
            factory=factory,
            inputs=2,
            notifies=True,
            stateful=True,
            verb=None if self._sessions else verbs.WindowTotals(self._keys, aggregates, self._length),
        )
        rows._connect(node, 0, Exchange(columns=keys, combine=combine.apply))
        columns._of(self._judge, WATERMARKS)._connect(node, 1)
        found = columns._of(node, schema=schema)
        return found._choose("drop", pl.all().exclude(ALL)) if ALL in keys else found


def split_late(
    columns: Columns, time: str, lateness: Length | None, name: str | None
) -> tuple[Columns, Columns, Stream]:
    """The rows on time, the late ones, and the watermarks: see `Columns.split_late`."""
    if not isinstance(time, str):
        raise GraphError(f"{user_site()}: split_late(time) takes the name of a column, not {time!r}")
    check_at_root(columns, "split_late")
    schemas.check_columns("split_late", [time], columns.schema)
    kind = None if columns.schema is None else columns.schema[time]
    instants = isinstance(lateness, dt.timedelta)
    if lateness is None:
        if kind is None:
            raise GraphError(
                f"{user_site()}: split_late: the type of {time!r} is not known here; say lateness=0, or a timedelta"
            )
        instants = not kind.is_integer()
    allowed = whole_length(check_lateness(lateness, instants))
    if kind is not None:
        check_time("split_late", time, kind, instants)
    judge = add_judge(
        columns,
        name if name is not None else columns.graph.fresh_name("split_late"),
        lambda: ColumnTimes(time, instants),
        lambda: ColumnOnTime(time, instants, allowed),
    )
    on_time, late = (columns._of(judge, port, columns.schema) for port in (ON_TIME, LATE))
    return on_time, late, view(columns._of(judge, WATERMARKS), Stream)


def check_time(verb: str, time: str, kind: Any, instants: bool) -> None:
    """Refuse a column of event times whose type is not that of the lengths."""
    try:
        check_type(time, kind, instants)
    except TypeError as error:
        raise GraphError(f"{user_site()}: {verb}: {error}") from error


def whole_length(length: Length) -> int:
    """A length as an integer: of microseconds, where it is a timedelta."""
    if isinstance(length, dt.timedelta):
        return length // _MICROSECOND
    if length != int(length):
        raise GraphError(f"{user_site()}: windows of columns have whole numbers as lengths, not {length!r}")
    return int(length)
