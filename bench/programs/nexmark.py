"""A query of Nexmark over 119 epochs, in processor seconds, by those of Polars for the whole input at once.

`--part` names the query, `--size` is the number of events. The input is in memory, so that only the query is measured. Each has
one thread, both in one process, by turns.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from common import arguments, report

os.environ["POLARS_MAX_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "nexmark"))

import in_polars
import polars as pl
import queries
from events import KINDS, House

import falkirk

EPOCHS, RUNS = 119, 3


def house_of(size: int) -> House:
    """About so many events in 119 epochs."""
    per_epoch = max(1, size // EPOCHS // 50) * 50
    return House(per_epoch * EPOCHS, per_epoch)


def main() -> None:
    args = arguments()

    def measure(house: House) -> tuple[float, float, int, int]:
        frames = {kind: [house.frame(kind, epoch) for epoch in range(house.epochs)] for kind in KINDS}
        whole = {
            kind: pl.concat(each.with_columns(epoch=pl.lit(number)) for number, each in enumerate(parts)).rechunk()
            for kind, parts in frames.items()
        }
        flow = falkirk.Dataflow(args.part)
        given = queries.QUERIES[args.part](queries.Streams(flow, lambda kind: falkirk.Batches(frames[kind])))
        rows = 0

        def count(batch: object) -> object:
            nonlocal rows
            rows += len(batch)  # type: ignore[arg-type]
            return batch

        given.map_batches(count).capture("out")
        before = time.process_time()
        falkirk.run(flow)
        mine = time.process_time() - before
        before = time.process_time()
        right = in_polars.QUERIES[args.part](whole)
        return mine, time.process_time() - before, rows, len(right)

    measure(house_of(EPOCHS * 50))  # libraries load what they need
    house = house_of(args.size)
    runs = [measure(house) for _ in range(RUNS)]
    mine, theirs = (sorted(run[i] for run in runs)[RUNS // 2] for i in (0, 1))
    report(
        mine / theirs,
        events=house.events,
        cpu_seconds=mine,
        polars_cpu_seconds=theirs,
        rows=runs[0][2],
        polars_rows=runs[0][3],
    )


if __name__ == "__main__":
    main()
