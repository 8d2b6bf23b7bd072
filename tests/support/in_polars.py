"""Aggregates of `falkirk.agg` as Polars has them, to compare with."""

from __future__ import annotations

import polars as pl

from libraries.columns.agg import Aggregate


def expression_of(aggregate: Aggregate) -> pl.Expr:
    """An aggregate of `falkirk.agg` as an expression of Polars."""
    if aggregate.kind == "count":
        return pl.len().cast(pl.Int64)
    assert aggregate.column is not None
    column = pl.col(aggregate.column)
    match aggregate.kind:
        case "sum":
            return column.sum()
        case "min":
            return column.min()
        case "max":
            return column.max()
        case "mean":
            return column.mean()
        case "var":
            return column.var(aggregate.ddof)
        case "std":
            return column.std(aggregate.ddof)
        case "n_unique":
            return column.n_unique().cast(pl.Int64)
        case "quantile":
            assert aggregate.sketch is not None
            return column.cast(pl.Float64).quantile(aggregate.sketch.quantile, aggregate.sketch.interpolation)
        case "first" | "last":
            assert aggregate.order_by is not None
            order = pl.col(aggregate.order_by)
            some = [each.filter(column.is_not_null() & order.is_not_null()) for each in (column, order)]
            return some[0].sort_by(some[1], some[0]).get(0 if aggregate.kind == "first" else -1, null_on_oob=True)
