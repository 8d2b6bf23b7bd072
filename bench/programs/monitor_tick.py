"""The cost to the monitor of keeping the low-watermarks up to date: a tick in which every processor reports a new checkpoint.

`--size` processors, as 50,000 are 1,000 operators on 50 workers, in layers, each with 20 in-edges from random processors of
the four layers before it; one in four discards what it sends, the others log. Beside the tick: single reports in random
order, the same while one processor never reports, what building takes, and loading the compiled loops.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

from common import arguments, report

from recovery.fixed_point.incremental import Report, WatermarkSolver
from recovery.fixed_point.solve import PhysicalEdge
from timely.time import Summary

DEGREE = 20
LAYER = 500
TICKS = 9


def edges_between(processors: int, chance: random.Random) -> list[PhysicalEdge]:
    """In-edges from earlier layers, for all but the first layer."""
    same = Summary.identity(1)
    layer = min(LAYER, max(1, processors // 4))
    return [
        PhysicalEdge(chance.randrange(max(0, p - p % layer - 4 * layer), p - p % layer), p, same)
        for p in range(layer, processors)
        for _ in range(DEGREE)
    ]


def milliseconds(work: Callable[[], object]) -> float:
    """The seconds that it takes."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def main() -> None:
    args = arguments()
    chance = random.Random(7)
    size = args.size
    edges = edges_between(size, chance)
    discarding = [chance.random() < 0.25 for _ in range(size)]
    start = time.perf_counter()
    from recovery.fixed_point import compiled  # noqa: F401

    report((time.perf_counter() - start) * 1e3, system="falkirk_import", unit="ms")
    start = time.perf_counter()
    watermarks = WatermarkSolver([(1, True)] * size, edges, compiled=True)
    report((time.perf_counter() - start) * 1e3, system="falkirk_build", unit="ms")

    def reports(epoch: int) -> list[Report]:
        return [(p, (epoch,), ((epoch,) if discarding[p] else (0,),)) for p in range(size)]

    first = reports(1)
    report(milliseconds(lambda: watermarks.tick(first)), system="falkirk_first_tick", unit="ms")
    ticks = []
    for epoch in range(2, TICKS + 2):
        batch = reports(epoch)
        ticks.append(milliseconds(lambda batch=batch: watermarks.tick(batch)))  # type: ignore[misc]
        assert watermarks.value(size - 1) == (epoch,), "a tick must raise every low-watermark"
    report(statistics.median(ticks), unit="ms")

    # One at a time, in random order: each waits for the others, and the last of an epoch raises all.
    epoch = TICKS + 2
    order = reports(epoch)
    chance.shuffle(order)
    touched = watermarks.touched
    times = sorted(milliseconds(lambda each=each: watermarks.report(*each)) for each in order)  # type: ignore[misc]
    assert watermarks.value(0) == (epoch,)
    report(statistics.median(times) * 1e3, system="falkirk_one_report", unit="us", p99=times[-size // 100] * 1e3)
    report(sum(times) / size * 1e3, system="falkirk_one_report_mean", unit="us")
    report((watermarks.touched - touched) / size, system="falkirk_one_report_touched", unit="options")

    # The same while one in the middle never reports again.
    laggard = size // 2
    for epoch in range(TICKS + 3, TICKS + 6):
        watermarks.tick([each for each in reports(epoch) if each[0] != laggard])
    order = [each for each in reports(TICKS + 6) if each[0] != laggard]
    chance.shuffle(order)
    touched = watermarks.touched
    times = sorted(milliseconds(lambda each=each: watermarks.report(*each)) for each in order)  # type: ignore[misc]
    report(statistics.median(times) * 1e3, system="falkirk_laggard", unit="us", p99=times[-size // 100] * 1e3)
    report((watermarks.touched - touched) / size, system="falkirk_laggard_touched", unit="options")
    behind = [each for each in reports(TICKS + 7) if each[0] != laggard]
    report(milliseconds(lambda: watermarks.tick(behind)), system="falkirk_laggard_tick", unit="ms")
    last = [(laggard, (e,), ((e,) if discarding[laggard] else (0,),)) for e in range(TICKS + 3, TICKS + 8)]
    report(milliseconds(lambda: watermarks.tick(last)), system="falkirk_laggard_returns", unit="ms")
    assert watermarks.value(0) == watermarks.value(laggard) == (TICKS + 7,)


if __name__ == "__main__":
    main()
