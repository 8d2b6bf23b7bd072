"""Reading the micro-batches that Spark publishes: positions, shares of workers, what goes and what must stay."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark.dataflow.stream_source import StreamShare
from libraries.spark.files.batches import batch_folder, batches, forget, set_end, share_folder
from runtime.folders.workspace import Workspace
from timely.data.batch import as_polars
from timely.errors import FalkirkError, SourceError
from timely.io.interface import Chunk, End, Position, Wait


def publish(folder: Path, number: int, shares: list[list[list[int]]]) -> None:
    """A batch: of each worker the files, of each file the rows."""
    for worker, files in enumerate(shares):
        share = share_folder(batch_folder(folder, number), worker)
        share.mkdir(parents=True)
        for at, rows in enumerate(files):
            pl.DataFrame({"k": rows}).write_parquet(share / f"{at:06}.parquet")


def share(folder: Path, worker: int = 0) -> StreamShare:
    return StreamShare("s", folder, worker, None)


def read(partition: StreamShare) -> list[tuple[int, list[int], Position, bool]]:
    """All chunks that are there: epoch, rows, position after it, whether it closes its epoch."""
    found = []
    while isinstance(chunk := partition.read(), Chunk):
        rows = [] if chunk.data is None else as_polars(chunk.data)["k"].to_list()
        found.append((chunk.epoch, rows, chunk.position, chunk.closes))
    return found


def three(folder: Path) -> None:
    publish(folder, 0, [[[1], [2, 3]], [[4]]])
    publish(folder, 1, [[[5]], []])
    publish(folder, 2, [[], [[6]]])


def test_every_worker_reads_its_share_and_closes_every_epoch(tmp_path: Path) -> None:
    three(tmp_path)
    assert read(share(tmp_path, 0)) == [
        (0, [1], [0, 1], False),
        (0, [2, 3], [1, 0], True),
        (1, [5], [2, 0], True),
        (2, [], [3, 0], True),
    ]
    assert read(share(tmp_path, 1)) == [(0, [4], [1, 0], True), (1, [], [2, 0], True), (2, [6], [3, 0], True)]


def test_reading_on_from_any_position_gives_what_followed_it(tmp_path: Path) -> None:
    three(tmp_path)
    for worker in range(2):
        whole = read(share(tmp_path, worker))
        for at, (_, _, position, _) in enumerate([(0, [], None, False), *whole]):
            again = share(tmp_path, worker)
            again.seek(position)
            assert read(again) == whole[at:]


def test_reader_waits_for_a_batch_and_ends_after_the_last_one(tmp_path: Path) -> None:
    partition = share(tmp_path)
    assert isinstance(partition.read(), Wait)
    three(tmp_path)
    set_end(tmp_path, 2)
    assert len(read(partition)) == 4
    assert isinstance(partition.read(), End)
    empty = tmp_path / "empty"
    empty.mkdir()
    set_end(empty, -1)
    assert isinstance(share(empty).read(), End)


def test_batches_go_when_all_workers_have_read_them_and_the_last_stays_known(tmp_path: Path) -> None:
    three(tmp_path)
    share(tmp_path, 0).ack([2, 0])
    assert batches(tmp_path) == [0, 1, 2]
    again = share(tmp_path, 1)
    assert len(read(again)) == 3
    again.ack([2, 0])
    assert batches(tmp_path) == [2]
    for worker in range(2):
        forget(tmp_path, 3, worker)
    assert batches(tmp_path) == [2]
    assert not list(tmp_path.rglob("*.parquet"))
    late = share(tmp_path, 1)
    late.seek([3, 0])
    assert isinstance(late.read(), Wait)


def test_batches_that_are_lost_are_an_error_and_no_gap(tmp_path: Path) -> None:
    three(tmp_path)
    shutil.rmtree(batch_folder(tmp_path, 1))
    partition = share(tmp_path)
    partition.read()
    partition.read()
    with pytest.raises(SourceError, match="batch 1 is gone"):
        partition.read()
    with pytest.raises(SourceError, match=r"had read the batches before 7.*whole store back"):
        partition.seek([7, 0])
    with pytest.raises(SourceError, match="not a position of this source"):
        partition.seek(12)


def test_arguments_that_cannot_be_are_refused(tmp_path: Path) -> None:
    def none(session: object) -> None: ...

    for arguments, said in [
        ({"every": 0}, "every=0"),
        ({"every": 5, "available_now": True}, "without available_now"),
        ({"output_mode": "all"}, "output_mode='all'"),
        ({"ahead": 0}, "ahead=0"),
    ]:
        with pytest.raises(SourceError, match=said):
            spark.Stream(none, **arguments)  # type: ignore[arg-type]
    with pytest.raises(SourceError, match=r"Stream\.files"):
        spark.Stream("folder")  # type: ignore[arg-type]
    with pytest.raises(SourceError, match="column 'd' is of type duration"):
        spark.Stream.files(tmp_path, pa.schema([("d", pa.duration("s"))]))


def test_job_that_has_no_place_for_files_is_told_so() -> None:
    flow = Dataflow("nowhere")
    flow.columns("in", spark.Stream(lambda session: session.readStream.load())).capture("out")
    from runtime.session.session import Session

    with pytest.raises(FalkirkError, match=r"source 'in' .*one host only"):
        Session(flow, workspace=Workspace(refused="one host only"))
