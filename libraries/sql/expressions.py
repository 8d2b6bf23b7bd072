"""Expressions of SQL as those of Polars, and what is said of parts of a query that streams cannot do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import polars as pl

from timely.errors import GraphError, user_site

Node: TypeAlias = Any
"""An expression of sqlglot, which is imported when it is needed."""

DIALECT = "postgres"

_NARROW = ("BIT_LENGTH(", "EXTRACT(", "LENGTH(", "OCTET_LENGTH(", "POSITION(")
"""Functions that give 8 to 32 bits in Polars, in which `length(k) - 5` and `extract(hour from at) * 60` wrap round."""


def polars(node: Node, column: Callable[[Node], str]) -> pl.Expr:
    """An expression over a stream, of whose columns `column` says which is meant by one of the query."""
    from sqlglot import exp

    def meant(each: Node) -> Node:
        if isinstance(each, exp.Window):
            refuse(
                f"{text(each)}: not within an expression over streams: totals are those of group by, and the first few rows of "
                "each key those of group_by(...).top_k"
            )
        if isinstance(each, exp.Subquery | exp.Exists) or (isinstance(each, exp.In) and each.args.get("query")):
            refuse(
                f"{text(each)}: not within an expression over streams: say semi join or anti join in the place of in and "
                "exists, and join with a value that is computed"
            )
        return exp.column(column(each), quoted=True) if isinstance(each, exp.Column) else each

    try:
        return expression(replaced(node, meant))
    except pl.exceptions.PolarsError as error:
        refuse(f"{text(node)}: {str(error).partition(chr(10))[0]}", error)


def expression(node: Node) -> pl.Expr:
    """An expression that names columns of a stream. Raises PolarsError for what Polars does not know."""
    from sqlglot import exp

    around = exp.Paren(this=node.copy())
    for each in reversed(list(around.find_all(exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Func))):  # inner ones first
        each.replace(_said_to_polars(each))
    return pl.sql_expr(text(around))


def _said_to_polars(node: Node) -> Node:
    """The expression that means in Polars' SQL what `node` means in SQL."""
    from sqlglot import exp

    copy = node.copy()
    if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
        return exp.Paren(this=copy)  # without, all that follows would be taken for its right side
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Boolean):
        value = copy.this if node.expression.this else exp.not_(copy.this)
        return exp.Coalesce(this=value, expressions=[exp.false()])  # of a null it would be null
    said = text(node)
    if isinstance(node, exp.Func) and said.startswith(_NARROW) and not said.startswith("EXTRACT(EPOCH"):
        return exp.cast(copy, "bigint")
    return copy


def replaced(node: Node, change: Callable[[Node], Node]) -> Node:
    """`node` with others in the place of those of its parts that `change` changes; these are not looked into further."""
    from sqlglot import exp

    around = exp.Paren(this=node.copy())
    todo = [around.this]
    while todo:
        part = todo.pop()
        new = change(part)
        if new is part:
            todo.extend(part.iter_expressions())
        else:
            part.replace(new)
    return around.this


def name_of(item: Node) -> str:
    """The name of a column of the results."""
    return item.alias_or_name or text(item)


def text(node: Node) -> str:
    """A part of a query as SQL."""
    found: str = node.sql(dialect=DIALECT)
    return found


def listed(names: Any) -> str:
    """Names, for users."""
    return ", ".join(map(repr, names)) or "none"


def refuse(why: str, cause: Exception | None = None) -> NoReturn:
    """Raise GraphError with the user's line."""
    raise GraphError(f"{user_site()}: sql: {why}") from cause
