"""Interval joins over columns: the operators behind `Columnsolumns.join_interval`."""

from __future__ import annotations

import datetime as dt

from libraries.columns.operators.interval_join import IntervalJoin
from libraries.columns.operators.windows import AT, ColumnOnTime, ColumnTimes
from libraries.columns.schemas import inference as schemas
from libraries.columns.verbs.stateless import C
from libraries.columns.verbs.windows import check_time, whole_length
from timely.dataflow.windows import add_judge, check_lateness
from timely.dataflow.wire import check_at_root
from timely.errors import GraphError, user_site
from timely.operators.channels import Exchange
from timely.operators.watermark import LATE, ON_TIME, WATERMARKS
from timely.operators.window_shapes import Length


def interval_join(
    left: C,
    right: C,
    on: str,
    keys: tuple[str, ...],
    lower: Length,
    upper: Length,
    lateness: Length | None,
    name: str | None,
) -> tuple[C, C, C]:
    """Joined pairs, and the late rows of either side."""
    check_at_root(left, "join_interval() counts epochs and event time")
    instants = isinstance(lower, dt.timedelta)
    if isinstance(upper, dt.timedelta) != instants or not lower <= upper:  # type: ignore[operator]
        raise GraphError(
            f"{user_site()}: join_interval has two bounds of one kind, lower <= upper, not {lower!r} and {upper!r}"
        )
    for side in (left, right):
        schemas.check_columns("join_interval", [on], side.schema)
        if side.schema is not None:
            check_time("join_interval", on, side.schema[on], instants)
    schema = schemas.joined("inner", keys, left.schema, right.schema)
    allowed = whole_length(check_lateness(lateness, instants))
    low, high = whole_length(lower), whole_length(upper)
    chosen = name if name is not None else left.graph.fresh_name("join_interval")
    judges = [
        add_judge(
            side,
            f"{chosen}-{which}",
            lambda: ColumnTimes(on, instants),
            lambda: ColumnOnTime(on, instants, allowed, [AT]),
        )
        for side, which in ((left, "left"), (right, "right"))
    ]
    node = left.graph.add_node(
        "join_interval",
        left.scope,
        chosen,
        factory=lambda: IntervalJoin(keys, low, high),
        inputs=4,
        notifies=True,
        stateful=True,
    )
    for number, judge in enumerate(judges):
        left._of(judge, ON_TIME)._connect(node, number, Exchange(columns=keys))
        left._of(judge, WATERMARKS)._connect(node, 2 + number)
    late, late_right = (left._of(judges[n], LATE, side.schema) for n, side in enumerate((left, right)))
    return left._of(node, schema=schema), late, late_right
