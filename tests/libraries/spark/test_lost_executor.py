"""Spark on executors of its own, one of which dies."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark.host.host import host_of
from runtime.run import run
from tests.support.beside import run_beside
from timely.data.batch import as_polars
from timely.io import Batches

pytestmark = [pytest.mark.spark, pytest.mark.soak]


def executors(java: int) -> list[int]:
    """The executors that Spark's Java process has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(") ")[2].split()[1])
            if parent == java and b"CoarseGrainedExecutorBackend" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return sorted(found)


def test_lost_executor_costs_its_tasks_and_nothing_else(tmp_path: Path) -> None:
    marker = str(tmp_path / "begun")

    def slow(df: Any) -> Any:
        from pyspark.sql import functions as F
        from pyspark.sql.types import LongType

        def wait(k: int) -> int:
            open(marker, "a").close()
            time.sleep(0.05)
            return k

        return df.repartition(8).select(F.udf(wait, LongType())("k").alias("k"))

    options = spark.SparkOptions("local-cluster[2,1,1024]", memory="1g", nice=0)
    flow = Dataflow("executors")
    cells = flow.columns("in", Batches([pl.DataFrame({"k": range(400)})]))
    spark.batch(cells, slow, options=options, name="history").capture("out")
    killed: list[int] = []

    def strike() -> None:
        while not Path(marker).exists():
            time.sleep(0.01)
        java = host_of(options).pid
        assert java is not None
        killed.append(executors(java)[0])
        os.kill(killed[0], signal.SIGKILL)

    try:
        found = run_beside(lambda: run(flow), strike).captured("out")
        assert sorted(k for _, batch in found for k in as_polars(batch)["k"]) == list(range(400))
        assert killed
        assert host_of(options).starts == 1
    finally:
        host_of(options).stop()
