"""Polars verbs `select`, `with_columns` and `filter` as SQL over rows with epochs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from libraries.spark.engine.expressions import Expressions, columns_of, resolved
from libraries.spark.engine.refused import Refused
from libraries.spark.engine.types import EPOCH, listed, quoted, spark_type


def query_of(plan: Callable[[Any], Any], view: str, schema: pl.Schema) -> tuple[str, pl.Schema]:
    """Query for a Polars verb over the rows of a view, with its columns.

    Raises:
        Refused: naming what Spark does not have.
        PolarsError: if the verb cannot work.
    """
    frame = plan(pl.LazyFrame(schema=schema))
    made: pl.Schema = frame.collect_schema()
    for kind in made.values():
        spark_type(kind)
    return _query(resolved(frame), view), made


def mask_of(predicate: pl.Expr, schema: pl.Schema) -> str:
    """Predicate in SQL."""
    plan = resolved(pl.LazyFrame(schema=schema).select(mask=predicate))
    (one,) = plan.view_current_node().expr
    plan.set_node(plan.get_inputs()[0])
    return Expressions(plan).sql(one.node)


def _query(plan: Any, view: str) -> str:
    node, kind = plan.view_current_node(), type(plan.view_current_node()).__name__
    if kind == "DataFrameScan":
        return f"select * from {view}"
    inputs = plan.get_inputs()
    if kind not in ("Select", "HStack", "Filter"):
        raise Refused(kind)
    (below,) = inputs
    plan.set_node(below)
    if kind == "Filter":
        where = Expressions(plan).sql(node.predicate.node)
        return f"select * from ({_query(plan, view)}) where {where}"
    found = list(columns_of(plan, node.expr if kind == "Select" else node.exprs))
    if kind == "Select":
        if not any(inside.reads for *_, inside in found):
            raise Refused("a select without any column, which gives a row for each batch")
        made = {name: sql for name, sql, _ in found}
    else:
        made = {name: quoted(name) for name in plan.get_schema()} | {name: sql for name, sql, _ in found}
    columns = listed(quoted(EPOCH), *(f"{sql} as {quoted(name)}" for name, sql in made.items()))
    return f"select {columns} from ({_query(plan, view)})"
