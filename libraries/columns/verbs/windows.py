"""Windows over columns: `columns.window(Tumbling(60), time="at")` and its verbs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self

import polars as pl

from libraries.columns.agg import Aggregate
from libraries.columns.operators.aggregate import ALL, PreAggregate, check_aggregate
from libraries.columns.operators.sessions import ColumnSessions, PreSessions
from libraries.columns.operators.windows import (
    AT,
    START,
    ColumnEpochs,
    ColumnLateness,
    ColumnOnTime,
    ColumnTimes,
    ColumnWindows,
    check_type,
)
from libraries.columns.schemas import inference as schemas
from libraries.columns.schemas.keys import check_made, check_options, keys_of
from libraries.columns.verbs import descriptions as verbs
from libraries.columns.verbs.advice import OF_GROUPS
from libraries.columns.verbs.stateless import StatelessVerbs
from timely.data.kernels.expressions import compiled
from timely.dataflow.graph import Node
from timely.dataflow.windows import add_judge, check_lateness, check_no_event_time, no_row_is_late
from timely.dataflow.wire import check_at_root, no_attribute
from timely.errors import GraphError, user_site
from timely.operators.base import Operator
from timely.operators.channels import PIPELINE, Exchange
from timely.operators.watermark import LATE, ON_TIME, WATERMARKS
from timely.operators.window_shapes import Epochs, Length, Session, Sliding, Tumbling

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # that of Python 3.11 has no default

    Given = TypeVar("Given", bound=StatelessVerbs, default=Any)
else:
    from typing import TypeVar

    Given = TypeVar("Given", bound=StatelessVerbs)

_MICROSECOND = dt.timedelta(microseconds=1)


class WindowedColumns(Generic[Given]):
    """Columns cut into windows; see `Columns.window`.

    `agg` gives a row for each window that is not empty, or, after `group_by`, for each key in it, when the window closes: the
    keys, `start`, `end`, and the aggregates. When windows of event time close, and which rows are late for them, is as for
    records (`Windowed`): by the greatest event time of the epochs that are complete, minus `lateness`. When the input ends, all
    close. Windows of epochs close with their last epoch.
    """

    def __init__(
        self,
        columns: Given,
        shape: Tumbling | Sliding | Session | Epochs,
        time: str | None,
        lateness: Length | None,
        name: str | None,
    ) -> None:
        if not isinstance(shape, Tumbling | Sliding | Session | Epochs):
            raise GraphError(
                f"{user_site()}: window() of columns takes Tumbling, Sliding, Session or Epochs, not {shape!r}"
            )
        self._columns = columns
        self._shape = shape
        self._time = time
        self._keys: tuple[str, ...] = ()
        self._made: tuple[pl.Expr, ...] = ()
        self._name = name if name is not None else columns.graph.fresh_name("window")
        self._judge: Node | None = None
        self._instants = False
        if isinstance(shape, Epochs):
            check_no_event_time(shape, time, lateness)
            check_at_root(columns, "window() counts epochs and event time")
            return
        if not isinstance(time, str):
            raise GraphError(f"{user_site()}: window(time=...) of columns takes the name of a column, not {time!r}")
        check_at_root(columns, "window() counts epochs and event time")
        instants = self._instants = isinstance(shape.length, dt.timedelta)
        length, every = (
            whole_length(shape.length),
            whole_length(shape.every if isinstance(shape, Sliding) else shape.length),
        )
        allowed = whole_length(check_lateness(lateness, instants))
        judge: Callable[[], Operator] = lambda: ColumnLateness(time, length, every, instants, allowed)  # noqa: E731
        if isinstance(shape, Session):
            judge = lambda: ColumnOnTime(time, instants, allowed, [AT, START])  # noqa: E731
        check_time("window", time, columns, instants)
        of_rows = None if isinstance(shape, Session) else verbs.Windows(time, length, every, allowed)
        self._judge = add_judge(
            columns, self._name, lambda: ColumnTimes(time, instants), judge, verbs=(verbs.Times(time), of_rows)
        )

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute(self, name, OF_GROUPS)

    def late(self) -> Given:
        """Given too late for at least one of their windows, each once, at its own epoch.

        Raises:
            GraphError: the windows are of epochs, for which no row is late.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"at": [3, 8], "shop": ["n", "s"]}), pl.DataFrame({"at": [12, 17], "shop": ["n", "n"]})]
        >>> sales = flow.columns("sales", falkirk.Batches([*days, pl.DataFrame({"at": [5], "shop": ["s"]})]))
        >>> tens = sales.window(falkirk.Tumbling(10), time="at")
        >>> seen = tens.late().capture("out")
        >>> [(time, pl.DataFrame(batch).rows()) for time, batch in falkirk.run(flow).captured("out")]
        [((2,), [(5, 's')])]
        """
        if self._judge is None:
            raise no_row_is_late(self._shape)
        return self._columns._of(self._judge, LATE, self._columns.schema)

    def group_by(self, *keys: str | pl.Expr, **named: pl.Expr) -> Self:
        """The same windows, with a result for each key.

        Keys are columns, or expressions of a column each.

        Raises:
            GraphError: there is no key, or one that is neither a column that is there nor an expression of one column.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"at": [3, 8], "shop": ["n", "s"]}), pl.DataFrame({"at": [12, 17], "shop": ["n", "n"]})]
        >>> sales = flow.columns("sales", falkirk.Batches([*days, pl.DataFrame({"at": [5], "shop": ["s"]})]))
        >>> tens = sales.window(falkirk.Tumbling(10), time="at")
        >>> seen = tens.group_by("shop").agg(n=falkirk.agg.count()).capture("out")
        >>> [(time, sorted(pl.DataFrame(batch).rows())) for time, batch in falkirk.run(flow).captured("out")]
        [((1,), [('n', 0, 10, 1), ('s', 0, 10, 1)]), ((END,), [('n', 10, 20, 2)])]
        """
        names, made = keys_of("group_by in windows", keys, named, self._columns.schema)
        if not names:
            raise GraphError(
                f"{user_site()}: group_by in windows takes names of columns; for totals of all rows say agg(...) without it"
            )
        grouped = copy(self)
        grouped._keys, grouped._made = names, made
        return grouped

    def agg(self, *exprs: Any, name: str | None = None, **aggregates: Aggregate) -> Given:
        """The aggregates of `libraries.columns.agg` for each window, and each key in it.

        Raises:
            GraphError: there is nothing to compute, or a Polars expression; a column comes out twice, or is not there, or
                of a type that an aggregate does not take.

        >>> import polars as pl
        >>> flow = falkirk.Dataflow()
        >>> days = [pl.DataFrame({"at": [3, 8], "shop": ["n", "s"]}), pl.DataFrame({"at": [12, 17], "shop": ["n", "n"]})]
        >>> sales = flow.columns("sales", falkirk.Batches([*days, pl.DataFrame({"at": [5], "shop": ["s"]})]))
        >>> tens = sales.window(falkirk.Tumbling(10), time="at")
        >>> seen = tens.agg(n=falkirk.agg.count(), last=falkirk.agg.max("at")).capture("out")
        >>> [(time, pl.DataFrame(batch).rows()) for time, batch in falkirk.run(flow).captured("out")]
        [((1,), [(0, 10, 2, 8)]), ((END,), [(10, 20, 2, 17)])]
        """
        check_options("agg", name=name)
        if isinstance(aggregates.get("over"), str):
            raise GraphError(
                f"{user_site()}: agg() in windows has no option over=: a window is complete by itself, when the watermark "
                "passes its end"
            )
        for given in (*exprs, *aggregates.values()):
            if not isinstance(given, Aggregate) or exprs:
                raise GraphError(
                    f"{user_site()}: agg in windows takes name=agg.count(), name=agg.sum(column), ..., not {given!r}"
                )
        check_aggregate((*self._keys, "start", "end"), aggregates)
        check_made(self._made, aggregates.values())
        known = schemas.after("group_by in windows", self._keyed, self._columns.schema, self._made)
        schema = schemas.windowed(self._keys, aggregates, self._time, self._instants, known)
        chosen = name if name is not None else self._columns.graph.fresh_name(f"{self._name}-agg")
        if isinstance(self._shape, Epochs):
            return self._of_epochs(self._shape, aggregates, chosen, schema)
        return self._of_event_time(self._shape, aggregates, chosen, schema)

    def _of_epochs(
        self, shape: Epochs, aggregates: Mapping[str, Aggregate], name: str, schema: pl.Schema | None
    ) -> Given:
        keys = self._keys or (ALL,)
        rows = self._with_keys(self._columns)
        channel = Exchange(columns=keys, combine=PreAggregate(keys, aggregates).apply)
        factory: Callable[[], Operator] = lambda: ColumnEpochs(keys, aggregates, shape, combined=True)  # noqa: E731
        node = rows._attach("window", name, channel, factory=factory, notifies=True, stateful=True)
        return self._without_mark(rows._of(node, schema=schema), keys)

    def _of_event_time(
        self,
        shape: Tumbling | Sliding | Session,
        aggregates: Mapping[str, Aggregate],
        name: str,
        schema: pl.Schema | None,
    ) -> Given:
        columns, judge = self._columns, self._judge
        assert judge is not None
        rows = self._with_keys(columns._of(judge, ON_TIME), isinstance(shape, Session))
        length = whole_length(shape.length)
        if not isinstance(shape, Session):
            own, keys = self._keys, (START, *self._keys)
            factory: Callable[[], Operator] = lambda: ColumnWindows(own, aggregates, length, combined=True)  # noqa: E731
            combine = PreAggregate(keys, aggregates)
        else:
            keys = self._keys or (ALL,)
            factory = lambda: ColumnSessions(keys, aggregates, length, combined=True)  # noqa: E731
            combine = PreSessions(keys, aggregates, length)
        node = rows._attach(
            "window",
            name,
            Exchange(columns=keys, combine=combine.apply),
            others=[(columns._of(judge, WATERMARKS), PIPELINE)],
            factory=factory,
            notifies=True,
            stateful=True,
            verb=None if isinstance(shape, Session) else verbs.WindowTotals(self._keys, aggregates, length),
        )
        return self._without_mark(columns._of(node, schema=schema), keys)

    def _keyed(self, frame: Any) -> Any:
        return frame.with_columns(self._made)

    def _with_keys(self, rows: Given, marked: bool = True) -> Given:
        """Given with the computed keys, or, without a key, with a constant column."""
        if self._made:
            few = compiled("with_columns", self._made, {})
            return rows._plan("group_by", None, self._keyed, self._made, few)
        return rows._marked() if marked and not self._keys else rows

    def _without_mark(self, found: Given, keys: tuple[str, ...]) -> Given:
        return found._choose("drop", pl.all().exclude(ALL)) if ALL in keys else found


def split_late(columns: Given, time: str, lateness: Length | None, name: str | None) -> tuple[Given, Given, Given]:
    """The rows on time, the late ones, and the watermarks: see `Columns.split_late`."""
    if not isinstance(time, str):
        raise GraphError(f"{user_site()}: split_late(time) takes the name of a column, not {time!r}")
    check_at_root(columns, "split_late() counts epochs and event time")
    instants = isinstance(lateness, dt.timedelta)
    if lateness is None:
        if columns.schema is None:
            raise GraphError(
                f"{user_site()}: split_late: the type of {time!r} is not known here; say lateness=0, or a timedelta"
            )
        schemas.check_columns("split_late", [time], columns.schema)
        instants = not columns.schema[time].is_integer()
    check_time("split_late", time, columns, instants)
    judge = add_column_judge(
        columns, name if name is not None else columns.graph.fresh_name("split_late"), time, lateness, instants
    )
    on_time, late = (columns._of(judge, port, columns.schema) for port in (ON_TIME, LATE))
    return on_time, late, columns._of(judge, WATERMARKS)


def check_time(verb: str, time: str, columns: StatelessVerbs, instants: bool) -> None:
    """Refuse a missing column of event times, or one of another type than the lengths."""
    schemas.check_columns(verb, [time], columns.schema)
    try:
        if columns.schema is not None:
            check_type(time, columns.schema[time], instants)
    except TypeError as error:
        raise GraphError(f"{user_site()}: {verb}: {error}") from error


def add_column_judge(
    columns: StatelessVerbs, name: str, time: str, lateness: Length | None, instants: bool, add: Sequence[str] = ()
) -> Node:
    """Add the operators to split off late rows by the column `time`; see `add_judge`.

    Rows on time get the columns `add` (`ColumnOnTime`).
    """
    allowed = whole_length(check_lateness(lateness, instants))
    return add_judge(
        columns, name, lambda: ColumnTimes(time, instants), lambda: ColumnOnTime(time, instants, allowed, add)
    )


def whole_length(length: Length) -> int:
    """Length as an integer; timedeltas become microseconds."""
    if isinstance(length, dt.timedelta):
        return length // _MICROSECOND
    if length != int(length):
        raise GraphError(f"{user_site()}: windows of columns have whole numbers as lengths, not {length!r}")
    return int(length)
