"""The arguments and the reports that all benchmark programs share.

A program measures one system on one workload, once, and prints its figure as a line of JSON: `value`, and where there is
output `check`, a digest of it that is equal for all systems. It runs under any interpreter that has the system installed,
so this file needs the standard library alone.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def arguments() -> Namespace:
    """The command line: `--workers`, `--size` (what it counts depends on the program), `--data`, `--part`."""
    parser = ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--size", type=int, required=True, help="records, epochs, iterations or operators")
    parser.add_argument("--data", type=Path, help="the folder that holds the input")
    parser.add_argument("--part", default="", help="which part of the benchmark, where it has several")
    return parser.parse_args()


def epoch_files(data: Path, size: int) -> list[Path]:
    """The files of the first epochs, until they hold `size` records: one file, of one row group, an epoch."""
    per_epoch: int = json.loads((data / "about.json").read_text())["records_per_epoch"]
    return sorted((data / "epochs").glob("*.parquet"))[: max(1, size // per_epoch)]


def records_in(data: Path, files: list[Path]) -> int:
    """Records in so many epochs."""
    per_epoch: int = json.loads((data / "about.json").read_text())["records_per_epoch"]
    return per_epoch * len(files)


def report(value: float, **more: Any) -> None:
    """Print one figure."""
    print(json.dumps({"value": value, **more}), flush=True)


def beyond_one_epoch(again: Mapping[tuple[object, int], int]) -> int:
    """Of the records that survivors did again, by (worker, epoch), those that are not of the largest of these epochs of each.

    One open epoch a survivor is what a failure may cost beside the dead worker's share.
    """
    largest: dict[object, int] = {}
    for (worker, _), records in again.items():
        largest[worker] = max(largest.get(worker, 0), records)
    return sum(again.values()) - sum(largest.values())


def percentile(sorted_values: list[float], share: float) -> float:
    """The value below which `share` of `sorted_values` lie."""
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]
