"""Wildcards such as `pl.all()`, expanded without the sign column of changes.

Polars expands `pl.all()`, `pl.exclude("x")`, selectors and patterns by the columns that a frame has, wherever they stand in an
expression. So they are changed in the tree of the expression, before it meets a frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import polars as pl
import polars.selectors as cs

from timely.data.kernels.trees import expr_of, tree_of
from timely.errors import GraphError, user_site


def sparing(column: str, verb: str, exprs: Iterable[Any]) -> list[Any]:
    """Expressions with wildcards changed to leave out `column`.

    Only its name refers to `column` then.

    Raises:
        GraphError: with the user's line, if it cannot be told what an argument means.
    """
    found = []
    for each in exprs:
        several = isinstance(each, list | tuple | Iterator)
        found.append(sparing(column, verb, each) if several else _spared(column, verb, each))
    return found


def sparing_named(column: str, verb: str, named: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments treated as in `sparing`."""
    return dict(zip(named, sparing(column, verb, named.values()), strict=True))


def _spared(column: str, verb: str, given: Any) -> Any:
    expr = pl.col(given) if isinstance(given, str) and _is_pattern(given) else given
    if not isinstance(expr, pl.Expr):
        return given
    try:
        tree = tree_of(expr)
    except (
        TypeError,
        ValueError,
        pl.exceptions.PolarsError,
    ) as error:  # a function of the user's may not be written down
        if expr.meta.has_multiple_outputs():
            raise GraphError(
                f"{user_site()}: {verb} of changes: an expression of several columns that calls a function; name its columns"
            ) from error
        return given
    found = _without(column, tree)
    if found == tree:
        return given
    return expr_of(found)


def _is_pattern(name: str) -> bool:
    return name == "*" or (name.startswith("^") and name.endswith("$"))


def _without(column: str, tree: Any) -> Any:
    """Expression tree with `column` left out of selections."""
    match tree:
        case {"Literal": _} | {"Selector": {"ByName": {"strict": True}}}:
            return tree
        case {"Selector": selection}:
            _, left_out = tree_of(pl.exclude(column))["Selector"]["Difference"]
            return {"Selector": {"Difference": [selection, left_out]}}
        case {"Column": "*"}:
            return tree_of(pl.exclude(column))
        case {"Column": str(name)} if _is_pattern(name):
            return tree_of((cs.matches(name) - cs.by_name(column, require_all=False)).as_expr())
        case dict():
            return {key: _without(column, each) for key, each in tree.items()}
        case list():
            return [_without(column, each) for each in tree]
    return tree
