"""Queries as trees of sqlglot: parts, text and substitution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Node: TypeAlias = Any
"""Expression of sqlglot, a package imported only on use."""

DIALECT = "postgres"


def replaced(node: Node, change: Callable[[Node], Node]) -> Node:
    """`node` with parts replaced by `change`; replaced parts are not searched further."""
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
    """Name of a result column."""
    return item.alias_or_name or text(item)


def text(node: Node) -> str:
    """SQL text of a part of a query."""
    found: str = node.sql(dialect=DIALECT)
    return found


def is_star(item: Node) -> bool:
    """True if an item of a select is `*` or `table.*`."""
    from sqlglot import exp

    return isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star))
