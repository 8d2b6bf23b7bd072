"""Spark's streaming queries as sources, and tables for it: with a real Spark, which is killed, too."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark.dataflow.placement import home
from libraries.spark.host.host import SparkHost, host_of
from recovery.policy import Lazy
from runtime.folders.workspace import Workspace
from runtime.program import Program
from runtime.run import run
from runtime.session.job import Result
from runtime.session.session import Session
from runtime.supervisor.supervisor import Job
from tests.libraries.spark.following import (
    goes_on_where_it_was_when_somebody_stops_it,
    says_how_far_it_is,
    says_that_it_waits_for_its_time,
)
from tests.support.beside import run_beside
from tests.support.processes import wait_for
from timely.data.batch import as_polars
from timely.errors import FalkirkError
from timely.io import Batches, Iterable
from timely.io.interface import Chunk, End, Position, Wait

pytestmark = [pytest.mark.spark, pytest.mark.check]

OPTIONS = spark.SparkOptions(memory="1g", nice=0, retries=1, config=(("spark.sql.shuffle.partitions", "2"),))
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


@pytest.fixture(scope="module", autouse=True)
def one_spark() -> Iterator[SparkHost]:
    """All tests of this module share one Spark, as far as they do not kill it."""
    host = host_of(OPTIONS)
    host.warm()
    yield host
    spark.stop()


def rows(number: int, count: int = 100) -> pl.DataFrame:
    return pl.DataFrame({"k": range(number * count, (number + 1) * count)}).with_columns(v=pl.col("k") % 7)


def put(folder: Path, *numbers: int, count: int = 100) -> None:
    """Files come into a folder, one after the other."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        hidden = folder / f".{number}"
        rows(number, count).write_parquet(hidden)
        os.utime(hidden, (1_600_000_000 + number,) * 2)  # by which Spark orders them
        hidden.rename(folder / f"{number:04}.parquet")


def reading(source: spark.Stream) -> Dataflow:
    flow = Dataflow("stream")
    flow.columns("in", source).capture("out")
    return flow


def epochs(result: Result) -> dict[int, pl.DataFrame]:
    found: dict[int, list[pl.DataFrame]] = {}
    for (epoch, *_), batch in result.captured("out"):
        found.setdefault(epoch, []).append(as_polars(batch))
    return {epoch: pl.concat(parts).sort("k") for epoch, parts in sorted(found.items())}


# As a source


def test_each_micro_batch_is_an_epoch_and_all_of_it_comes_once(tmp_path: Path) -> None:
    put(tmp_path / "in", *range(3))
    source = spark.Stream.files(tmp_path / "in", SCHEMA, per_batch=1, available_now=True, options=OPTIONS)
    found = epochs(run(reading(source)))
    assert found.keys() == {0, 1, 2}
    assert all(found[number].equals(rows(number)) for number in found)


@pytest.mark.soak
def test_a_million_rows_after_a_batch_without_any(tmp_path: Path) -> None:
    put(tmp_path / "in", 0, 1, count=1_000_000)
    source = spark.Stream.files(
        tmp_path / "in",
        SCHEMA,
        per_batch=1,
        available_now=True,
        sql="select k, v from input where k >= 1000000",
        options=OPTIONS,
    )
    found = epochs(run(reading(source)))
    assert found.keys() == {1}
    assert found[1].equals(rows(1, 1_000_000))


