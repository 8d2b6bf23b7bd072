"""Groups of a time that stay on the worker where their epoch is read, through kills and cuts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import falkirk
from falkirk import agg
from timely.dataflow.local_exchanges import staying

pytest_plugins = ["falkirk.simulate.fixtures"]


@pytest.fixture
def program(tmp_path: Path) -> Callable[[], falkirk.Dataflow]:
    rng = np.random.default_rng(7)
    table = pa.table({"k": rng.integers(0, 9, 240), "v": rng.integers(0, 99, 240)})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=5)

    def build() -> falkirk.Dataflow:
        flow = falkirk.Dataflow("dealt")
        source = falkirk.Parquet(tmp_path / "rows.parquet", epoch=10, split="epochs")
        with flow.region("read", policy=falkirk.Batch(log_outputs=True)):
            rows = flow.columns("rows", source).filter(pl.col("v") > 3)
        with flow.region("logged", policy=falkirk.Batch(log_outputs=True)):
            each = rows.group_by("k").agg(over="time", n=agg.count(), t=agg.sum("v"))
        with flow.region("kept", policy=falkirk.Lazy(every=2)):
            each.group_by("k").agg(over="scope", n=agg.sum("n")).capture("running")
        each.capture("each")
        rows.group_by("v").agg(over="time", k=agg.max("k")).group_by("k").agg(over="time", n=agg.count()).capture(
            "again"
        )
        return flow

    return build


@pytest.mark.check
@pytest.mark.parametrize("workers", [2, 3])
def test_groups_that_stay_survive_faults(simulate: Any, workers: int, program: Callable[[], falkirk.Dataflow]) -> None:
    assert len(staying(program().graph, workers)) == 3
    assert simulate(program, seeds=8, workers=workers).faults
