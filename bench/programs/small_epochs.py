"""Epochs of 48 rows through a group-by with three running aggregates, in µs of processor time an epoch.

Polars frames come, and columns of the changed totals leave. `polars` is a loop of one's own over a dictionary of totals: one
group-by of Polars an epoch.
"""

from __future__ import annotations

import time

import numpy as np
import polars as pl
import pyarrow as pa
from common import arguments, report

import falkirk
from falkirk import Batches, Dataflow, agg

ROWS = 48
KEYS = 300


def frames(epochs: int) -> list[pl.DataFrame]:
    """The input: a frame an epoch."""
    chance = np.random.default_rng(7)
    made = []
    for _ in range(epochs):
        keys = chance.integers(0, KEYS, ROWS)
        made.append(pl.DataFrame({"k": keys, "v": chance.integers(0, 1_000, ROWS), "x": chance.random(ROWS)}))
    return made


class Sum:
    """Adds up the rows that come out, and their totals."""

    def __init__(self) -> None:
        self.rows = 0
        self.total = 0

    def __call__(self, table: pa.Table | pl.DataFrame) -> None:
        self.rows += len(table)
        self.total += int(table["total"].to_numpy().sum())


def falkirk_loop(epochs: int) -> tuple[float, Sum]:
    """Processor seconds of the job's run, after a tenth to warm up."""
    found = Sum()
    flow = Dataflow("small epochs")
    given = flow.columns("in", Batches(frames(epochs)))
    totals = given.group_by("k").agg(n=agg.count(), total=agg.sum("v"), top=agg.max("x"), over="scope")
    totals.inspect(found)
    times: list[float] = []
    given.inspect(lambda table: times.append(time.process_time()))
    falkirk.run(flow)
    return time.process_time() - times[epochs // 10], found


def polars_loop(epochs: int) -> tuple[float, Sum]:
    """The same by hand."""
    found = Sum()
    totals: dict[int, tuple[int, int, float]] = {}
    for epoch, frame in enumerate(frames(epochs)):
        if epoch == epochs // 10:
            began = time.process_time()
        of = frame.group_by("k").agg(n=pl.len(), total=pl.col("v").sum(), top=pl.col("x").max())
        rows = []
        for key, n, total, top in of.iter_rows():
            before = totals.get(key, (0, 0, -1.0))
            totals[key] = (before[0] + n, before[1] + total, max(before[2], top))
            rows.append((key, *totals[key]))
        found(pl.DataFrame(rows, schema=["k", "n", "total", "top"], orient="row"))
    return time.process_time() - began, found


def main() -> None:
    args = arguments()
    seconds, found = polars_loop(args.size) if args.part == "polars" else falkirk_loop(args.size)
    report(seconds * 1e6 / (args.size * 0.9), check={"rows": found.rows, "total": found.total})


if __name__ == "__main__":
    main()
