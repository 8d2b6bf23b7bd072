"""Classification of selections: one row per input row, or totals of the batch.

Polars' `select` decides by the values: where all of them are single ones, it gives one row. How rows are divided into batches
is not fixed, so here a selection of constants gives each row its own, and one that computes all its columns is done as
`with_columns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from timely.data.kernels.trees import tree_of


def flat(exprs: tuple[Any, ...]) -> list[Any]:
    """Arguments of a verb, with lists among them flattened."""
    return [one for expr in exprs for one in (expr if isinstance(expr, list | tuple) else [expr])]


def makes_rows_of_none(given: Iterable[Any]) -> bool:
    """True if the selection may be totals, and so gives a row even of no rows.

    A selection of constants gives none then.
    """
    given = list(given)
    return not any(map(_keeps_length, given)) and not all(map(_is_constant, given))


def names_of_values(exprs: Iterable[Any], named: Mapping[str, Any]) -> list[str] | None:
    """The names of the columns if all are computed, else None.

    Where each n of a batch is null, Polars' `select` gives one row for `coalesce("n", 0) > 1`; `with_columns` gives all.
    """
    names = []
    for name, given in (*((None, each) for each in exprs), *named.items()):
        expr = pl.lit(given) if not isinstance(given, pl.Expr) and _is_constant(given) else given
        if not isinstance(expr, pl.Expr) or expr.meta.has_multiple_outputs():
            return None
        if expr.meta.is_column_selection(allow_aliasing=True):
            return None
        names.append(name or expr.meta.output_name())
    return names


def _keeps_length(expr: Any) -> bool:
    """True if the expression surely gives one value per row; False in doubt."""
    if not isinstance(expr, pl.Expr):
        return isinstance(expr, str)
    try:
        return expr.meta.is_column_selection(allow_aliasing=True) or expr.meta.is_length_preserving()
    except (AttributeError, pl.exceptions.PolarsError):
        return False


def _is_constant(given: Any) -> bool:
    """True if the expression surely is a single constant; False in doubt."""
    if isinstance(given, str):
        return False
    try:
        expr = given if isinstance(given, pl.Expr) else pl.lit(given)
        if expr.meta.root_names() or not expr.meta.is_scalar():
            return False
        return not _counts(tree_of(expr))
    except (AttributeError, TypeError, ValueError, pl.exceptions.PolarsError):
        return False


def _counts(tree: Any) -> bool:
    """True if an expression tree contains the number of rows (`pl.len()`)."""
    match tree:
        case {"Literal": _}:
            return False
        case {"Alias": [inner, _]}:
            return _counts(inner)
        case dict():
            return any(map(_counts, tree.values()))
        case list():
            return any(map(_counts, tree))
    return bool(tree == "Len")
