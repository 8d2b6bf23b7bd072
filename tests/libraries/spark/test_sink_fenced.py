"""A sink whose worker, child or Spark is killed in the midst of a write: the next attempt begins when that one is over."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from libraries import spark
from libraries.spark.dataflow.placement import home
from libraries.spark.dataflow.runner import SparkRunner
from libraries.spark.files.parquet import input_stem, output_name, write_input
from libraries.spark.files.schemas import write_schema
from libraries.spark.process.host import Given
from recovery.policies import Lazy
from runtime.program import Program
from runtime.run import run
from runtime.supervisor.supervisor import Job
from runtime.workspace import Workspace
from tests.libraries.spark.connect_server import ConnectServer, connect_server
from tests.support.beside import run_beside
from tests.support.processes import gone, wait_for
from timely.data.batch import as_polars
from timely.dataflow.dataflow import Dataflow
from timely.io import Batches

pytestmark = pytest.mark.spark

ROWS, WIDE = 40, 400
LOCAL = spark.SparkOptions(memory="1g", nice=0, config=(("spark.sql.shuffle.partitions", "2"),))


def says(folder: str, what: str, text: str) -> None:
    """A file that is whole when it is there."""
    Path(folder, f"{what}.new").write_text(text)
    Path(folder, f"{what}.new").rename(Path(folder, what))


def slow_write(folder: str) -> Any:
    """A sink's function whose write is planned for a second or more, and whose tasks then take as long."""

    def write(df: Any, epoch: int, attempt: int) -> None:
        from pyspark.sql import functions as F

        def slowly(batches: Any) -> Any:
            for batch in batches:
                time.sleep(1)
                with open(f"{folder}/worked-{epoch}-{attempt}", "a") as file:
                    file.write(".")
                yield batch

        columns = [
            F.expr(f"case when k % {n + 2} = 0 then k * {n} + {n} else k - {n} end").alias(f"c{n}") for n in range(WIDE)
        ]
        wide = df.repartition(2).select("k", *columns)
        slow = wide.mapInArrow(slowly, wide.schema)
        says(folder, f"began-{epoch}-{attempt}", str(os.getpid()))
        slow.write.mode("overwrite").parquet(f"{folder}/out/epoch={epoch}")
        says(folder, f"wrote-{epoch}-{attempt}", "")

    return write


def written(folder: str, options: Any = LOCAL, epochs: int = 1) -> Dataflow:
    flow = Dataflow("written")
    with flow.region("front", policy=Lazy(every=0.1)):
        rows = flow.columns("rows", Batches([pl.DataFrame({"k": range(ROWS)}) for _ in range(epochs)]))
    spark.sink(rows, slow_write(folder), options=options, name="sink")
    return flow


def rows_of(folder: Path, epoch: int = 0) -> Counter[int]:
    files = sorted((folder / f"out/epoch={epoch}").glob("*.parquet"))
    return Counter(k for file in files for k in pl.read_parquet(file)["k"])


def each_once() -> Counter[int]:
    return Counter(range(ROWS))


def check_that_the_first_was_over(folder: Path) -> None:
    """The first attempt at epoch 0 was: no task of it was at work when the second one began, or later."""
    assert not (folder / "wrote-0-0").exists()
    worked, began = folder / "worked-0-0", sorted(folder.glob("began-0-*"))
    assert not worked.exists() or worked.stat().st_mtime < began[1].stat().st_mtime
    assert rows_of(folder) == each_once()


def kill_the_child(tmp_path: Path, after: float, options: spark.SparkOptions) -> None:
    """So long after its function has begun to write."""

    def kill() -> None:
        wait_for((tmp_path / "began-0-0").exists)
        time.sleep(after)
        os.kill(int((tmp_path / "began-0-0").read_text()), signal.SIGKILL)

    try:
        run_beside(lambda: run(written(str(tmp_path), options)), kill)
        time.sleep(6)  # in which what was not over would come
    finally:
        spark.stop()
    check_that_the_first_was_over(tmp_path)


@pytest.mark.parametrize("after", [0.1, pytest.param(1.5, marks=pytest.mark.soak)])
def test_write_that_is_planned_when_its_child_is_killed_is_over_before_the_next_attempt(
    after: float, tmp_path: Path
) -> None:
    kill_the_child(tmp_path, after, LOCAL)


