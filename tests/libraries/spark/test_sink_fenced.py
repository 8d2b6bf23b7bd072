"""A sink whose worker, child or Spark is killed in the midst of a write: the next attempt begins when that one is over."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark.dataflow.placement import home
from libraries.spark.dataflow.runner import SparkRunner
from libraries.spark.files.parquet import input_stem, output_name, write_input
from libraries.spark.files.schemas import write_schema
from libraries.spark.host.client_process import NotWanted
from recovery.policy import Lazy
from runtime.folders.workspace import Workspace
from runtime.program import Program
from runtime.run import run
from runtime.supervisor.supervisor import Job
from tests.libraries.spark.connect_server import RUNNERS, ConnectServer, server_for
from tests.support.beside import run_beside
from tests.support.processes import gone, wait_for
from timely.data.batch import as_polars
from timely.io import Batches

pytestmark = [pytest.mark.spark, pytest.mark.check]

ROWS = 40
PLANNED_SECONDS, WORKED_SECONDS = 5, 2
"""Seconds for which the write of a first attempt is planned, and then its tasks are at work."""


def options_for(connect: str | None) -> spark.SparkOptions:
    """Those of a Java of the job's own, or of the server at the address `connect`."""
    if connect is not None:
        return spark.SparkOptions(connect=connect, nice=0, retries=9)
    return spark.SparkOptions(memory="1g", nice=0, retries=9, config=(("spark.sql.shuffle.partitions", "2"),))


def says(folder: str, what: str, text: str) -> None:
    """A file that is whole when it is there."""
    Path(folder, f"{what}.new").write_text(text)
    Path(folder, f"{what}.new").rename(Path(folder, what))


def slow_write(folder: str, connect: str | None = None) -> Any:
    """A sink's function whose first attempt takes long: to be planned, where there is a file `plans`, or in its tasks.

    All that takes long is Java's: what goes through Python fails with the child. Spark computes the query of one row while it
    plans, and as long as nothing of the write is a job, it cannot be cancelled. A file for each attempt has the process ids of
    the child and of Java (0: it is elsewhere).
    """

    def write(df: Any, epoch: int, attempt: int) -> None:
        def sleeps(seconds: float) -> str:
            return f"reflect('java.lang.Thread', 'sleep', {0 if attempt else round(1000 * seconds)}L) as slept"

        plans = os.path.exists(f"{folder}/plans")
        session = df.sparkSession
        java = 0 if connect else session._jvm.java.lang.ProcessHandle.current().pid()
        says(folder, f"began-{epoch}-{attempt}", f"{os.getpid()} {java}")
        planned = session.sql(f"select {sleeps(PLANNED_SECONDS if plans else 0)} from values (0) as rows (one)")
        rows = (
            df.coalesce(1)
            .selectExpr("k", sleeps(0 if plans else WORKED_SECONDS / ROWS))
            .drop("slept")
            .crossJoin(planned)
        )
        says(folder, f"writes-{epoch}-{attempt}", "")
        rows.write.mode("overwrite").parquet(f"{folder}/out/{epoch}-{attempt}")
        says(folder, f"wrote-{epoch}-{attempt}", "")

    return write


def written(folder: str, connect: str | None = None) -> Dataflow:
    flow = Dataflow("written")
    with flow.region("front", policy=Lazy(every=0.1)):
        rows = flow.columns("rows", Batches([pl.DataFrame({"k": range(ROWS)})]))
    spark.sink(rows, slow_write(folder, connect), options=options_for(connect), name="sink")
    return flow


def arguments(folder: Path, server: ConnectServer | None) -> dict[str, str]:
    """Those of a dataflow of this module."""
    return {"folder": str(folder)} | ({} if server is None else {"connect": server.address})


def first_child(folder: Path) -> int:
    """The child that has begun the first attempt at epoch 0."""
    return int((folder / "began-0-0").read_text().split()[0])


def rows_of(folder: Path) -> Counter[int]:
    files = sorted(folder.glob("*.parquet"))
    return Counter(k for file in files for k in pl.read_parquet(file)["k"])


def each_once() -> Counter[int]:
    return Counter(range(ROWS))