@pytest.mark.soak
def test_aggregating_query_with_state_in_spark_updates_what_changes(tmp_path: Path) -> None:
    put(tmp_path / "in", *range(3))
    source = spark.Stream.files(
        tmp_path / "in",
        SCHEMA,
        per_batch=1,
        sql="select v % 2 as k, count(*) as n from input group by 1",
        output_mode="update",
        available_now=True,
        options=OPTIONS,
    )
    found = epochs(run(reading(source)))
    for number, frame in found.items():
        seen = pl.concat([rows(each) for each in range(number + 1)])
        assert frame.rows() == sorted(seen.group_by(pl.col("v") % 2).len().rows())
    assert found.keys() == {0, 1, 2}


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_killed_java_goes_on_from_its_checkpoint_without_loss_or_repetition(
    how: signal.Signals, one_spark: SparkHost, tmp_path: Path
) -> None:
    put(tmp_path / "in", *range(6))
    killed: list[int] = []

    def strike(batch: Any) -> None:
        if not killed:
            pid = one_spark.pid
            assert pid is not None
            killed.append(pid)
            os.kill(pid, how)

    flow = Dataflow("killed")
    source = spark.Stream.files(tmp_path / "in", SCHEMA, per_batch=1, available_now=True, ahead=1, options=OPTIONS)
    flow.columns("in", source).inspect(strike).capture("out")
    found = epochs(run(flow))
    assert killed
    assert one_spark.pid not in (None, *killed)
    assert [*found] == [*range(len(found))]
    assert len(found) >= 5  # the batch that Spark was at may have the next one's file, too
    assert pl.concat(found.values()).equals(rows(0, 600))


@pytest.mark.soak
def test_batch_that_spark_does_not_know_it_has_finished_is_not_published_again(tmp_path: Path) -> None:
    put(tmp_path / "in", *range(3))
    source = spark.Stream.files(tmp_path / "in", SCHEMA, per_batch=1, available_now=True, options=OPTIONS)
    source = source.with_files(Workspace(tmp_path / "files", durable=True), "s")

    def rest(position: Position) -> list[tuple[int, int]]:
        (partition,) = source.partitions(0, 1)
        partition.seek(position)
        found = []
        while not isinstance(chunk := partition.read(), End):
            if isinstance(chunk, Chunk):
                found.append((chunk.epoch, as_polars(chunk.data)["k"].min()))
            time.sleep(0.01)
        partition.close()
        return found

    assert rest(None) == [(0, 0), (1, 100), (2, 200)]
    folder = tmp_path / "files" / "s" / "stream"
    last = folder / "batch-000000000002" / "w000" / "000000.parquet"
    before = last.stat()
    (folder / "end").unlink()
    for each in ("2", ".2.crc"):  # as if Spark had died before it wrote down that batch 2 is done
        (folder / "checkpoint" / "commits" / each).unlink()
    put(tmp_path / "in", 3)
    assert rest([3, 0]) == [(3, 300)]
    assert last.stat().st_ino == before.st_ino
    assert rest([1, 0]) == [(1, 100), (2, 200), (3, 300)]


def test_query_says_which_batch_it_is_at_how_many_rows_the_last_one_had_and_what_it_waits_for(tmp_path: Path) -> None:
    says_how_far_it_is(OPTIONS, tmp_path)


def test_query_with_a_period_says_that_it_waits_for_the_time_of_its_next_batch(tmp_path: Path) -> None:
    says_that_it_waits_for_its_time(OPTIONS, tmp_path)


@pytest.mark.parametrize("now", [True, False])
def test_query_that_somebody_else_stops_goes_on_where_it_was(now: bool, tmp_path: Path) -> None:
    goes_on_where_it_was_when_somebody_stops_it(OPTIONS, tmp_path, now)


@pytest.mark.soak
def test_spark_waits_for_the_reader(tmp_path: Path) -> None:
    put(tmp_path / "in", *range(8))
    left = tmp_path / "files"
    left.mkdir()
    most: list[int] = []

    def slow(batch: Any) -> None:
        time.sleep(0.3)
        most.append(len(list(left.glob("*/in/stream/batch-*/w*/*.parquet"))))

    os.environ["FALKIRK_FILES"] = str(left)
    try:
        flow = Dataflow("slow")
        source = spark.Stream.files(tmp_path / "in", SCHEMA, per_batch=1, available_now=True, ahead=2, options=OPTIONS)
        flow.columns("in", source).inspect(slow).capture("out")
        assert len(epochs(run(flow))) == 8
    finally:
        del os.environ["FALKIRK_FILES"]
    assert max(most) <= 4
    assert not list(left.iterdir())


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (lambda session: session.range(3), "not a stream"),
        (lambda session: 3, "returned 3 .*not a Spark DataFrame"),
        (lambda session: session.readStream.format("rate").load().select("nix"), "nix"),
        (lambda session: {}["thing"], "KeyError.*test_streams.py"),
        (lambda session: session.readStream.format("rate").load().groupBy("value").count(), "watermark"),
        (
            lambda session: session.readStream.format("rate").load().selectExpr("interval '1' month as i"),
            "column 'i' is of type",
        ),
    ],
)
def test_what_cannot_work_is_refused_at_once_with_the_users_line(what: Any, said: str) -> None:
    with pytest.raises(FalkirkError, match=f"(?s)source 'in' .*test_streams.py.*{said}") as caught:
        run(reading(spark.Stream(what, options=OPTIONS)))
    assert "has failed" not in str(caught.value)


