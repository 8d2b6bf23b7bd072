"""Running totals of columns with a time to live by event time.

Operators behind `agg(..., ttl=60, time="at")`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import polars as pl

from libraries.columns.agg import Aggregate
from libraries.columns.operators.aggregate import PreAggregate
from libraries.columns.operators.expiring_aggregate import ExpiringAggregate, with_last
from libraries.columns.operators.windows import AT, ColumnOnTime, ColumnTimes
from libraries.columns.schemas import inference as schemas
from libraries.columns.verbs.stateless import C, StatelessVerbs
from libraries.columns.verbs.windows import check_time, whole_length
from timely.dataflow.windows import add_judge, check_lateness
from timely.errors import GraphError, user_site
from timely.operators.channels import Exchange
from timely.operators.watermark import ON_TIME, WATERMARKS
from timely.operators.window_shapes import Epochs, Length


def check_ttl(ttl: Any, time: Any, over: str, columns: StatelessVerbs, counted: str) -> None:
    """Refuse an invalid time to live, or one of a verb limited to one time.

    Args:
        counted: the meaning of a ttl of epochs, for the message.
        time: the column of event times, for a ttl that is a length of time; None: there may be none.
    """
    if time is not None and not isinstance(time, str):
        raise GraphError(f"{user_site()}: time= of a ttl takes the name of a column, not {time!r}")
    if isinstance(ttl, Epochs) and time is not None:
        raise GraphError(f"{user_site()}: ttl={ttl} counts epochs; with time= it is a length of time")
    if time is None and isinstance(ttl, int | dt.timedelta):
        raise GraphError(
            f"{user_site()}: ttl={ttl!r} is a length of event time: name its column, time=...; epochs are counted by "
            "ttl=Epochs(n)"
        )
    if not isinstance(ttl, Epochs | int | dt.timedelta):
        raise GraphError(f"{user_site()}: ttl=Epochs(n) counts {counted}; it is not {ttl!r}")
    if (isinstance(ttl, int) and ttl < 0) or (isinstance(ttl, dt.timedelta) and ttl < dt.timedelta(0)):
        raise GraphError(f"{user_site()}: a ttl is not negative, as {ttl!r} is")
    if over == "time" or columns.scope.depth != 1:
        raise GraphError(f"{user_site()}: ttl is for what runs on over all epochs: over='scope', outside of loops")


def expiring_totals(
    columns: C,
    kind: str,
    keys: tuple[str, ...],
    aggregates: Mapping[str, Aggregate],
    ttl: Length,
    time: str,
    name: str | None,
    schema: pl.Schema | None,
) -> C:
    """Running totals of keys with a row in the last `ttl` of event time."""
    verb = "agg" if kind == "aggregate" else kind
    instants = isinstance(ttl, dt.timedelta)
    schemas.check_columns(f"{verb}(time=...)", [time], columns.schema)
    if columns.schema is not None:
        check_time(verb, time, columns.schema[time], instants)
    allowed = whole_length(check_lateness(ttl, instants))
    chosen = name if name is not None else columns.graph.fresh_name(kind)
    judge = add_judge(
        columns,
        chosen,
        lambda: ColumnTimes(time, instants),
        lambda: ColumnOnTime(time, instants, allowed, [AT]),
    )
    node = columns.graph.add_node(
        kind,
        columns.scope,
        chosen,
        factory=lambda: ExpiringAggregate(keys, aggregates, combined=True),
        inputs=2,
        notifies=True,
        stateful=True,
    )
    combine = PreAggregate(keys, with_last(aggregates))
    columns._of(judge, ON_TIME)._connect(node, 0, Exchange(columns=keys, combine=combine.apply))
    columns._of(judge, WATERMARKS)._connect(node, 1)
    return columns._of(node, schema=schema)
