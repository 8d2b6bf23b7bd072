"""Sum, count and maximum of each key, epoch by epoch.

Each epoch is read by one worker, so nothing need be sent. Part `exchanged` does not know that, and sends all to the worker
of its key.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from common import arguments, report
from tally import Tally, Timed, cpu_seconds, read_tally

import falkirk
from falkirk import Dataflow, Parquet, agg


def build(data: Path, folder: Path, exchanged: bool = False) -> Dataflow:
    """The program, over all records of `data`, with notes on its run in `folder`."""
    about = json.loads((data / "about.json").read_text())
    pairs = Parquet(data / "whole.parquet", epoch=about["records_per_epoch"], split="epochs", use_threads=False)
    flow = Dataflow("keyed")
    totals = (
        flow.columns("pairs", Timed(pairs, folder, shared=exchanged))
        .group_by("key")
        .agg(over="time", total=agg.sum("value"), n=agg.count(), top=agg.max("value"))
    )
    totals.to(Tally(folder, ("n", "total", "top")), name="totals")
    return flow


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        falkirk.run(build(args.data, Path(folder), args.part == "exchanged"), workers=args.workers)
        seconds, rows, sums = read_tally(Path(folder))
        cpu = cpu_seconds(Path(folder))
    check = {"rows": rows, "count": sums["n"], "total": sums["total"], "maxima": sums["top"]}
    report(args.size / seconds, cpu_seconds=cpu, check=check)


if __name__ == "__main__":
    main()