@pytest.mark.soak
def test_query_that_fails_again_and_again_is_an_error_with_its_own_words(tmp_path: Path) -> None:
    def broken(session: Any, query: Any) -> Any:
        return session.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load().select(query("value"))

    def opens_nothing(session: Any) -> Any:
        from pyspark.sql import functions as F

        return broken(session, F.udf(lambda n: len(open(f"/nowhere/{n}").read()), "long"))

    def divides(session: Any) -> Any:
        from pyspark.sql import functions as F

        return broken(session, lambda n: F.expr(f"1 div ({n} - {n})").alias("q"))

    with pytest.raises(FalkirkError, match=r"(?s)source 'in' .*failed 2 times.*FileNotFoundError"):
        run(reading(spark.Stream(opens_nothing, options=OPTIONS)))
    with pytest.raises(FalkirkError, match=r"(?s)source 'in' .*DIVIDE_BY_ZERO") as caught:
        run(reading(spark.Stream(divides, options=OPTIONS)))
    assert "has failed" not in str(caught.value)  # the rows are to blame: once is enough


# As a table


class Reader:
    """Spark as a user has it: it counts what is in a table, again and again, and follows it as a stream."""

    def __init__(self, table: Path) -> None:
        self.table = str(table)

    def __call__(self, session: Any) -> Any:
        return (
            session.readStream.schema("k long, v long, epoch int").option("maxFilesPerTrigger", 4).parquet(self.table)
        )


def read_by_spark(table: Path) -> pl.DataFrame:
    flow = Dataflow("check")
    path = str(table)

    def read(df: Any) -> Any:
        return df.sparkSession.read.parquet(path)

    one = flow.columns("one", Batches([pl.DataFrame({"one": [1]})]))
    spark.batch(one, read, options=OPTIONS, name="check").capture("out")
    return epochs(run(flow))[0]


def batches(number: int) -> list[pl.DataFrame]:
    return [rows(2 * number), rows(2 * number + 1)]


class Held:
    """A source from which the epochs from `first` on come when a file is there."""

    def __init__(self, source: Batches, first: int, marker: Path) -> None:
        self.source, self.first, self.marker = source, first, marker

    def partitions(self, worker: int, workers: int) -> list[Any]:
        return [HeldPartition(self, partition) for partition in self.source.partitions(worker, workers)]


