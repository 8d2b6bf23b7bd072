"""A streaming query that is followed step by step, wherever its Spark is."""

from __future__ import annotations

import os
import time
from pathlib import Path

import polars as pl
import pyarrow as pa

from libraries import spark
from runtime.workspace import Workspace
from tests.support.processes import wait_for
from timely.io.interface import Chunk, Wait


def _files_of_two_batches(folder: Path) -> Path:
    (folder / "in").mkdir()
    for number, count in enumerate([100, 250]):  # Spark takes files in the order of their times
        file = folder / "in" / f"{number}.parquet"
        pl.DataFrame({"k": range(count)}).write_parquet(file)
        os.utime(file, (1_600_000_000 + number,) * 2)
    return folder / "in"


def says_that_it_waits_for_its_time(options: spark.SparkOptions, folder: Path) -> None:
    """A query with a period says that it waits for the next batch's time, though there is input, and nothing of the reader."""
    schema = pa.schema([("k", pa.int64())])
    source = spark.Stream.files(_files_of_two_batches(folder), schema, per_batch=1, every=3600, options=options)
    (partition,) = source.with_files(Workspace(folder / "files"), "s").partitions(0, 1)
    assert isinstance(partition.read(), Wait)
    wait_for(
        lambda: (
            (working := partition.working()) is not None
            and working[:2] == (1, "waits until it is time for the next batch; the last batch had 100 input rows")
        )
    )
    partition.close()


def says_how_far_it_is(options: spark.SparkOptions, folder: Path) -> None:
    """A query says which batch it is at, how many rows the last one had, what it waits for, and for how long."""
    schema = pa.schema([("k", pa.int64())])
    source = spark.Stream.files(_files_of_two_batches(folder), schema, per_batch=1, ahead=1, options=options)
    (partition,) = source.with_files(Workspace(folder / "files"), "s").partitions(0, 1)
    assert partition.working() is None, "nobody has asked for a batch"

    def says(batch: int, what: str) -> bool:
        working = partition.working()
        return working is not None and working[:2] == (batch, what)

    assert isinstance(partition.read(), Wait)
    wait_for(lambda: says(1, "waits until the job has read batch 0; the last batch had 100 input rows"))
    epochs: list[int] = []
    while len(epochs) < 2:
        chunk = partition.read()
        epochs += [chunk.epoch] if isinstance(chunk, Chunk) else []
        time.sleep(0.01)
    assert isinstance(partition.read(), Wait)
    wait_for(lambda: says(2, "waits for new input; the last batch had 250 input rows"))
    before = partition.working()
    time.sleep(1.5)
    after = partition.working()
    assert before is not None
    assert after is not None
    assert 1.4 < after[-1] - before[-1] < 20, "for so long"
    partition.close()
    assert partition.working() is None
