"""Libraries over streams: what they would take rows for that are taken back, they refuse at the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from falkirk import differential, lindi, spark
from libraries.columns import agg
from libraries.columns.verbs.columns import Columns
from libraries.columns.verbs.dataflow import Dataflow
from timely.errors import GraphError

TAKERS: dict[str, Callable[[Columns, Columns], Any]] = {
    "a query": lambda changed, rows: lindi.Table(changed),
    "a collection of columns": lambda changed, rows: differential.from_columns(changed, "k", "n"),
    "a collection of changes": lambda changed, rows: differential.from_changes(changed).count(),  # type: ignore[arg-type]
    "a region on Spark": lambda changed, rows: spark.batch(changed, "select * from input"),
    "a region on Spark that has other rows, too": lambda changed, rows: spark.batch(
        {"a": rows, "b": changed}, "select * from a"
    ),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_changes_are_no_rows(taker: str) -> None:
    rows = Dataflow().input("in").to_columns({"k": pl.Int64, "n": pl.Int64})
    changed = rows.group_by("k").agg(n=agg.max("n"), changes=True)
    with pytest.raises(GraphError, match=r"test_changes_of_columns\.py:\d+: .*cannot take back rows"):
        TAKERS[taker](changed, rows)