def check_that_the_first_was_over(folder: Path) -> None:
    """The first attempt at epoch 0 was when the second one began: it wrote nothing then, or later. Java lives on."""
    time.sleep(PLANNED_SECONDS)  # in which what was not over would come
    first, (_, second) = folder / "out/0-0", sorted(folder.glob("began-0-*"))
    assert not (folder / "wrote-0-0").exists()
    changed = [path.stat().st_mtime for path in (first, *first.rglob("*")) if path.exists()]
    assert max(changed, default=0) < second.stat().st_mtime
    assert len({each.read_text().split()[1] for each in folder.glob("began-0-*")}) == 1
    assert rows_of(folder / "out/0-1") == each_once()


@pytest.mark.parametrize(
    ("runner", "when"),
    [
        ("local", "plans"),
        *(
            pytest.param(*each, marks=pytest.mark.soak)
            for each in [("local", "works"), ("connect", "plans"), ("connect", "works")]
        ),
    ],
)
def test_write_whose_child_is_killed_while_spark_plans_it_or_is_at_work_is_over_before_the_next_attempt(
    runner: str, when: str, tmp_path: Path
) -> None:
    def kill() -> None:
        wait_for(
            (tmp_path / "writes-0-0").exists
            if when == "plans"
            else lambda: list((tmp_path / "out/0-0").rglob("part-*"))
        )
        time.sleep(0.1)
        os.kill(first_child(tmp_path), signal.SIGKILL)

    if when == "plans":
        (tmp_path / "plans").touch()
    with server_for(runner, tmp_path) as server:
        try:
            run_beside(lambda: run(written(**arguments(tmp_path, server))), kill)
            check_that_the_first_was_over(tmp_path)
        finally:
            spark.stop()


@pytest.mark.parametrize("runner", ["local", pytest.param("connect", marks=pytest.mark.soak)])
def test_child_at_a_standstill_is_ended_before_the_next_attempt(runner: str, tmp_path: Path) -> None:
    """Its worker is killed, and a moment after the next attempt has begun it would go on."""
    (tmp_path / "plans").touch()
    with server_for(runner, tmp_path) as server:
        job = Job(Program(flow=written, args=arguments(tmp_path, server)), 2, tmp_path / "store")

        def stop() -> None:
            wait_for((tmp_path / "writes-0-0").exists)
            child = first_child(tmp_path)
            os.kill(child, signal.SIGSTOP)
            os.kill(job.pids[home(2)], signal.SIGKILL)
            wait_for(lambda: gone(child))

        run_beside(job.run, stop)
    assert (tmp_path / "began-0-1").exists(), "an attempt of another worker has a number of its own"
    check_that_the_first_was_over(tmp_path)


@pytest.mark.parametrize("runner", ["local", pytest.param("connect", marks=pytest.mark.soak)])
def test_function_of_a_sink_that_is_not_wanted_any_more_is_over_before_the_next_run(
    runner: str, tmp_path: Path
) -> None:
    """Within one child: here the run is given up, as it is when another worker has died."""
    (tmp_path / "plans").touch()
    with server_for(runner, tmp_path) as server:
        try:
            give_up_and_do_it_again(tmp_path, None if server is None else server.address)
            check_that_the_first_was_over(tmp_path)
        finally:
            spark.stop()


def give_up_and_do_it_again(tmp_path: Path, connect: str | None) -> None:
    """The run of a sink."""
    given_up = threading.Event()
    runner = SparkRunner("sink", slow_write(str(tmp_path), connect), {}, options_for(connect), "sink")
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
        wait_for((tmp_path / "writes-0-0").exists)
        time.sleep(0.1)
        given_up.set()

    with pytest.raises(NotWanted):
        run_beside(lambda: attempt(given_up.is_set), give_up)
    attempt(lambda: False)


# Whoever is killed, whenever

EPOCHS = 5


def told(folder: str, connect: str | None = None) -> Dataflow:
    """A source and a sink; both say who runs them, and take their time. What the sink writes has the number of its attempt."""
    options = options_for(connect)

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
@pytest.mark.parametrize("runner", RUNNERS)
def test_every_row_is_read_and_written_once_whoever_is_killed(seed: int, runner: str, tmp_path: Path) -> None:
    with server_for(runner, tmp_path) as server:
        job = Job(Program(flow=told, args=arguments(tmp_path, server)), 2, tmp_path / "store")
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
    assert [rows_of(tmp_path / f"out/epoch={epoch}") for epoch in range(EPOCHS)] == [each_once()] * EPOCHS
    found = Counter(k for _, batch in result.captured("found") for k in as_polars(batch)["id"])
    assert found == Counter(range(ROWS * EPOCHS))
