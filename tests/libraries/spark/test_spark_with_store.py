"""A region on a real Spark in a job with a store, one of whose workers is killed: the one that Spark belongs to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.connect import FileSink
from libraries.spark.dataflow.placement import home
from recovery.policy import Batch, Lazy
from runtime.program import Program
from runtime.supervisor.supervisor import Job
from tests.libraries.spark.connect_server import connect_server
from tests.support.beside import run_beside
from tests.support.processes import gone, parent, wait_for
from tests.support.stores import beside
from timely.io import Batches

pytestmark = [pytest.mark.spark, pytest.mark.check]

EPOCHS, ROWS = 4, 2_000


def epoch(number: int) -> list[pl.DataFrame]:
    """Two batches, one for each worker."""
    return [pl.DataFrame({"k": range(half, ROWS, 2)}).with_columns(v=pl.col("k") + number) for half in range(2)]


def build(folder: str, connect: str | None = None) -> Dataflow:
    def totals(df: Any) -> Any:
        count = df.count()
        with open(f"{folder}/runs", "a") as file:
            file.write(f"{count // ROWS - 1}\n")  # over so many epochs: it is that epoch's run
        return df.groupBy((df.k % 100).alias("k")).agg({"v": "sum"}).withColumnRenamed("sum(v)", "s")

    flow = Dataflow("history")
    cells = flow.columns("in", Batches([batch for number in range(EPOCHS) for batch in epoch(number)], per_epoch=2))
    with flow.region("history", policy=Batch(log_outputs=True)):
        memory = "1g" if connect is None else None
        config = (("spark.sql.shuffle.partitions", "2"),)
        options = spark.SparkOptions(memory=memory, nice=0, config=config, connect=connect)
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
    kill_the_worker_that_has_spark(tmp_path, {"folder": str(tmp_path)})


@pytest.mark.soak
def test_the_same_on_a_spark_connect_server(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    with connect_server(tmp_path / "server") as server:
        kill_the_worker_that_has_spark(tmp_path, {"folder": str(tmp_path), "connect": server.address})


def kill_the_worker_that_has_spark(tmp_path: Path, arguments: dict[str, str]) -> None:
    job = Job(Program(flow=build, args=arguments), 2, tmp_path / "store")
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
    assert not beside(tmp_path / "store").files.exists()  # the job is done: nobody needs them


def held(folder: str) -> Dataflow:
    """A region whose function says which Java it is on, and waits to be killed with it, twice."""

    def holds(df: Any) -> Any:
        java = df.sparkSession._jvm.java.lang.ProcessHandle.current().pid()
        with open(f"{folder}/calls", "a") as file:
            file.write(f"{java} {os.getpid()}\n")
        if len(Path(folder, "calls").read_text().split("\n")) <= 3:
            time.sleep(600)
        return df

    flow = Dataflow("held")
    cells = flow.columns("in", Batches([pl.DataFrame({"k": [1]})]))
    cells.inspect(lambda batch: Path(folder, "worker").write_text(str(os.getpid())))
    options = spark.SparkOptions(memory="1g", nice=0, config=(("spark.sql.shuffle.partitions", "2"),))
    spark.batch(cells, holds, options=options, name="held").capture("out")
    return flow


def hold(folder: str) -> None:
    """Run it."""
    Job(Program(flow=held, args={"folder": folder}), 1, Path(folder) / "store").run()


@pytest.mark.soak
def test_java_outlives_a_killed_worker_and_ends_with_the_job_when_that_is_killed(tmp_path: Path) -> None:
    command = f"from {__name__} import hold; hold({str(tmp_path)!r})"
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with (tmp_path / "log").open("wb") as log:
        job = subprocess.Popen(
            [sys.executable, "-c", command], stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(temporary)}
        )
    try:
        (java, child) = calls(tmp_path, 1)
        os.kill(int((tmp_path / "worker").read_text()), signal.SIGKILL)
        (same, other) = calls(tmp_path, 2)
        assert same == java
        assert other != child
        wait_for(lambda: gone(child))
        keeper = parent(java)
    finally:
        job.kill()
        job.wait()
    wait_for(lambda: all(map(gone, (java, keeper, other))), 30)
    wait_for(lambda: not list(temporary.iterdir()), 30)


def calls(folder: Path, number: int) -> tuple[int, int]:
    """The Java and the child of the n-th call."""

    def written() -> list[str]:
        return (folder / "calls").read_text().split("\n")[:-1] if (folder / "calls").exists() else []

    wait_for(lambda: len(written()) >= number)
    java, child = map(int, written()[number - 1].split())
    return java, child
