"""An almost empty loop on Pathway: one row that `pw.iterate` adds one to, `--size` times, in µs an iteration.

What a short loop takes is subtracted, so that starting the engine does not count.
"""

from __future__ import annotations

import os
import time

from common import arguments, report

args = arguments()
os.environ["PATHWAY_THREADS"] = str(args.workers)

import pathway as pw  # noqa: E402
from pathway.internals.parse_graph import G  # noqa: E402


class Counter(pw.Schema):
    left: int


def seconds_of(iterations: int) -> float:
    """Seconds for a loop of so many iterations, with its result checked."""
    G.clear()
    last: list[int] = []

    def body(counters: pw.Table) -> dict[str, pw.Table]:
        return {"counters": counters.select(left=pw.if_else(counters.left > 0, counters.left - 1, counters.left))}

    def change(key: object, row: dict[str, int], time: int, is_addition: bool) -> None:
        if is_addition:
            last.append(row["left"])

    start = pw.debug.table_from_rows(Counter, [(iterations,)])
    pw.io.subscribe(pw.iterate(body, counters=start).counters, on_change=change)
    before = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = time.perf_counter() - before
    if last != [0]:
        raise SystemExit(f"the loop ended with {last} instead of [0]")
    return seconds


short = seconds_of(10)
report((seconds_of(10 + args.size) - short) / args.size * 1e6)
