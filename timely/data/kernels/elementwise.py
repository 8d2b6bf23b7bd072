"""Polars expressions that give for each row what follows from this row alone, however rows are divided into batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import polars as pl

from timely.data.kernels.trees import tree_of

_WITHIN = frozenset(
    {
        "Abs",
        "AsStruct",
        "Ceil",
        "Clip",
        "Coalesce",
        "Exp",
        "FillNull",
        "Floor",
        "Hash",
        "Log",
        "Log1p",
        "MaxHorizontal",
        "MeanHorizontal",
        "MinHorizontal",
        "Negate",
        "Pow",
        "RepeatBy",
        "Replace",
        "ReplaceStrict",
        "Round",
        "RoundSF",
        "Sign",
        "StructExpr",
        "SumHorizontal",
        "TemporalExpr",
        "ToPhysical",
        "Trigonometry",
    }
)
"""Functions, and families of functions, of the values in one row."""

_MOSTLY: dict[str, frozenset[str]] = {
    "Boolean": frozenset({"Any", "All", "IsUnique", "IsDuplicated", "IsFirstDistinct", "IsLastDistinct"}),
    "StringExpr": frozenset({"ConcatVertical"}),
    "ListExpr": frozenset({"Sample", "Shuffle"}),
    "ArrayExpr": frozenset({"Shuffle"}),
}
"""Families of which all but these are."""


_OF_SQL = frozenset({"Binary", "ToFloat"})
"""The functions that `pl.sql_expr` makes of operators, where Polars' own mean something else."""


def are_elementwise(given: Iterable[Any]) -> bool:
    """True if all arguments of a verb, expressions or names of columns or values, are. In doubt, no."""
    try:
        return all(_is(each) for each in given)
    except Exception:  # a tree that this does not know, in whatever way
        return False


def divide_by_numbers(given: Iterable[Any]) -> bool:
    """True if an expression among the arguments of a verb divides by something else than a column. In doubt, yes.

    Of several rows Polars multiplies by the reciprocal then, and of a single one it divides: the last digit may differ.
    """
    try:
        trees = [tree_of(each) for each in _expressions(given)]
        return any(map(_divides_by_number, trees))
    except Exception:  # as above
        return True


def _expressions(given: Iterable[Any]) -> Iterator[pl.Expr]:
    for each in given:
        if isinstance(each, list | tuple):
            yield from _expressions(each)
        elif isinstance(each, pl.Expr):
            yield each


def _divides_by_number(tree: Any) -> bool:
    match tree:
        case {"BinaryExpr": {"op": "TrueDivide", "right": right}} if not _has_column(right):
            return True
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return any(map(_divides_by_number, parts))


def _has_column(tree: Any) -> bool:
    if isinstance(tree, dict):
        return "Column" in tree or "Selector" in tree or any(map(_has_column, tree.values()))
    return isinstance(tree, list) and any(map(_has_column, tree))


_OF_ORDER = frozenset(
    {
        *("CumCount", "CumMax", "CumMin", "CumProd", "CumSum", "Diff", "EwmMean", "EwmMeanBy", "EwmStd", "EwmVar"),
        *("FillNullWithStrategy", "Interpolate", "PctChange", "Rank", "Reverse", "RLE", "RLEID", "RollingExpr"),
        *("RollingExprBy", "Shift", "ShiftAndFill"),
    }
)
"""Functions of the rows in front of one, or behind it."""


def sees_other_rows(given: Iterable[Any]) -> str | None:
    """The kind of expression among arguments that looks at other rows: "order", "groups" or "totals"; None for none."""
    try:
        kinds = {kind for each in _expressions(given) for kind in _kinds_in(tree_of(each))}
    except Exception:  # a tree that this does not know, in whatever way
        return None
    return next((kind for kind in ("groups", "order", "totals") if kind in kinds), None)


def _kinds_in(tree: Any) -> Iterator[str]:
    if tree == "Len":
        yield "totals"
    elif isinstance(tree, list):
        for each in tree:
            yield from _kinds_in(each)
    elif isinstance(tree, dict):
        for name, inner in tree.items():
            if name in ("Literal", "Eval"):
                continue
            if name == "Agg":
                yield "totals"
            elif name == "Over":
                yield "groups"
            elif name == "function" and _name(inner) in _OF_ORDER:
                yield "order"
            yield from _kinds_in(inner)


def _is(given: Any) -> bool:
    if isinstance(given, list | tuple):
        return all(map(_is, given))
    if not isinstance(given, pl.Expr):
        return not isinstance(given, pl.Series)
    return _within_rows(tree_of(given))


def _within_rows(tree: Any) -> bool:
    match tree:
        case {"Column": _} | {"Selector": _}:
            return True
        case {"Literal": literal}:
            return not (isinstance(literal, dict) and "Series" in literal)
        case {"Alias": [inner, _]} | {"Cast": {"expr": inner}} | {"Eval": {"expr": inner}} | {"KeepName": inner}:
            return _within_rows(inner)
        case {"BinaryExpr": {"left": left, "right": right}}:
            return _within_rows(left) and _within_rows(right)
        case {"Ternary": {"predicate": predicate, "truthy": truthy, "falsy": falsy}}:
            return all(map(_within_rows, (predicate, truthy, falsy)))
        case {"Function": {"input": inputs, "function": function}}:
            return _is_within(function) and all(map(_within_rows, inputs))
    return False


def _is_within(function: Any) -> bool:
    name, details = next(iter(function.items())) if isinstance(function, dict) else (function, None)
    if name == "Sql":
        return _name(details) in _OF_SQL
    if name in _MOSTLY:
        return _name(details) not in _MOSTLY[name]
    return name in _WITHIN


def _name(details: Any) -> Any:
    return next(iter(details)) if isinstance(details, dict) else details
