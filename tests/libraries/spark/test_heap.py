"""A heap that overflows, while Spark plans or in a task: of a Java of the job's own, and of a Spark Connect server."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import Batch
from runtime.run import run
from tests.libraries.spark.connect_server import RUNNERS, ConnectServer, server_for
from timely.data.batch import as_polars
from timely.errors import FalkirkError
from timely.io import Batches

pytestmark = [pytest.mark.spark, pytest.mark.soak]

ROWS = 10
ENDS = {"spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError"}
"""Settings of a server that does not outlive it. Without them Java goes on with what has not failed."""


def planned(df: Any) -> None:
    """Overflow the heap while Spark plans: it computes what is constant."""
    df.sparkSession.sql("select size(sequence(0L, 300000000L)) as n").collect()


def at_work(df: Any) -> None:
    """Overflow it in a task."""
    df.selectExpr("size(sequence(0L, 300000000L + k)) as n").collect()


def overflowing(folder: Path, server: ConnectServer | None, attempts: int) -> Dataflow:
    """A region whose first attempts at each epoch overflow the heap. It leaves a file for each attempt."""
    options = spark.SparkOptions(memory="1g", nice=0, retries=1)
    if server is not None:
        options = spark.SparkOptions(connect=server.address, nice=0, retries=1)

    def what(df: Any, epoch: int, attempt: int) -> Any:
        Path(folder, f"call-{epoch}-{attempt}").touch()
        if attempt < attempts:
            (planned, at_work)[epoch](df)
        return df.selectExpr("k + 1 as k")

    flow = Dataflow("overflowing")
    cells = flow.columns("in", Batches([pl.DataFrame({"k": range(ROWS)})] * 2))
    with flow.region("history", policy=Batch(log_outputs=True)):
        spark.batch(cells, what, options=options, name="history").capture("out")
    return flow


@pytest.mark.parametrize(
    ("runner", "settings"), [("local", {}), ("connect", {}), ("connect", ENDS)], ids=["local", "goes on", "ends"]
)
def test_run_whose_heap_overflows_is_done_again(runner: str, settings: dict[str, str], tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(server_for(runner, tmp_path, settings=settings))
        ended = stack.enter_context(server.watched()) if server is not None else []
        stack.callback(spark.stop)
        captured = run(overflowing(tmp_path, server, 1)).captured("out")
    assert sorted((time[0], k) for time, batch in captured for k in as_polars(batch)["k"]) == [
        (epoch, k + 1) for epoch in range(2) for k in range(ROWS)
    ]
    assert sorted(path.name for path in tmp_path.glob("call-*")) == ["call-0-0", "call-0-1", "call-1-0", "call-1-1"]
    assert len(ended) == 2 or not settings, ended


@pytest.mark.parametrize("runner", RUNNERS)
def test_heap_that_overflows_in_each_attempt_is_an_error_that_says_so(runner: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(server_for(runner, tmp_path))
        if server is not None:
            stack.enter_context(server.watched())
        stack.callback(spark.stop)
        with pytest.raises(
            FalkirkError, match=r"(?s)'history'.*Spark has failed 2 times.*(OutOfMemoryError|Java heap space)"
        ):
            run(overflowing(tmp_path, server, 9))
    assert len(list(tmp_path.glob("call-*"))) == 2
