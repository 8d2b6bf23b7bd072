"""Dates and times in queries: texts beside them, and `date_trunc`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from libraries.sql.nodes import Node, text
from timely.data.kernels.trees import expr_of, tree_of

_TRUNCATED = {
    "millisecond": "1ms",
    "second": "1s",
    "minute": "1m",
    "hour": "1h",
    "day": "1d",
    "week": "1w",
    "month": "1mo",
    "quarter": "1q",
    "year": "1y",
}
"""Units of `date_trunc` as Polars' durations."""


def truncated(call: Node, of: pl.Expr, kind: pl.DataType | None) -> pl.Expr:
    """`date_trunc` of an expression.

    Raises PolarsError for an unknown unit, a zone, or a type without dates.
    """
    part = call.args["unit"].name.lower()
    if part not in _TRUNCATED or call.args.get("zone") is not None:
        raise pl.exceptions.SQLInterfaceError(
            f"{text(call)}: date_trunc takes one of {', '.join(_TRUNCATED)}, and no zone"
        )
    if kind is not None and not isinstance(kind, pl.Date | pl.Datetime):
        raise pl.exceptions.SQLInterfaceError(f"{text(call)}: date_trunc is of dates and datetimes, not of {kind}")
    return (of.cast(pl.Datetime("us")) if isinstance(kind, pl.Date) else of).dt.truncate(_TRUNCATED[part])


def alike(node: Node) -> list[list[Node]]:
    """Groups of operands of one required type, such as both sides of a comparison."""
    from sqlglot import exp

    found: list[list[Node]] = []
    if isinstance(
        node, exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.NullSafeEQ | exp.NullSafeNEQ | exp.Nullif
    ):
        found = [[node.this, node.expression]]
    elif isinstance(node, exp.Between):
        found = [[node.this, node.args["low"], node.args["high"]]]
    elif isinstance(node, exp.In | exp.Coalesce | exp.Greatest | exp.Least):
        found = [[node.this, *node.expressions]]
    elif isinstance(node, exp.Case):
        branches, default = node.args["ifs"], node.args.get("default")
        found = [[each.args["true"] for each in branches] + ([] if default is None else [default])]
        if node.this is not None:
            found.append([node.this, *(each.this for each in branches)])
    return [[each.unnest() for each in operands] for operands in found]


def is_text(node: Node) -> bool:
    """True for a text literal."""
    from sqlglot import exp

    return isinstance(node, exp.Literal) and bool(node.is_string)


def may_be_dated(node: Node) -> bool:
    """True if a text literal like a date or time is combined with other operands."""
    texts = [each.name for operands in alike(node) for each in operands if is_text(each)]
    return any(re.match(r"\d\d\d\d-\d\d-\d\d|\d\d:\d\d", each) for each in texts)


def dated(texts: list[Node], kind: pl.DataType) -> None:
    """Cast text literals to the date or time type of their neighbours."""
    from sqlglot import exp

    for each in texts:
        if isinstance(kind, pl.Datetime):
            to = "timestamp" if kind.time_zone is None else "timestamptz"
        elif isinstance(kind, pl.Date):
            to = "date" if re.fullmatch(r"\s*\d+-\d+-\d+\s*", each.name) else "timestamp"
        elif isinstance(kind, pl.Time):
            to = "time"
        else:
            return
        value = exp.cast(each.copy(), to)
        try:
            pl.select(pl.sql_expr(text(value)))
        except pl.exceptions.PolarsError as error:
            raise pl.exceptions.SQLInterfaceError(f"{text(each)} is beside {kind}, and is no {to}") from error
        each.replace(value)


def put(expr: pl.Expr, made: Mapping[str, pl.Expr]) -> pl.Expr:
    """Expression with columns replaced by other expressions."""
    if not made:
        return expr
    trees = {name: tree_of(each) for name, each in made.items()}

    def walk(tree: Any) -> Any:
        if isinstance(tree, list):
            return [walk(each) for each in tree]
        if not isinstance(tree, dict):
            return tree
        if len(tree) == 1 and tree.get("Column") in trees:
            return trees[tree["Column"]]
        return {key: walk(each) for key, each in tree.items()}

    return expr_of(walk(tree_of(expr)))
