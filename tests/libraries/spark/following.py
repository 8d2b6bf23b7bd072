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


def says_how_far_it_is(options: spark.SparkOptions, folder: Path) -> None:
    """A query says which batch it is at, how many rows the last one had, what it waits for, and for how long."""
    (folder / "in").mkdir()
    for number, count in enumerate([100, 250]):  # Spark takes files in the order of their times
        file = folder / "in" / f"{number}.parquet"
        pl.DataFrame({"k": range(count)}).write_parquet(file)
        os.utime(file, (1_600_000_000 + number,) * 2)
    source = spark.Stream.files(folder / "in", pa.schema([("k", pa.int64())]), per_batch=1, ahead=1, options=options)
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
