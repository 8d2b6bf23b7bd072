"""A query of Spark that is read once, some of its partitions an epoch: alone, killed anywhere, and dealt out by halves."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.connect import FileSink
from libraries.spark.dataflow.partitioned_query import deal_out
from libraries.spark.errors import SparkError
from libraries.spark.files.batches import end, share_files
from recovery.policy import Lazy
from runtime.program import Program
from runtime.run import run
from runtime.supervisor.supervisor import Job
from tests.libraries.spark.connect_server import ConnectServer, connect_server
from tests.support.beside import run_beside
from timely.data.batch import as_polars
from timely.errors import GraphError, SourceError

PARTITIONS, ROWS = 8, 800
PARTITION = ROWS // PARTITIONS


# Without Spark


def whole(folder: Path, partitions: list[int]) -> None:
    """Files as Spark writes them, of partitions of which some have no rows, and some several files."""
    (folder / "whole").mkdir(parents=True)
    for number, pieces in enumerate(partitions):
        for piece in range(pieces):
            path = folder / "whole" / f"part-{number:05}-of-some-c{piece:03}.lz4.parquet"
            pq.write_table(pa.table({"at": [number * 10 + piece]}), path)


def dealt(folder: Path, workers: int) -> list[list[list[int]]]:
    """Of each batch, of each worker, the rows in their order."""
    last = end(folder)
    assert last is not None
    found = []
    for number in range(last + 1):
        shares = [share_files(folder, number, worker) for worker in range(workers)]
        assert None not in shares
        found.append(
            [[row for file in share or () for row in pq.read_table(file)["at"].to_pylist()] for share in shares]
        )
    return found


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("per_epoch", [1, 2, 20])
def test_files_are_dealt_out_alike_wherever_that_ends_and_begins_again(
    workers: int, per_epoch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = [1, 0, 3, 1, 2, 0, 1]
    whole(tmp_path / "calm", partitions)
    deal_out(tmp_path / "calm", per_epoch, workers, durable=True)
    right = dealt(tmp_path / "calm", workers)
    assert [[row // 10 // per_epoch for share in batch for row in share] for batch in right] == [
        [number] * sum(partitions[number * per_epoch : (number + 1) * per_epoch]) for number in range(len(right))
    ]
    assert sum(len(share) for batch in right for share in batch) == sum(partitions)
    real = Path.rename
    steps = 0

    class Died(Exception):
        pass

    for ends_at in range(100):
        folder = tmp_path / f"{ends_at}"
        whole(folder, partitions)
        steps = 0

        def rename(path: Path, target: Path) -> Path:
            nonlocal steps
            steps += 1
            if steps > ends_at:  # noqa: B023
                raise Died
            return real(path, target)

        monkeypatch.setattr(Path, "rename", rename)
        try:
            deal_out(folder, per_epoch, workers, durable=False)
            assert ends_at >= sum(partitions)
            break
        except Died:
            monkeypatch.setattr(Path, "rename", real)
            deal_out(folder, per_epoch, workers, durable=False)
            assert dealt(folder, workers) == right
    else:
        raise AssertionError("it never came to its end")


def test_another_number_of_partitions_an_epoch_is_refused_once_some_are_dealt_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole(tmp_path, [1, 1, 1, 1])
    monkeypatch.setattr("libraries.spark.dataflow.partitioned_query.set_end", lambda folder, last: None)
    real = Path.rename

    def rename(path: Path, target: Path) -> Path:
        if path.name.startswith("part-00002"):
            raise OSError("the disk is gone")
        return real(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(OSError, match="gone"):
        deal_out(tmp_path, 1, 1, durable=False)
    monkeypatch.undo()
    with pytest.raises(SparkError, match=r"the first 2 epochs were dealt out with another per_epoch= than 3"):
        deal_out(tmp_path, 3, 1, durable=False)


def test_no_number_of_partitions_is_refused_at_the_users_line() -> None:
    for wrong in (0, -1, True, "2"):
        with pytest.raises(GraphError, match=rf"test_partitioned_query.py:\d+: per_epoch={wrong!r}: must be a number"):
            spark.source(Dataflow("wrong"), lambda session: session.range(1), per_epoch=wrong)  # type: ignore[arg-type]


# With Spark


def options(connect: str | None = None) -> spark.SparkOptions:
    return spark.SparkOptions(memory="1g" if connect is None else None, nice=0, connect=connect)


@pytest.mark.check
@pytest.mark.spark
@pytest.mark.parametrize("workers", [1, 2])
def test_partitions_are_epochs_in_their_order(workers: int) -> None:
    def read() -> Dataflow:
        flow = Dataflow("partitions")

        def numbers(session: Any) -> Any:
            return session.range(0, ROWS, 1, PARTITIONS).filter("id < 300 or id >= 400")

        spark.source(flow, numbers, per_epoch=2, options=options(), name="numbers").capture("out")
        spark.source(flow, lambda session: session.range(3), per_epoch=1, options=options()).capture("few")
        spark.source(flow, lambda session: session.range(0), per_epoch=1, options=options()).capture("none")
        return flow

    result = run(read(), workers=workers)
    found: dict[int, list[int]] = {}
    for (epoch, *_), batch in result.captured("out"):
        found.setdefault(epoch, []).extend(as_polars(batch)["id"].to_list())
    assert {epoch: sorted(rows) for epoch, rows in found.items()} == {
        epoch: [n for n in range(epoch * 2 * PARTITION, (epoch + 1) * 2 * PARTITION) if not 300 <= n < 400]
        for epoch in range(PARTITIONS // 2)
    }
    assert sorted(n for _, batch in result.captured("few") for n in as_polars(batch)["id"]) == [0, 1, 2]
    assert result.captured("none") == []


@pytest.mark.check
@pytest.mark.spark
def test_a_stream_or_an_error_of_the_query_ends_the_job_with_the_users_words() -> None:
    for what, said in [
        (lambda session: session.readStream.format("rate").load(), r"isStreaming|streaming|stream"),
        (lambda session: session.sql("select nothing from nowhere"), "nowhere"),
    ]:
        flow = Dataflow("wrong")
        spark.source(flow, what, per_epoch=1, options=options(), name="wrong").capture("out")
        with pytest.raises(SourceError, match=said):
            run(flow)


def build(folder: str, connect: str | None = None) -> Dataflow:
    """Numbers of which each epoch takes a while, and a note of each run of the query."""

    def numbers(session: Any) -> Any:
        with open(f"{folder}/runs", "a") as file:
            file.write("run\n")
        return session.range(0, ROWS, 1, PARTITIONS)

    def slow(frame: pl.DataFrame) -> pl.DataFrame:
        time.sleep(0.3)
        return frame

    flow = Dataflow("killed")
    read = spark.source(flow, numbers, per_epoch=1, options=options(connect), name="numbers").map_batches(slow)
    read.to_records().to(FileSink(Path(folder) / "files"), name="files")
    read.to_records().map(lambda row: (0, row["id"])).keyed().sum(name="sum").policy(Lazy(every=0.1)).records().capture(
        "sums"
    )
    return flow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with connect_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("over", ["java", "connect"])
def test_killed_workers_read_on_where_they_were_and_the_query_is_not_run_again(
    victim: int, over: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    arguments = {"folder": str(tmp_path)}
    if over == "connect":
        arguments["connect"] = request.getfixturevalue("server").address
    job = Job(Program(flow=build, args=arguments), 2, tmp_path / "store")

    def files() -> int:
        return len(list((tmp_path / "files").glob("epoch-*")))

    def strike() -> None:
        for at in (2, 5):
            while files() < at:
                time.sleep(0.02)
            os.kill(job.pids[victim], signal.SIGKILL)
            while files() == at:
                time.sleep(0.02)

    result = run_beside(job.run, strike)
    rows = pl.concat([pl.read_ndjson(path) for path in sorted((tmp_path / "files").glob("epoch-*"))])
    assert sorted(rows["id"]) == list(range(ROWS))
    assert (tmp_path / "runs").read_text() == "run\n"
    sums = [total for _, pairs in sorted(result.captured("sums")) for _, total in pairs]
    assert sums == [sum(range((epoch + 1) * PARTITION)) for epoch in range(PARTITIONS)]
