"""Six verbs over batches of 100 rows, in µs of processor time a batch.

Polars frames come, an epoch each, and columns leave. `polars` is one `collect` for each frame, of a lazy plan of the same verbs
that was made before.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from common import arguments, report

import falkirk
from falkirk import Batches, Dataflow

ROWS = 100


def frames(epochs: int) -> list[pl.DataFrame]:
    """The input: a frame an epoch."""
    chance = np.random.default_rng(7)
    return [
        pl.DataFrame(
            {
                "shop": chance.integers(0, 50, ROWS),
                "price": chance.integers(1, 1_000, ROWS),
                "weight": chance.random(ROWS),
            }
        )
        for _ in range(epochs)
    ]


def six_verbs(given: Any) -> Any:
    """The verbs, of a stream of columns or of a lazy frame."""
    return (
        given.filter(pl.col("price") > 100)
        .with_columns(euros=pl.col("price") * 908 // 1000)
        .with_columns(cost=pl.col("euros") + pl.col("weight") * 3)
        .select("shop", "cost", "euros", even=pl.col("euros") % 2)
        .filter(pl.col("even") == 0)
        .select("shop", "cost", twice=pl.col("euros") * 2)
    )


class Sum:
    """Adds up the rows that come out, and a column of them."""

    def __init__(self) -> None:
        self.rows = 0
        self.total = 0

    def __call__(self, table: pa.Table | pl.DataFrame) -> None:
        self.rows += len(table)
        self.total += int(table["twice"].to_numpy().sum())


def falkirk_loop(epochs: int) -> tuple[float, Sum]:
    """Processor seconds of the job's run, after a tenth to warm up."""
    found = Sum()
    flow = Dataflow("six verbs")
    given = flow.columns("in", Batches(frames(epochs)))
    six_verbs(given).inspect(found)
    times: list[float] = []
    given.inspect(lambda table: times.append(time.process_time()))
    falkirk.run(flow)
    return time.process_time() - times[epochs // 10], found


def polars_loop(epochs: int) -> tuple[float, Sum]:
    """The same by hand."""
    found = Sum()
    for epoch, plan in enumerate([six_verbs(frame.lazy()) for frame in frames(epochs)]):
        if epoch == epochs // 10:
            began = time.process_time()
        found(plan.collect())
    return time.process_time() - began, found


def main() -> None:
    args = arguments()
    seconds, found = polars_loop(args.size) if args.part == "polars" else falkirk_loop(args.size)
    report(seconds * 1e6 / (args.size * 0.9), check={"rows": found.rows, "total": found.total})


if __name__ == "__main__":
    main()
