"""A region on a real Spark in a job with a store, one of whose workers is killed: the one that Spark belongs to."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from libraries import spark
from libraries.spark.placement import home
from recovery.policies import Batch, Lazy
from runtime.processes.worker import FILES
from runtime.program import Program
from runtime.supervisor.supervisor import Job
from tests.support.beside import run_beside
from timely.dataflow.dataflow import Dataflow
from timely.io import Batches, FileSink

pytestmark = pytest.mark.spark

EPOCHS, ROWS = 4, 2_000


def epoch(number: int) -> list[pl.DataFrame]:
    """Two batches, one for each worker."""
    return [pl.DataFrame({"k": range(half, ROWS, 2)}).with_columns(v=pl.col("k") + number) for half in range(2)]


def build(folder: str) -> Dataflow:
    def totals(df: Any) -> Any:
        count = df.count()
        with open(f"{folder}/runs", "a") as file:
            file.write(f"{count // ROWS - 1}\n")  # over so many epochs: it is that epoch's run
        return df.groupBy((df.k % 100).alias("k")).agg({"v": "sum"}).withColumnRenamed("sum(v)", "s")

    flow = Dataflow("history")
    cells = flow.columns("in", Batches([batch for number in range(EPOCHS) for batch in epoch(number)], per_epoch=2))
    with flow.region("history", policy=Batch(log_outputs=True)):
        options = spark.SparkOptions(memory="1g", nice=0, config=(("spark.sql.shuffle.partitions", "2"),))
        found = spark.batch(cells, totals, over="all", options=options, name="history", checkpoint=0.1)
    found.to_records().to(FileSink(Path(folder) / "files"), name="files")
    grand = found.to_records().map(lambda row: (0, row["s"])).keyed().sum(name="grand").policy(Lazy(every=0.1))
    grand.records().capture("sums")
    return flow


def published(folder: Path) -> dict[int, dict[int, int]]:
    found: dict[int, dict[int, int]] = {}
    for path in sorted((folder / "files").glob("epoch-*")):
        for row in map(json.loads, path.read_text().splitlines()):
            of = found.setdefault(int(path.name.split("-")[1]), {})
            assert row["k"] not in of
            of[row["k"]] = row["s"]
    return found


def expected() -> dict[int, dict[int, int]]:
    right = {}
    for last in range(EPOCHS):
        rows = pl.concat([batch for number in range(last + 1) for batch in epoch(number)])
        right[last] = dict(rows.group_by(pl.col("k") % 100).agg(pl.col("v").sum()).rows())
    return right


def test_worker_that_has_spark_is_killed_and_no_epoch_that_was_safe_runs_again(tmp_path: Path) -> None:
    job = Job(Program(flow=build, args={"folder": str(tmp_path)}), 2, tmp_path / "store")
    safe: set[int] = set()

    def strike() -> None:
        while len(published(tmp_path)) < 2:
            time.sleep(0.02)
        safe.update(published(tmp_path))
        os.kill(job.pids[home(2)], signal.SIGKILL)

    result = run_beside(job.run, strike)
    assert len(safe) >= 2
    right = expected()
    assert published(tmp_path) == right
    sums = {time[0]: pairs for time, pairs in result.captured("sums")}
    assert [sums[e][0][1] for e in range(EPOCHS)] == [
        sum(sum(right[each].values()) for each in range(e + 1)) for e in range(EPOCHS)
    ]
    runs = Counter(map(int, (tmp_path / "runs").read_text().split()))
    assert runs.keys() == set(range(EPOCHS))
    assert all(runs[e] == 1 for e in safe), runs
    assert not (tmp_path / "store" / FILES).exists()  # the job is done: nobody needs them
