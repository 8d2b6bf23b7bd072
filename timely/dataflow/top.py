"""The first few rows of each group: `columns.group_by("k").top_k(3, by="n")`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from timely.dataflow import schemas
from timely.dataflow.keyed import Over, check_over
from timely.dataflow.stream import view
from timely.dataflow.wire import check_at_root
from timely.errors import GraphError, user_site
from timely.operators.channels import Exchange
from timely.operators.column_join import CHANGE
from timely.operators.column_top import RunningTop, TopOfTime

if TYPE_CHECKING:
    from timely.dataflow.columns import Columns


def top_of_groups(
    columns: Columns,
    keys: tuple[str, ...],
    k: int,
    by: str | Sequence[str],
    reverse: bool | Sequence[bool],
    over: Over,
    name: str | None,
    signed: bool,
) -> Columns:
    """The first `k` rows of each group of `columns`, which have a sign if `signed`."""
    from timely.dataflow.changes import Changes

    check_over(over, "top_k")
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise GraphError(f"{user_site()}: top_k takes a number of rows, 1 or more, not {k!r}")
    order = (by,) if isinstance(by, str | pl.Expr) else tuple(by)
    if not order or not all(isinstance(column, str) for column in order):
        raise GraphError(f"{user_site()}: top_k(by=...) takes names of columns, not {by!r}")
    least = (reverse,) * len(order) if isinstance(reverse, bool) else tuple(reverse)
    if len(least) != len(order):
        raise GraphError(
            f"{user_site()}: top_k(reverse=...) takes one truth value, or one for each column of by=, not {reverse!r}"
        )
    schemas.check_columns("top_k", order, columns.schema)
    if signed and over != "scope":
        raise GraphError(
            f"{user_site()}: top_k of changes runs on, over='scope': the changes of one time have no order"
        )
    schema = schemas.topped(keys, columns.schema)
    if over == "scope":
        if not signed:
            schemas.check_unsigned("top_k with over='scope'", columns.schema or ())
        check_at_root(columns, "top_k with over='scope' keeps rows of the root scope")
    node = columns._attach(
        "top_k",
        name,
        Exchange(columns=keys),
        factory=lambda: (
            TopOfTime(keys, k, order, least) if over == "time" else RunningTop(keys, k, order, least, signed)
        ),
        notifies=True,
        stateful=True,
    )
    if over == "time":
        return columns._of(node, schema=schema)
    return view(columns._of(node, schema=schema and pl.Schema({**schema, CHANGE: pl.Int8()})), Changes)
