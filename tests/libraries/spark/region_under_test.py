"""A job with a Spark region for whole jobs on a cluster: sums over all of a million rows so far, and what must come out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from falkirk import Batch, Batches, Dataflow, FileSink, Lazy, agg, spark

EPOCHS, ROWS, KEYS = 10, 100_000, 100


def epoch(number: int) -> pl.DataFrame:
    """The rows of an epoch."""
    return pl.DataFrame({"i": range(ROWS)}).select(
        k=(pl.col("i") * 7919 + number) % KEYS, v=pl.col("i") % 1000 + number
    )


def build(folder: str, master: str = "local[1]", connect: str | None = None) -> Dataflow:
    """Sums by key, by Spark over all so far, and beside it by a running aggregate; the region's into files.

    Spark is a Java of the job's own with that master, or the server at the address `connect`.
    """

    def sums(rows: Any) -> Any:
        from pyspark.sql import functions as F

        return rows.groupBy("k").agg(F.sum("v").alias("s"), F.count("*").alias("n"))

    flow = Dataflow("history on a cluster")
    with flow.region("front", policy=Lazy(every=0.1, log_outputs=True)):
        rows = flow.columns("rows", Batches([epoch(number) for number in range(EPOCHS)]))
        rows.group_by("k").agg(s=agg.sum("v"), over="scope").capture("running")
    with flow.region("history", policy=Batch(log_outputs=True)):
        config = {"spark.sql.shuffle.partitions": "2", "spark.executor.memory": "512m", "spark.cores.max": "1"}
        options = spark.SparkOptions(master=master, memory="512m", config=tuple(config.items()))
        if connect is not None:
            options = spark.SparkOptions(connect=connect)
        found = spark.batch(rows, sums, over="all", options=options, name="history", checkpoint=0.1)
    found.to_records().to(FileSink(Path(folder) / "files"), name="files")
    return flow


def published(folder: Path) -> dict[int, dict[int, tuple[int, int]]]:
    """Of each epoch whose file is there the sum and count by key; each key once."""
    found: dict[int, dict[int, tuple[int, int]]] = {}
    for path in sorted((folder / "files").glob("epoch-*")):
        for row in map(json.loads, path.read_text().splitlines()):
            of = found.setdefault(int(path.name.split("-")[1]), {})
            assert row["k"] not in of, f"twice: {row} in {path.name}"
            of[row["k"]] = row["s"], row["n"]
    return found


def expected() -> dict[int, dict[int, tuple[int, int]]]:
    """The same, by Polars."""
    right = {}
    rows = pl.DataFrame()
    for number in range(EPOCHS):
        rows = pl.concat([rows, epoch(number)]) if number else epoch(number)
        sums = rows.group_by("k").agg(pl.col("v").sum(), pl.len())
        right[number] = {k: (s, n) for k, s, n in sums.rows()}
    return right
