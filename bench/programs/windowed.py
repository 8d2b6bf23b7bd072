"""Counts of clicks by page and window of event time, over columns; part `records` counts them as records.

An epoch is read by one worker, and a window has clicks of one or two epochs, so counts go to the worker of their page. Clicks
come up to 3 s late, which is waited for.
"""

from __future__ import annotations

import json
import tempfile
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
from common import arguments, report
from tally import Tally, Timed, cpu_seconds, read_tally

import falkirk
from falkirk import Dataflow, Parquet, Tumbling, agg

WINDOW, LATENESS = 60, 3
"""Seconds of event time."""


def build(data: Path, folder: Path, as_records: bool) -> Dataflow:
    """The program, over all clicks of `data`, with notes on its run in `folder`."""
    about = json.loads((data / "about.json").read_text())
    clicks = Parquet(
        data / "whole.parquet",
        epoch=about["records_per_epoch"],
        split="epochs",
        use_threads=False,
        as_records=as_records,
    )
    flow = Dataflow("windowed")
    source, window = Timed(clicks, folder), Tumbling(WINDOW)
    if as_records:
        pages = flow.source("clicks", source).key_by(itemgetter("page"))
        counts = pages.window(window, itemgetter("at"), lateness=LATENESS).count().records()
        counts.map_batches(_table, repeats_over="record").to(Tally(folder, ("n",)), name="counts")
    else:
        windows = flow.columns("clicks", source).window(window, "at", lateness=LATENESS)
        windows.group_by("page").agg(n=agg.count()).to(Tally(folder, ("n",)), name="counts")
    return flow


def _table(batch: list[tuple[object, int]]) -> pa.Table:
    return pa.table({"n": [count for _, count in batch]})


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        falkirk.run(build(args.data, Path(folder), args.part == "records"), workers=args.workers)
        seconds, rows, sums = read_tally(Path(folder))
        cpu = cpu_seconds(Path(folder))
    report(args.size / seconds, cpu_seconds=cpu, check={"rows": rows, "total": sums["n"]})


if __name__ == "__main__":
    main()