@pytest.mark.soak
def test_the_same_on_a_spark_connect_server(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    with connect_server(tmp_path / "server") as server:
        kill_the_child(tmp_path, 0.1, spark.SparkOptions(connect=server.address, nice=0))


def test_child_at_a_standstill_is_ended_before_the_next_attempt(tmp_path: Path) -> None:
    """Its worker is killed, and a moment after the next attempt has begun it would go on."""
    job = Job(Program(flow=written, args={"folder": str(tmp_path)}), 2, tmp_path / "store")

    def stop() -> None:
        wait_for((tmp_path / "began-0-0").exists)
        child = int((tmp_path / "began-0-0").read_text())
        os.kill(child, signal.SIGSTOP)
        os.kill(job.pids[home(2)], signal.SIGKILL)
        wait_for(lambda: gone(child))

    run_beside(job.run, stop)
    assert (tmp_path / "began-0-1").exists(), "an attempt of another worker has a number of its own"
    check_that_the_first_was_over(tmp_path)


def test_function_of_a_sink_that_is_not_wanted_any_more_is_over_before_the_next_run(tmp_path: Path) -> None:
    """Within one child: here the run is given up, as it is when another worker has died."""
    given_up = threading.Event()
    runner = SparkRunner("sink", slow_write(str(tmp_path)), {}, LOCAL, "sink")
    workspace = Workspace(tmp_path / "files")
    rows = pa.table({"k": range(ROWS)})
    file = write_input(workspace.folder("sink/in"), input_stem("input", 0, 0, "0"), [rows])

    class Context:
        durable = False
        folder = staticmethod(workspace.folder)

        def __init__(self, stopped: Callable[[], bool]) -> None:
            self._stopped = stopped

        @property
        def stopped(self) -> bool:
            return self._stopped()

        def report(self, what: str, done: int = 0, total: int = 0) -> None: ...

        def note(self, text: str) -> None: ...

    def attempt(stopped: Callable[[], bool]) -> None:
        inputs = {"input": (write_schema(rows.schema), [file])}
        runner.run(Context(stopped), inputs, {}, str(workspace.folder("sink/out") / output_name(0)), 0)

    def give_up() -> None:
        wait_for((tmp_path / "began-0-0").exists)
        time.sleep(0.1)
        given_up.set()

    try:
        with pytest.raises(Given):
            run_beside(lambda: attempt(given_up.is_set), give_up)
        attempt(lambda: False)
        time.sleep(6)
    finally:
        spark.stop()
    check_that_the_first_was_over(tmp_path)


# Whoever is killed, whenever

EPOCHS = 5


def told(folder: str, connect: str | None = None) -> Dataflow:
    """A source and a sink; both say who runs them, and take their time. What the sink writes has the number of its attempt."""
    options = LOCAL if connect is None else spark.SparkOptions(connect=connect, nice=0)
    options = replace(options, retries=9)

    def tell(session: Any) -> None:
        java = 0 if connect else session._jvm.java.lang.ProcessHandle.current().pid()
        says(folder, "now", f"{os.getpid()} {java}")

    def slowly(batches: Any) -> Any:
        for batch in batches:
            time.sleep(0.2)
            yield batch

    def read(session: Any) -> Any:
        tell(session)
        rows = session.range(ROWS * EPOCHS).repartition(4)
        return rows.mapInArrow(slowly, rows.schema)

    def write(df: Any, epoch: int, attempt: int) -> None:
        tell(df.sparkSession)
        tried = Path(folder, "tries", f"{epoch}-{attempt}")
        assert not tried.exists()
        tried.touch()
        df.mapInArrow(slowly, df.schema).write.mode("overwrite").parquet(f"{folder}/out/epoch={epoch}")
        df.write.parquet(f"{folder}/by-attempt/{epoch}-{attempt}")

    Path(folder, "tries").mkdir(exist_ok=True)
    flow = Dataflow("told")
    with flow.region("front", policy=Lazy(every=0.1)):
        rows = flow.columns("rows", Batches([pl.DataFrame({"k": range(ROWS)}) for _ in range(EPOCHS)]))
    spark.sink(rows, write, options=options, name="sink")
    found = spark.source(flow, read, options=options, name="source")
    found.capture("found")
    return flow


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("connect", [False, True])
def test_every_row_is_read_and_written_once_whoever_is_killed(seed: int, connect: bool, tmp_path: Path) -> None:
    with ExitStack() as stack:
        server: ConnectServer | None = None
        arguments = {"folder": str(tmp_path)}
        if connect:
            (tmp_path / "server").mkdir()
            server = stack.enter_context(connect_server(tmp_path / "server"))
            arguments["connect"] = server.address
        job = Job(Program(flow=told, args=arguments), 2, tmp_path / "store")
        killed: list[str] = []

        def strike() -> None:
            rng = random.Random(seed)
            victims = ["child", "worker", "java", "child", "other"]
            for number, victim in enumerate(rng.sample(victims, len(victims))):
                wait_for(lambda number=number: len(list((tmp_path / "tries").iterdir())) > number)  # type: ignore[misc]
                time.sleep(rng.random() * 1.5)
                child, java = map(int, (tmp_path / "now").read_text().split())
                if victim == "java" and server is not None:
                    server.kill()
                    server.start()
                    continue
                pids = {"child": child, "java": java, "worker": job.pids[home(2)], "other": job.pids[1 - home(2)]}
                with suppress(ProcessLookupError):  # it has just died with another, or all is done
                    os.kill(pids[victim], signal.SIGKILL)
                    killed.append(victim)

        result = run_beside(job.run, strike)
    assert len(killed) >= 3, killed
    assert [rows_of(tmp_path, epoch) for epoch in range(EPOCHS)] == [each_once()] * EPOCHS
    found = Counter(k for _, batch in result.captured("found") for k in as_polars(batch)["id"])
    assert found == Counter(range(ROWS * EPOCHS))
