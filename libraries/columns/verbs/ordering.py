"""Verbs by an order of rows: `sort(by, over="time")` and `top_k(k, by)`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from libraries.columns.operators.ordering import RunningTop, SortOfTime, TopOfTime
from libraries.columns.schemas import inference as schemas
from libraries.columns.schemas.keys import column_of
from libraries.columns.verbs.joins import Keys
from libraries.columns.verbs.stateless import C
from timely.data.kernels.expressions import compiled
from timely.dataflow.keyed import Over, check_over
from timely.dataflow.wire import check_at_root
from timely.errors import GraphError, user_site
from timely.operators.channels import Exchange, Gather


def top_of_groups(
    columns: C,
    keys: tuple[str, ...],
    k: int,
    by: Keys,
    reverse: bool | Sequence[bool],
    over: Over,
    name: str | None,
    signed: bool,
) -> C:
    """The `k` first rows of each group; signed input if `signed`."""
    check_over(over, "top_k")
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise GraphError(f"{user_site()}: top_k takes a number of rows, 1 or more, not {k!r}")
    given = tuple(by) if isinstance(by, list | tuple) else (by,)
    if not given or not all(isinstance(each, str | pl.Expr) for each in given):
        raise GraphError(f"{user_site()}: top_k(by=...) takes names of columns and Polars expressions, not {by!r}")
    named = [column_of(each) or f"by {number}()" for number, each in enumerate(given)]
    made = [
        each.alias(name)
        for each, name in zip(given, named, strict=True)
        if isinstance(each, pl.Expr) and column_of(each) is None
    ]
    least = (reverse,) * len(given) if isinstance(reverse, bool) else tuple(reverse)
    if len(least) != len(given):
        raise GraphError(
            f"{user_site()}: top_k(reverse=...) takes one truth value, or one for each column of by=, not {reverse!r}"
        )
    schemas.check_columns("top_k", [each for each in given if isinstance(each, str)], columns.schema)
    if signed and over != "scope":
        raise GraphError(
            f"{user_site()}: top_k of changes runs on, over='scope': the changes of one time have no order"
        )
    order = dict(zip(reversed(named), reversed(least), strict=True))  # a column counts where it comes first
    order = {name: order[name] for name in named}
    if hidden := [expr.meta.output_name() for expr in made]:
        few = compiled("with_columns", made, {})
        columns = columns._plan("top_k", None, lambda frame: frame.with_columns(made), made, few)
    schema = schemas.topped(keys, columns.schema, over == "scope")
    if over == "scope":
        if not signed:
            schemas.check_unsigned("top_k with over='scope'", columns.schema or ())
        check_at_root(columns, "top_k with over='scope' keeps rows of the root scope")
    node = columns._attach(
        "top_k",
        name,
        Exchange(columns=keys),
        factory=lambda: (
            TopOfTime(keys, k, [*order], [*order.values()])
            if over == "time"
            else RunningTop(keys, k, [*order], [*order.values()], signed)
        ),
        notifies=True,
        stateful=True,
    )
    found = columns._made_of(node, schema, over == "scope")
    return found._without(hidden) if hidden else found


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
