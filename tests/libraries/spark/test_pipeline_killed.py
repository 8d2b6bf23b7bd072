"""Pipelines of regions that hand files to each other and to tables, of which worker, child and Java are killed in turn.

All is done on a Spark Connect server, too, which is killed in place of Java, and started again.
"""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from falkirk.job_memory import job_processes
from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.connect import Parquet
from libraries.spark.dataflow.placement import home
from recovery.policy import Batch, Lazy
from recovery.store.local import LocalStore
from runtime.page.recorded import RecordedJob
from runtime.program import Program
from runtime.run import run
from runtime.session.job import Result
from runtime.supervisor.supervisor import Job
from tests.falkirk.test_what_if_command import HALT, LAST, Halting, at_rest, bounds_of
from tests.libraries.spark.connect_server import RUNNERS, ConnectServer, server_for
from tests.support.beside import run_beside
from tests.support.processes import wait_for
from timely.data.batch import as_polars
from timely.io import Batches

pytestmark = [pytest.mark.spark, pytest.mark.soak]

EPOCHS, ROWS = 14, 2_000
OPTIONS = spark.SparkOptions(memory="1g", nice=0, retries=9, config=(("spark.sql.shuffle.partitions", "2"),))
VICTIMS = ("child", "worker", "java", "other", "child", "worker")


def epoch(number: int) -> list[pl.DataFrame]:
    """Two batches, one for each worker."""
    return [
        pl.DataFrame({"k": range(half, ROWS, 2)}).with_columns(v=pl.col("k") % 7 + number, n=number) for half in (0, 1)
    ]


def options_for(connect: str | None, shared: bool | None = None) -> spark.SparkOptions:
    """Those of a Java of the job's own, or of the server at the address `connect`."""
    if connect is None:
        return OPTIONS
    return spark.SparkOptions(connect=connect, shared=shared, nice=0, retries=9, config=OPTIONS.config)


def cleans(folder: str, connect: str | None) -> Any:
    """A region's function, which leaves the process ids of this child and of Java (0: it is elsewhere) for who strikes."""

    def cleaned(df: Any) -> Any:
        java = 0 if connect else df.sparkSession._jvm.java.lang.ProcessHandle.current().pid()
        Path(folder, "now.new").write_text(f"{os.getpid()} {java}")
        Path(folder, "now.new").rename(Path(folder, "now"))
        return df.where("k % 5 > 0")

    return cleaned


def pipeline(folder: str, connect: str | None = None, shared: bool | None = None) -> Dataflow:
    options = options_for(connect, shared)
    flow = Dataflow("pipeline")
    cells = flow.columns("in", Batches([batch for number in range(EPOCHS) for batch in epoch(number)], per_epoch=2))
    with flow.region("history", policy=Batch(log_outputs=True)):
        clean = spark.batch(cells, cleans(folder, connect), name="clean", options=options, checkpoint=0.1)
        so_far = spark.batch(
            *(clean, "select k % 10 as k, sum(v) as s from input group by 1"),
            **{"over": "all", "every": 2, "options": options, "name": "so-far", "checkpoint": 0.3},
        )
        grand = spark.batch(
            {"totals": so_far, "rows": cells},
            "select max(n) as n, (select sum(s) from totals) as s from rows",
            **{"over": 2, "every": 2, "options": options, "name": "grand", "checkpoint": 0.1},
        )
    spark.write(clean, Path(folder) / "clean", name="clean-table")
    spark.write(cells, Path(folder) / "rows", name="rows-table")
    spark.write(so_far, Path(folder) / "so-far", name="so-far-table")
    counted = grand.to_records().map(lambda row: (0, 1)).keyed().sum(name="sum").policy(Lazy(every=0.1))
    counted.records().capture("runs")
    grand.capture("sums so far")
    return flow


def table(folder: Path) -> pl.DataFrame:
    """The rows that Spark would read."""
    return pl.read_parquet(folder / "epoch=*/*.parquet", hive_partitioning=True)


