"""Word count: after every epoch, the words whose count changed, with their counts so far."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from common import arguments, report
from tally import Tally, Timed, cpu_seconds, read_tally

import falkirk
from falkirk import Dataflow, Parquet, agg


def build(data: Path, folder: Path) -> Dataflow:
    """The program, over all records of `data`, with notes on its run in `folder`."""
    about = json.loads((data / "about.json").read_text())
    words = Parquet(
        data / "whole.parquet",
        epoch=about["records_per_epoch"],
        # Plain pages hold no dictionary: making one costs more than grouping the text itself.
        read_dictionary=["word"] if about["dictionary"] else [],
        split="epochs",
        use_threads=False,
    )
    flow = Dataflow("wordcount")
    counts = flow.columns("words", Timed(words, folder)).group_by("word").agg(over="scope", n=agg.count())
    counts.to(Tally(folder, ("n",)), name="counts")
    return flow


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        falkirk.run(build(args.data, Path(folder)), workers=args.workers)
        seconds, rows, sums = read_tally(Path(folder))
        cpu = cpu_seconds(Path(folder))
    report(args.size / seconds, cpu_seconds=cpu, check={"rows": rows, "total": sums["n"]})


if __name__ == "__main__":
    main()
