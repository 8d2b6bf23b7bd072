"""Windows over columns: `columns.window(Tumbling(60), time="at")` and what can be asked of them."""

from __future__ import annotations

import datetime as dt
from copy import copy
from typing import TYPE_CHECKING, Any

from timely.dataflow import schemas
from timely.dataflow.windows import add_judge, check_at_root, check_lateness
from timely.errors import GraphError, user_site
from timely.operators.agg import Aggregate
from timely.operators.aggregate import PreAggregate, check_aggregate
from timely.operators.channels import Exchange
from timely.operators.column_windows import START, ColumnLateness, ColumnTimes, ColumnWindows, check_type
from timely.operators.watermark import LATE, ON_TIME, WATERMARKS
from timely.operators.window_shapes import Epochs, Length, Session, Sliding, Tumbling

if TYPE_CHECKING:
    from timely.dataflow.columns import Columns

_MICROSECOND = dt.timedelta(microseconds=1)


class WindowedColumns:
    """A stream of columns cut into windows of event time: what `Columns.window` returns.

    `agg` gives a row for each window that is not empty, or, after `group_by`, for each key in it, when the window closes: the
    keys, `start`, `end`, and the aggregates. When windows close, and which rows are late for them, is as for records
    (`Windowed`): by the greatest event time of the epochs that are complete, minus `lateness`. When the input ends, all close.
    """

    def __init__(
        self, columns: Columns, shape: Tumbling | Sliding, time: str, lateness: Length | None, name: str | None
    ) -> None:
        if isinstance(shape, Session | Epochs):
            raise GraphError(
                f"{user_site()}: windows of columns are Tumbling or Sliding; for {shape} turn the rows into pairs first: "
                "key_by(column).window(...)"
            )
        if not isinstance(shape, Tumbling | Sliding):
            raise GraphError(f"{user_site()}: window() of columns takes Tumbling or Sliding, not {shape!r}")
        if not isinstance(time, str):
            raise GraphError(f"{user_site()}: window(time=...) of columns takes the name of a column, not {time!r}")
        check_at_root(columns)
        instants = isinstance(shape.length, dt.timedelta)
        length, every = (
            whole_length(shape.length),
            whole_length(shape.every if isinstance(shape, Sliding) else shape.length),
        )
        allowed = whole_length(check_lateness(lateness, instants))
        schemas.check_columns("window", [time], columns.schema)
        if columns.schema is not None:
            check_time("window", time, columns.schema[time], instants)
        self._time = time
        self._instants = instants
        self._columns = columns
        self._length = length
        self._keys: tuple[str, ...] = ()
        self._name = name if name is not None else columns.graph.fresh_name("window")
        self._judge = add_judge(
            columns,
            self._name,
            lambda: ColumnTimes(time, instants),
            lambda: ColumnLateness(time, length, every, instants, allowed),
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
        columns, keys = self._columns, (START, *self._keys)
        check_aggregate((*self._keys, "start", "end"), aggregates)
        schema = schemas.windowed(self._keys, aggregates, self._time, self._instants, columns.schema)
        node = columns.graph.add_node(
            "window",
            columns.scope,
            name if name is not None else columns.graph.fresh_name(f"{self._name}-agg"),
            factory=lambda: ColumnWindows(keys[1:], aggregates, self._length, combined=True),
            inputs=2,
            notifies=True,
            stateful=True,
        )
        combine = PreAggregate(keys, aggregates).apply
        columns._of(self._judge, ON_TIME)._connect(node, 0, Exchange(columns=keys, combine=combine))
        columns._of(self._judge, WATERMARKS)._connect(node, 1)
        return columns._of(node, schema=schema)


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
