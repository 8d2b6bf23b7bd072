"""A streaming query that is followed step by step, wherever its Spark is."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from libraries import spark
from runtime.folders.workspace import Workspace
from tests.support.processes import wait_for
from timely.data.batch import as_polars
from timely.io.interface import Chunk, End, Wait


def _files_of_batches(folder: Path, *rows: int) -> Path:
    (folder / "in").mkdir()
    for number, count in enumerate(rows):  # Spark takes files in the order of their times
        file = folder / "in" / f"{number}.parquet"
        pl.DataFrame({"k": range(count)}).write_parquet(file)
        os.utime(file, (1_600_000_000 + number,) * 2)
    return folder / "in"


def says_that_it_waits_for_its_time(options: spark.SparkOptions, folder: Path) -> None:
    """A query with a period says that it waits for the next batch's time, though there is input, and nothing of the reader."""
    schema = pa.schema([("k", pa.int64())])
    source = spark.Stream.files(_files_of_batches(folder, 100, 250), schema, per_batch=1, every=3600, options=options)
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
    source = spark.Stream.files(_files_of_batches(folder, 100, 250), schema, per_batch=1, ahead=1, options=options)
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


def goes_on_where_it_was_when_somebody_stops_it(options: spark.SparkOptions, folder: Path, now: bool) -> None:
    """A query that somebody else stops, with batches before it, has not come to its end, and begins again."""
    batches = 5
    files = _files_of_batches(folder, *[100] * batches)
    stops, stopped = folder / "stops", folder / "stopped"

    def opened(session: Any) -> Any:
        def stop() -> None:
            while not stops.exists():
                time.sleep(0.02)
            if not stopped.exists():
                stopped.touch()
                for query in session.streams.active:
                    query.stop()

        threading.Thread(target=stop, daemon=True).start()
        return session.readStream.schema("k long").option("maxFilesPerTrigger", 1).parquet(str(files))

    source = spark.Stream(opened, available_now=now, ahead=1, options=options)
    (partition,) = source.with_files(Workspace(folder / "files"), "s").partitions(0, 1)
    assert isinstance(partition.read(), Wait)
    wait_for(lambda: (working := partition.working()) is not None and "has read batch 0" in working[1])
    stops.touch()
    wait_for(stopped.exists)
    time.sleep(1)  # so that it is being stopped when its next batch may come
    rows: list[int] = []

    def over() -> bool:
        chunk = partition.read()
        if isinstance(chunk, Chunk) and chunk.data is not None:
            rows.extend(as_polars(chunk.data)["k"])
        return isinstance(chunk, End) if now else len(rows) == 100 * batches

    wait_for(over, 60)
    partition.close()
    assert sorted(rows) == sorted([*range(100)] * batches)
