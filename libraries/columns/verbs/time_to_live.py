"""Verbs with a time to live: `agg`, `distinct` and `join_asof` with `ttl=60`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import polars as pl

from libraries.columns.agg import Aggregate
from libraries.columns.operators.aggregate import PreAggregate
from libraries.columns.operators.expiring_aggregate import ExpiringAggregate, with_last
from libraries.columns.operators.joins.asof import ExpiringAsofJoin, Strategy, Tolerance
from libraries.columns.operators.windows import AT
from libraries.columns.schemas import inference as schemas
from libraries.columns.verbs.stateless import C, StatelessVerbs
from libraries.columns.verbs.windows import add_column_judge, check_time
from timely.data.batch import columns_of
from timely.errors import GraphError, user_site
from timely.operators.channels import PIPELINE, Exchange
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
    _check_range(ttl, over, columns)


def check_asof_ttl(ttl: Any, over: str, columns: StatelessVerbs) -> None:
    """Refuse an invalid event-time `ttl` of an as-of join.

    It is a length of event time, not negative, of a join that runs on over all epochs.
    """
    if not isinstance(ttl, int | dt.timedelta) or isinstance(ttl, bool):
        raise GraphError(
            f"{user_site()}: ttl=60, or a timedelta, of join_asof is a length of event time, the column on=...; it is not "
            f"{ttl!r}"
        )
    _check_range(ttl, over, columns)


def _check_range(ttl: Any, over: str, columns: StatelessVerbs) -> None:
    if not isinstance(ttl, Epochs) and ttl < type(ttl)(0):
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
    check_time(verb, time, columns, instants)
    chosen = name if name is not None else columns.graph.fresh_name(kind)
    judge = add_column_judge(columns, chosen, time, ttl, instants, [AT])
    combine = PreAggregate(keys, with_last(aggregates))
    node = columns._of(judge, ON_TIME)._attach(
        kind,
        chosen,
        Exchange(columns=keys, combine=combine.apply),
        others=[(columns._of(judge, WATERMARKS), PIPELINE)],
        factory=lambda: ExpiringAggregate(keys, aggregates, combined=True),
        notifies=True,
        stateful=True,
    )
    return columns._of(node, schema=schema)


def expiring_asof_join(
    left: C,
    right: C,
    on: str,
    keys: tuple[str, ...],
    strategy: Strategy,
    tolerance: Tolerance | None,
    ttl: Length,
    name: str | None,
    there: Mapping[str, Any] | None,
    schema: pl.Schema | None,
) -> C:
    """As-of join of the rows on time; late rows of the left side are left out."""
    instants = isinstance(ttl, dt.timedelta)
    for side in (left, right):
        check_time("join_asof", on, side, instants)
    chosen = name if name is not None else left.graph.fresh_name("join_asof")
    judge = add_column_judge(left, chosen, on, ttl, instants)
    channel = Exchange(columns=keys, prepare=columns_of)
    node = left._of(judge, ON_TIME)._attach(
        "join_asof",
        chosen,
        channel,
        others=[(right, channel), (left._of(judge, WATERMARKS), PIPELINE)],
        factory=lambda: ExpiringAsofJoin(on, keys, strategy, tolerance, there),
        notifies=True,
        stateful=True,
    )
    return left._of(node, schema=schema)
