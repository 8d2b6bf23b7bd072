"""The input of the queries of Nexmark, their answers in Polars, and a digest of an answer: for all systems the same.

`measured` takes turns: a system over 119 epochs that are in memory, and Polars with one thread over the whole input at once, in
processor seconds of one process. It needs NumPy and Polars alone.
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from common import report

os.environ["POLARS_MAX_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "nexmark"))

import in_polars
import polars as pl
from house import KINDS, House

EPOCHS, RUNS = 119, 3

AS_IT_STANDS = ("q4", "q6")
"""The queries whose answer changes: of each key the last row counts."""

Frames: TypeAlias = dict[str, list[pl.DataFrame]]
"""The persons, the auctions and the bids of each epoch."""

Runs: TypeAlias = Callable[[Frames], Callable[[], Sequence[Any]]]
"""Runs a query; gives a function that gives the rows that came out, or frames of them, in their order."""


def house_of(size: int) -> House:
    """About so many events in 119 epochs."""
    per_epoch = max(1, size // EPOCHS // 50) * 50
    return House(per_epoch * EPOCHS, per_epoch)


def digest(query: str, answer: Sequence[Any]) -> dict[str, float]:
    """Number of rows, and a checksum of them in order, of rows or frames with the columns of Polars' answer."""
    if not answer:
        return {"rows": 0, "checksum": 0}
    frames = isinstance(answer[0], pl.DataFrame)
    rows = pl.concat(answer) if frames else pl.DataFrame(answer, orient="row", infer_schema_length=None)
    if query in AS_IT_STANDS:
        rows = rows.unique(rows.columns[:1], keep="last", maintain_order=True)
    text = rows.sort(rows.columns).write_csv(include_header=False) if len(rows) else ""
    return {"rows": len(rows), "checksum": zlib.crc32(text.encode()) & 0xFFFFFFF}  # exact where figures are compared


def measured(query: str, size: int, run: Runs) -> None:
    """Measure `run` and Polars, compare their answers, and report the ratio of their processor seconds."""

    def measure(house: House) -> tuple[float, float, int, dict[str, float]]:
        frames = {kind: [house.frame(kind, epoch) for epoch in range(house.epochs)] for kind in KINDS}
        whole = {
            kind: pl.concat(each.with_columns(epoch=pl.lit(number)) for number, each in enumerate(parts)).rechunk()
            for kind, parts in frames.items()
        }
        before = time.process_time()
        answer = run(frames)
        mine = time.process_time() - before
        before = time.process_time()
        right = in_polars.QUERIES[query](whole)
        theirs = time.process_time() - before
        given = answer()
        rows = sum(len(each) if isinstance(each, pl.DataFrame) else 1 for each in given)
        found, wanted = digest(query, given), digest(query, [right])
        if found != wanted:
            raise SystemExit(f"{query}: {found}, and by Polars {wanted}")
        return mine, theirs, rows, found

    measure(house_of(EPOCHS * 50))  # libraries load what they need
    house = house_of(size)
    runs = [measure(house) for _ in range(RUNS)]
    mine, theirs = (sorted(run[i] for run in runs)[RUNS // 2] for i in (0, 1))
    _, _, rows, check = runs[0]
    report(mine / theirs, check=check, events=house.events, cpu_seconds=mine, polars_cpu_seconds=theirs, rows=rows)