def struck(seed: int, tmp_path: Path, flow: Any, server: ConnectServer | None) -> Result:
    """Run the job, and strike in an order that the seed gives, each time when the table `clean` has two epochs more."""
    arguments: dict[str, Any] = {"folder": str(tmp_path)}
    if server is not None:
        arguments |= {"connect": server.address, "shared": bool(seed % 2)}
    job = Job(Program(flow=flow, args=arguments), 2, tmp_path / "store")
    rng = random.Random(seed)
    killed: list[str] = []

    def strike() -> None:
        for number, victim in enumerate(rng.sample(VICTIMS, len(VICTIMS)), 1):
            wait_for(lambda number=number: len(list((tmp_path / "clean").glob("epoch=*"))) >= 2 * number)  # type: ignore[misc]
            time.sleep(rng.random() / 2)
            child, java = map(int, (tmp_path / "now").read_text().split())
            if number == 1:
                names = {each.pid: each.name for each in job_processes(tmp_path / "store")}
                assert names[child] == "Spark client"
                assert {"the command", "fork server", "worker", "monitor", "Spark daemon"} < set(names.values())
                assert (names[java] if java else None) == ("Java of Spark" if java else None)
            here = home(2)
            try:
                if victim == "java" and server is not None:
                    server.kill()
                    server.start()
                else:
                    # One that was struck may not be there again; or all of the epochs came at once.
                    wait_for(lambda: len(job.pids) == 2 or job.over is not None)
                    if job.over is not None:
                        return
                    workers = {"worker": job.pids[here], "other": job.pids[1 - here]}
                    os.kill({"child": child, "java": java, **workers}[victim], signal.SIGKILL)
                killed.append(victim)
            except ProcessLookupError:  # it has just died with another
                continue

    result = run_beside(job.run, strike)
    assert len(killed) >= len(VICTIMS) - 2, killed
    return result


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("runner", RUNNERS)
def test_every_row_comes_once_through_regions_and_tables_that_share_files_whoever_is_killed(
    runner: str, seed: int, tmp_path: Path
) -> None:
    with server_for(runner, tmp_path) as server:
        result = struck(seed, tmp_path, pipeline, server)
    rows = pl.concat([pl.concat(epoch(number)).with_columns(epoch=number) for number in range(EPOCHS)])
    rows = rows.with_columns(pl.col("epoch").cast(pl.Int64))
    found = table(tmp_path / "rows").with_columns(pl.col("epoch").cast(pl.Int64))
    assert found.sort("epoch", "k").equals(rows.sort("epoch", "k"))
    clean = rows.filter(pl.col("k") % 5 > 0)
    found = table(tmp_path / "clean").with_columns(pl.col("epoch").cast(pl.Int64))
    assert found.sort("epoch", "k").equals(clean.sort("epoch", "k"))
    totals = {
        due: dict(clean.filter(pl.col("n") <= due).group_by(pl.col("k") % 10).agg(pl.col("v").sum()).rows())
        for due in range(1, EPOCHS, 2)
    }
    got: dict[int, dict[int, int]] = {}
    for k, s, due in table(tmp_path / "so-far").select("k", "s", "epoch").rows():
        assert k not in got.setdefault(due, {})
        got[due][k] = s
    assert got == totals
    grand = {time[0]: as_polars(batch).rows() for time, batch in result.captured("sums so far")}
    assert grand == {due: [(due, sum(sums.values()))] for due, sums in totals.items()}
    assert [sum(n for _, n in pairs) for _, pairs in result.captured("runs")] == list(range(1, EPOCHS // 2 + 1))


def in_one_query(folder: str, connect: str | None = None, shared: bool | None = None) -> Dataflow:
    """On a Java of the job's own. On a server each step is a query."""
    options = options_for(connect, shared)

    def doubled(df: Any) -> Any:
        from pyspark.sql import functions as F

        return df.select("k", F.udf(lambda v: 2 * v, "long")("v").alias("v"))

    flow = Dataflow("in one query")
    cells = flow.columns("in", Batches([batch for number in range(EPOCHS) for batch in epoch(number)], per_epoch=2))
    with flow.region("history", policy=Batch(log_outputs=True)):
        clean = spark.batch(cells, cleans(folder, connect), name="one", options=options, checkpoint=0.1)
        twice = spark.batch(clean, doubled, name="two", options=options, checkpoint=0.2)
        sums = spark.batch(
            *(twice, "select k % 10 as k, sum(v) as s from input group by 1"),
            **{"options": options, "name": "three", "checkpoint": 0.1},
        )
    spark.write(sums, Path(folder) / "clean", name="sums-table")
    return flow


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("runner", RUNNERS)
def test_steps_in_one_query_give_every_row_once_whoever_is_killed(runner: str, seed: int, tmp_path: Path) -> None:
    with server_for(runner, tmp_path) as server:
        struck(seed, tmp_path, in_one_query, server)
    rows = pl.concat([batch.with_columns(epoch=number) for number in range(EPOCHS) for batch in epoch(number)])
    right = rows.filter(pl.col("k") % 5 > 0).group_by(pl.col("k") % 10, "epoch").agg(s=2 * pl.col("v").sum())
    found = table(tmp_path / "clean").with_columns(pl.col("epoch").cast(pl.Int64))
    assert sorted(found.select("k", "s", "epoch").rows()) == sorted(right.select("k", "s", "epoch").rows())


SHOPS = ["north", "10:30=[x]", "a/b %", None]


def divided(folder: str, connect: str | None = None, shared: bool | None = None) -> Dataflow:
    options = options_for(connect, shared)
    flow = Dataflow("divided")
    batches = [with_shops(batch) for number in range(EPOCHS) for batch in epoch(number)]
    cells = flow.columns("in", Batches(batches, per_epoch=2))
    with flow.region("history", policy=Batch(log_outputs=True)):
        clean = spark.batch(cells, cleans(folder, connect), name="clean", options=options, checkpoint=0.1)
    spark.write(clean, Path(folder) / "clean", partition_by=["shop", "even"], name="clean-table")
    spark.write(cells, Path(folder) / "rows", partition_by=["day", "shop"], name="rows-table")
    return flow


def with_shops(batch: pl.DataFrame) -> pl.DataFrame:
    return batch.with_columns(
        shop=pl.Series([SHOPS[k % 4] for k in batch["k"]]),
        even=pl.col("k") % 2 == 0,
        day=pl.date(2024, 5, 1) + pl.duration(days=pl.col("n") % 3),
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("runner", RUNNERS)
def test_tables_in_folders_by_value_have_every_row_once_whoever_is_killed(
    runner: str, seed: int, tmp_path: Path
) -> None:
    """Read back by Spark, and by a dataflow that is told the types of the folders."""
    with server_for(runner, tmp_path) as server:
        struck(seed, tmp_path, divided, server)
        result = run(back(tmp_path, options_for(None if server is None else server.address)))
    rows = pl.concat(
        [with_shops(batch).with_columns(epoch=number) for number in range(EPOCHS) for batch in epoch(number)]
    )
    rows = rows.with_columns(pl.col("epoch").cast(pl.Int64))
    wanted = {"rows": rows, "clean": rows.filter(pl.col("k") % 5 > 0)}
    for name, right in wanted.items():
        for way in ("back", "by Spark"):
            found = pl.concat([as_polars(batch).select(right.columns) for _, batch in result.captured(f"{name} {way}")])
            found = found.with_columns(pl.col("epoch").cast(pl.Int64))
            assert found.sort(pl.all()).equals(right.sort(pl.all())), (name, way)


def back(folder: Path, options: spark.SparkOptions) -> Dataflow:
    """The tables, read by a dataflow and by Spark."""
    folders: dict[str, Any] = {"epoch": int, "shop": str, "even": bool, "day": pl.Date}
    flow = Dataflow("back")
    for name, by in (("rows", ("day", "shop")), ("clean", ("shop", "even"))):
        types = {each: folders[each] for each in ("epoch", *by)}
        source = Parquet(str(folder / name / "epoch=*/*/*/*.parquet"), folders=types)
        flow.columns(name, source).capture(f"{name} back")
        schema = "k long, v long, n long, shop string, even boolean, day date, epoch long"
        table = partial(table_of, str(folder / name), schema)
        spark.source(flow, table, options=options, name=f"{name}-spark").capture(f"{name} by Spark")
    return flow


def table_of(folder: str, schema: str, session: Any) -> Any:
    return session.read.schema(schema).parquet(folder)


class Repeated(Halting):
    """One that says that its epochs are always the same."""

    repeats = True


def halting(folder: str, connect: str | None = None) -> Dataflow:
    def sums(rows: Any, epoch: int) -> Any:
        with open(f"{folder}/ran", "a") as file:
            file.write(f"{epoch}\n")
        return rows.groupBy("k").sum("v").toDF("k", "s")

    flow = Dataflow("halting")
    with flow.region("all", policy=Lazy(every=100)):  # nothing is saved before the end
        rows = flow.source("numbers", Repeated(f"{folder}/go")).map(lambda n: {"k": n % 7, "v": n}).to_columns()
        found = spark.batch(rows, sums, name="sums", options=options_for(connect), checkpoint=100)
        found.to_records().map(lambda row: (0, row["s"])).keyed().sum(name="sum").records().capture("out")
    return flow


@pytest.mark.parametrize("runner", RUNNERS)
def test_who_lives_keeps_what_is_behind_a_region_as_it_was_predicted_and_no_run_is_done_again(
    runner: str, tmp_path: Path
) -> None:
    with server_for(runner, tmp_path) as server:
        arguments = {"folder": str(tmp_path)} | ({} if server is None else {"connect": server.address})
        kill_while_it_halts(tmp_path, arguments)


def kill_while_it_halts(tmp_path: Path, arguments: dict[str, str]) -> None:
    decisions: list[dict[str, Any]] = []
    job = Job(
        Program(flow=halting, args=arguments),
        2,
        tmp_path / "store",
        on_event=lambda kind, at, data: decisions.append(data) if kind == "decided" else None,
    )
    found: list[Any] = []

    def strike() -> None:
        try:
            wait_for(lambda: (tmp_path / "ran").exists() and len((tmp_path / "ran").read_text().split()) >= HALT)
            found.append(at_rest(str(tmp_path / "store"), [f"worker:{home(2)}"]))
            os.kill(job.pids[home(2)], signal.SIGKILL)
            wait_for(lambda: len(decisions) > 1)
        finally:
            (tmp_path / "go").touch()

    result = run_beside(job.run, strike)
    (*_, (_, last)) = sorted(result.captured("out"))
    assert last == [(0, sum(range(40, 40 * (LAST + 1))))]
    with closing(LocalStore(tmp_path / "store")) as local:
        decision = RecordedJob(local).saved.decision
    assert decision is not None
    decided = {(p, w): bound for w, of in enumerate(decision.bounds) for p, bound in enumerate(of)}
    assert decided == bounds_of(found[0])
    assert {bound for (_, w), bound in decided.items() if w != home(2)} == {None}
    assert (0,) in decided.values()
    assert sorted(map(int, (tmp_path / "ran").read_text().split())) == list(range(LAST))
