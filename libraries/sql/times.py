"""Dates and times in queries: texts that are compared with them, and `date_trunc`."""

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
"""The parts that `date_trunc` takes, as Polars has them."""


def truncated(call: Node, of: pl.Expr, kind: pl.DataType | None) -> pl.Expr:
    """`date_trunc` of an expression of a type. Raises PolarsError for what has none, or another unit."""
    part = call.args["unit"].name.lower()
    if part not in _TRUNCATED or call.args.get("zone") is not None:
        raise pl.exceptions.SQLInterfaceError(
            f"{text(call)}: date_trunc takes one of {', '.join(_TRUNCATED)}, and no zone"
        )
    if kind is not None and not isinstance(kind, pl.Date | pl.Datetime):
        raise pl.exceptions.SQLInterfaceError(f"{text(call)}: date_trunc is of dates and datetimes, not of {kind}")
    return (of.cast(pl.Datetime("us")) if isinstance(kind, pl.Date) else of).dt.truncate(_TRUNCATED[part])


def compared(node: Node) -> list[Node]:
    """The operands of a comparison; none of another expression."""
    from sqlglot import exp

    if isinstance(node, exp.EQ | exp.NEQ | exp.LT | exp.LTE | exp.GT | exp.GTE | exp.NullSafeEQ | exp.NullSafeNEQ):
        return [node.this, node.expression]
    if isinstance(node, exp.Between):
        return [node.this, node.args["low"], node.args["high"]]
    if isinstance(node, exp.In):
        return [node.this, *node.expressions]
    return []


def is_text(node: Node) -> bool:
    """True for a text in quotes."""
    from sqlglot import exp

    return isinstance(node, exp.Literal) and bool(node.is_string)


def may_be_dated(node: Node) -> bool:
    """True if `node` compares something with a text that begins as dates and times do."""
    return any(is_text(each) and re.match(r"\d\d\d\d-\d\d-\d\d|\d\d:\d\d", each.name) for each in compared(node))


def dated(texts: list[Node], kind: pl.DataType) -> None:
    """Make `texts` of a comparison dates or times, where those that they are compared with are of such a type."""
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
            raise pl.exceptions.SQLInterfaceError(f"{text(each)} is compared with {kind}, and is no {to}") from error
        each.replace(value)


def put(expr: pl.Expr, made: Mapping[str, pl.Expr]) -> pl.Expr:
    """An expression with others in the place of columns."""
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
