"""Recognise elementwise Polars expressions, independent of batch boundaries."""

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
"""Elementwise functions and families of functions."""

_MOSTLY: dict[str, frozenset[str]] = {
    "Boolean": frozenset({"Any", "All", "IsUnique", "IsDuplicated", "IsFirstDistinct", "IsLastDistinct"}),
    "StringExpr": frozenset({"ConcatVertical"}),
    "ListExpr": frozenset({"Sample", "Shuffle"}),
    "ArrayExpr": frozenset({"Shuffle"}),
}
"""Function families with their few non-elementwise members."""


_OF_SQL = frozenset({"Binary", "ToFloat"})
"""Operators of `pl.sql_expr` with a meaning different from Polars' own."""


def are_elementwise(given: Iterable[Any]) -> bool:
    """True if all arguments of a verb are elementwise; False in doubt."""
    try:
        return all(_is(each) for each in given)
    except Exception:  # a tree that this does not know, in whatever way
        return False


def divide_by_numbers(given: Iterable[Any]) -> bool:
    """True if an argument divides by something other than a column; True in doubt.

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
"""Functions of neighbouring rows or of the rows' order."""


def sees_other_rows(given: Iterable[Any]) -> str | None:
    """Kind of cross-row expression: "order", "groups", "totals" or None."""
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