class HeldPartition:
    def __init__(self, of: Held, inner: Any) -> None:
        self.of, self.inner, self.next = of, inner, inner.read()

    def read(self) -> Chunk | Wait | End:
        found = self.next
        if isinstance(found, Chunk):
            if found.epoch >= self.of.first and not self.of.marker.exists():
                return Wait(0.02)
            self.next = self.inner.read()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def table_program(folder: str, count: int, marker: str | None = None) -> Dataflow:
    flow = Dataflow("table")
    source: Any = Batches([batch for n in range(count) for batch in batches(n)], per_epoch=2)
    if marker is not None:
        source = Held(source, count // 2, Path(marker))
    cells = flow.columns("in", source)
    spark.write(cells.policy(Lazy(every=2)), Path(folder) / "table", name="table")
    return flow


def expected(count: int) -> pl.DataFrame:
    return pl.concat([pl.concat(batches(n)).with_columns(epoch=pl.lit(n, dtype=pl.Int32)) for n in range(count)]).sort(
        "k"
    )


def test_spark_that_reads_and_follows_a_table_being_written_sees_whole_epochs_once(tmp_path: Path) -> None:
    """Spark reads the table whole as often as it can, and follows it as a stream, while another job writes it."""
    count, table, looked_once = 12, str(tmp_path / "table"), str(tmp_path / "looked")

    def look(df: Any) -> Any:
        found = df.sparkSession.read.parquet(table)
        Path(looked_once).touch()
        return found.groupBy("epoch").count()

    def ticks() -> Iterator[dict[str, int]]:
        wait_for(lambda: list(Path(table).glob("epoch=*")))
        while len(list(Path(table).glob("epoch=*"))) < count:
            yield {"tick": 1}

    program = Program(flow=table_program, args={"folder": str(tmp_path), "count": count, "marker": looked_once})
    writer = threading.Thread(target=run, args=(program,), kwargs={"workers": 2}, daemon=True)
    flow = Dataflow("follow")
    ticking = flow.source("ticks", Iterable(ticks, batch=1, epoch_every=1)).to_columns()
    spark.batch(ticking, look, options=OPTIONS, name="look").capture("looked")
    followed = flow.columns("follow", spark.Stream(Reader(Path(table)), options=OPTIONS)).capture("out")
    with Session(flow) as session:
        writer.start()
        session.step_until(lambda: sum(len(batch) for _, batch in session.captured(followed)) >= 200 * count, 120)
        session.step_until(lambda: not writer.is_alive(), 60)
        rows_seen = pl.concat([as_polars(batch) for _, batch in session.captured(followed)])
        looked = [as_polars(batch) for _, batch in session.captured("looked")]
        session.abort()
    assert rows_seen.sort("k").equals(expected(count))
    assert len(looked) > 1
    assert any(len(each) < count for each in looked)  # it was being written
    for each in looked:
        assert sorted(each.rows()) == [(epoch, 200) for epoch in range(len(each))]
    assert read_by_spark(Path(table)).equals(expected(count))
    assert sorted(path.name for path in (Path(table) / ".falkirk").iterdir()) == ["job", "schema"]


@pytest.mark.soak
def test_second_run_into_a_table_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    program = Program(flow=table_program, args={"folder": str(tmp_path), "count": 2})
    run(program)
    with pytest.raises(FalkirkError, match=r"(?s)sink 'table' .*another job writes here.*epoch=0000000000"):
        run(program)
    assert read_by_spark(tmp_path / "table").equals(expected(2))


# With a store


def both(folder: str) -> Dataflow:
    """From Spark's stream into a table, which Spark streams again."""
    flow = Dataflow("both")
    source = spark.Stream.files(
        Path(folder) / "in", SCHEMA, per_batch=1, available_now=True, options=OPTIONS, every=None
    )
    cells = flow.columns("in", source).inspect(lambda batch: time.sleep(0.05)).policy(Lazy(every=2))
    spark.write(cells, Path(folder) / "table", name="table")
    return flow


@pytest.mark.soak
def test_workers_are_killed_one_after_the_other_and_every_row_is_in_the_table_once(tmp_path: Path) -> None:
    """First the one that only reads, then the one that Spark belongs to."""
    count = 12
    put(tmp_path / "in", *range(count))
    job = Job(Program(flow=both, args={"folder": str(tmp_path)}), 2, tmp_path / "store")
    killed: list[int] = []

    def published() -> int:
        return len(list((tmp_path / "table").glob("epoch=*")))

    def strike() -> None:
        for upto, worker in [(2, 1 - home(2)), (5, home(2))]:
            wait_for(lambda upto=upto: published() >= upto)  # type: ignore[misc]
            killed.append(published())
            os.kill(job.pids[worker], signal.SIGKILL)

    run_beside(job.run, strike)
    assert len(killed) == 2
    assert killed[1] < count
    found = read_by_spark(tmp_path / "table")
    assert found.drop("epoch").equals(rows(0, count * 100))
    assert found["epoch"].is_sorted()  # a batch that Spark was at may have the next one's file, too
    source = spark.Stream(Reader(tmp_path / "table"), available_now=True, options=OPTIONS)
    followed = pl.concat(list(epochs(run(reading(source))).values())).sort("k")
    assert followed.equals(found)
