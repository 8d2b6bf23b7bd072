"""As-of joins of columns with a time to live by event time.

Operators behind `join_asof(..., ttl=60)`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import polars as pl

from libraries.columns.operators.asof_join import Strategy, Tolerance
from libraries.columns.operators.expiring_asof_join import ExpiringAsofJoin
from libraries.columns.operators.windows import ColumnOnTime, ColumnTimes
from libraries.columns.verbs.stateless import C, StatelessVerbs
from libraries.columns.verbs.windows import check_time, whole_length
from timely.data.batch import columns_of
from timely.dataflow.windows import add_judge, check_lateness
from timely.errors import GraphError, user_site
from timely.operators.channels import Exchange
from timely.operators.watermark import ON_TIME, WATERMARKS
from timely.operators.window_shapes import Length


def check_asof_ttl(ttl: Any, over: str, columns: StatelessVerbs) -> None:
    """Refuse an invalid event-time `ttl` of an as-of join.

    It is a length of event time, not negative, of a join that runs on over all epochs.
    """
    if not isinstance(ttl, int | dt.timedelta) or isinstance(ttl, bool):
        raise GraphError(
            f"{user_site()}: ttl=60, or a timedelta, of join_asof is a length of event time, the column on=...; it is not "
            f"{ttl!r}"
        )
    if ttl < dt.timedelta(0) if isinstance(ttl, dt.timedelta) else ttl < 0:
        raise GraphError(f"{user_site()}: a ttl is not negative, as {ttl!r} is")
    if over == "time" or columns.scope.depth != 1:
        raise GraphError(f"{user_site()}: ttl is for what runs on over all epochs: over='scope', outside of loops")


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
        if side.schema is not None:
            check_time("join_asof", on, side.schema[on], instants)
    allowed = whole_length(check_lateness(ttl, instants))
    chosen = name if name is not None else left.graph.fresh_name("join_asof")
    judge = add_judge(left, chosen, lambda: ColumnTimes(on, instants), lambda: ColumnOnTime(on, instants, allowed))
    node = left.graph.add_node(
        "join_asof",
        left.scope,
        chosen,
        factory=lambda: ExpiringAsofJoin(on, keys, strategy, tolerance, there),
        inputs=3,
        notifies=True,
        stateful=True,
    )
    channel = Exchange(columns=keys, prepare=columns_of)
    left._of(judge, ON_TIME)._connect(node, 0, channel)
    right._connect(node, 1, channel)
    left._of(judge, WATERMARKS)._connect(node, 2)
    return left._of(node, schema=schema)
