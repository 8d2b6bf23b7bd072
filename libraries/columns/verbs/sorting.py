"""Sorting of the rows of a time: `columns.sort("n", over="time")`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from libraries.columns.operators.sort import SortOfTime
from libraries.columns.schemas import inference as schemas
from libraries.columns.verbs.stateless import C
from timely.dataflow.keyed import Over, check_over
from timely.errors import GraphError, user_site
from timely.operators.channels import Gather


def sort_of_time(
    columns: C,
    by: Iterable[Any],
    descending: bool | Sequence[bool],
    nulls_last: bool | Sequence[bool],
    over: Over,
    name: str | None,
) -> C:
    """Sorted rows of each time of `columns`: see `Columns.sort`."""
    if check_over(over, "sort"):
        raise GraphError(
            f"{user_site()}: rows that go on coming have no last order: say over='time' for the rows of each time in order, "
            "or top_k(k, by=...) for the first few of all so far"
        )
    order = [each for given in by for each in ([given] if isinstance(given, str | pl.Expr) else _listed(given))]
    for each in order:
        if not isinstance(each, str | pl.Expr):
            raise GraphError(f"{user_site()}: sort takes names of columns and Polars expressions, not {each!r}")
    if not order:
        raise GraphError(f"{user_site()}: sort takes the columns by which rows are put in order: sort(by, over='time')")
    schemas.check_columns("sort", [each for each in order if isinstance(each, str)], columns.schema)
    least, behind = (
        _for_each(which, given, len(order)) for which, given in (("descending", descending), ("nulls_last", nulls_last))
    )
    exprs = [each for each in order if isinstance(each, pl.Expr)]
    if any(each.meta.has_multiple_outputs() for each in exprs):
        raise GraphError(f"{user_site()}: sort takes expressions of one column each")
    made = [each.alias(f"by {number}()") for number, each in enumerate(exprs)]
    schemas.after("sort", lambda frame: frame.with_columns(made), columns.schema, exprs)
    chosen = name if name is not None else columns.graph.fresh_name("sort")
    node = columns._attach(
        "sort",
        chosen,
        Gather(name=chosen),
        factory=lambda: SortOfTime(order, least, behind),
        notifies=True,
        stateful=True,
    )
    return columns._of(node, schema=columns.schema)


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, Iterable) else [given]


def _for_each(which: str, given: bool | Sequence[bool], count: int) -> list[bool]:
    found = [given] * count if isinstance(given, bool) else list(given)
    if len(found) != count:
        raise GraphError(
            f"{user_site()}: sort({which}=...) takes one truth value, or one for each column of by, not {given!r}"
        )
    return found
