"""Expressions of SQL as those of Polars, and what is said of parts of a query that streams cannot do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import polars as pl

from libraries.sql.integers import guarded, may_wrap, widened
from libraries.sql.nodes import Node, replaced, text
from timely.errors import GraphError, user_site

_NARROW = ("BIT_LENGTH(", "EXTRACT(", "LENGTH(", "OCTET_LENGTH(", "POSITION(")
"""Functions that give 8 to 32 bits in Polars, in which `length(k) - 5` and `extract(hour from at) * 60` wrap round."""


@dataclass(frozen=True, slots=True)
class Late:
    """An expression that means something else of other types, over a stream whose types are known when rows come."""

    node: Node
    name: str | None = None

    def alias(self, name: str) -> Late:
        """The same, with another name for its column."""
        return Late(self.node, name)

    def over(self, schema: pl.Schema) -> pl.Expr:
        """The expression of Polars for columns of these types."""
        found = _expression(self.node, schema)
        return found if self.name is None else found.alias(self.name)


Expression: TypeAlias = pl.Expr | Late


def output_of(given: Expression) -> str:
    """The name of the column that an expression makes."""
    return given.name or "" if isinstance(given, Late) else given.meta.output_name()


def polars(node: Node, column: Callable[[Node], str], schema: pl.Schema | None) -> Expression:
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
        return expression(replaced(node, meant), schema)
    except pl.exceptions.PolarsError as error:
        refuse(f"{text(node)}: {str(error).partition(chr(10))[0]}", error)


def expression(node: Node, schema: pl.Schema | None) -> Expression:
    """An expression that names columns of a stream. Raises PolarsError for what Polars does not know."""
    from sqlglot import exp

    if schema is None and any(may_wrap(each) and each.find(exp.Column) for each in node.walk()):
        pl.sql_expr(text(node))  # what Polars does not know, it does not know of any types
        return Late(node)
    return _expression(node, schema)


def _expression(node: Node, schema: pl.Schema | None) -> pl.Expr:
    from sqlglot import exp

    around = exp.Paren(this=node.copy())
    for each in reversed(list(around.walk(bfs=True))):  # inner ones first
        said = each if each is around else _said_to_polars(each, schema or pl.Schema())
        if said is not each:
            each.replace(said)
    return pl.sql_expr(text(around))


def kind_of(node: Node, schema: pl.Schema) -> pl.DataType | None:
    """The type of an expression of Polars' SQL over columns of these types; None for one that has none."""
    try:
        return pl.LazyFrame(schema=schema).select(of=pl.sql_expr(text(node))).collect_schema()["of"]
    except pl.exceptions.PolarsError:  # told of where the whole is read
        return None


def _said_to_polars(node: Node, schema: pl.Schema) -> Node:
    """The expression that means in Polars' SQL what `node` means in SQL, over columns of these types."""
    from sqlglot import exp

    if may_wrap(node):
        kind = kind_of(node, schema)
        return widened(node) if kind is not None and kind.is_integer() else node
    if isinstance(node, exp.Case):
        return guarded(node)
    if not isinstance(node, exp.Is | exp.NullSafeEQ | exp.NullSafeNEQ | exp.Func):
        return node
    copy = node.copy()
    if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
        return exp.Paren(this=copy)  # without, all that follows would be taken for its right side
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Boolean):
        value = copy.this if node.expression.this else exp.not_(copy.this)
        return exp.Coalesce(this=value, expressions=[exp.false()])  # of a null it would be null
    if isinstance(node, exp.Pow):  # of integers Polars gives integers, which wrap round
        return exp.Pow(this=exp.cast(copy.this, "double precision"), expression=copy.expression)
    said = text(node)
    if isinstance(node, exp.Func) and said.startswith(_NARROW) and not said.startswith("EXTRACT(EPOCH"):
        return exp.cast(copy, "bigint")
    return copy


def listed(names: Any) -> str:
    """Names, for users."""
    return ", ".join(map(repr, names)) or "none"


def refuse(why: str, cause: Exception | None = None) -> NoReturn:
    """Raise GraphError with the user's line."""
    raise GraphError(f"{user_site()}: sql: {why}") from cause
