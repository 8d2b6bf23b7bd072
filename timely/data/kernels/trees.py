"""Polars expressions as trees of plain data, by Polars' own JSON."""

from __future__ import annotations

import io
import json
from typing import Any

import polars as pl


def tree_of(expr: pl.Expr) -> Any:
    """Tree of an expression: dicts by kind of node, lists and plain values."""
    return json.loads(expr.meta.serialize(format="json"))


def expr_of(tree: Any) -> pl.Expr:
    """Inverse of `tree_of`."""
    return pl.Expr.deserialize(io.StringIO(json.dumps(tree)), format="json")
