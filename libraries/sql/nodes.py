"""Queries as trees of sqlglot: their parts, as text, and with others in the place of some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Node: TypeAlias = Any
"""An expression of sqlglot, which is imported when it is needed."""

DIALECT = "postgres"


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


def is_star(item: Node) -> bool:
    """True if an item of a select is all columns, of all tables or of one."""
    from sqlglot import exp

    return isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))
