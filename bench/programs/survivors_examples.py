"""Records of an example that are handled again after a worker was killed, as a share of those since the last cut of each group.

The examples are short, so no kill of a real process hits them where it should. They run as the simulation has them: the
workers, stores and the monitor of production in one thread, under a seed. Each worker is killed in a run of its own, midway.
All records are counted that processors take; what is taken beyond what a run without failures takes was done again. `value`
is their share, the mean over the workers that were killed; `_open` the part of it that survivors did again of epochs that were
not complete there, `_beyond` what of that is more than one epoch of each survivor, and `_lost` that of epochs which were
complete. Without the open part the mean is 1/workers, where nothing is lost.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from common import arguments, beyond_one_epoch, report

from falkirk import Dataflow, Memory
from falkirk.simulate.faults import Fault
from falkirk.simulate.process import Process
from falkirk.simulate.world import World

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SEED = 12
NEXMARK = ("q3", "q4", "q5", "q7", "q8")
"""The queries that keep something from one epoch to the next, one of a kind: joins, totals of totals, windows."""
TIMES = 6
"""Kills of each worker that are tried until one comes where work has been done since the last cut."""


class _Counted(World):
    """A simulated job that counts the records of each (worker, processor, epoch), and knows how it was when one was killed."""

    def __init__(self, build: Callable[[], Dataflow], workers: int, faults: list[Fault]) -> None:
        super().__init__(build, workers, SEED, (), faults)
        self._hurry = 0.1
        self._patience = 100.0  # else some of many workers are taken for dead: the kill is to be the only failure
        self.handled: Counter[tuple[int, int, int]] = Counter()
        self.before: Counter[tuple[int, int, int]] | None = None
        self.cuts: Counter[int] = Counter()
        self.complete: dict[int, tuple[Any, ...]] = {}

    def _open(self, process: Process) -> None:
        super()._open(process)
        if process.recovery is None:
            return
        recorder, worker = process.recovery.agent.recorder, process.worker
        delivered = recorder.delivered

        def counting(processor: int, port: int, time: Any, batch: Any) -> None:
            self.handled[worker, processor, time[0]] += len(batch)
            delivered(processor, port, time, batch)

        recorder.delivered = counting  # type: ignore[method-assign]

    def _kill(self, process: Process, how: str) -> None:
        self.before = self.handled.copy()
        for _, kind, data in self.log:
            if kind == "checkpoint" and data["epoch"] >= 0:
                self.cuts[data["group"]] = max(self.cuts[data["group"]], data["epoch"])
        for each in self._processes:
            if each is not None and each is not process and each.recovery is not None and each.recovery.agent.alive:
                self.complete[each.worker] = each.recovery.agent.completion.of_groups(busy=False)
        super()._kill(process, how)


def _kill_one(
    build: Callable[[], Dataflow], workers: int, victim: int, calm: _Counted
) -> tuple[float, float, float, float] | None:
    """Shares of the records since the last cut: done again in all, by survivors of open epochs, of these beyond one epoch each,
    by survivors of complete epochs."""
    infos = calm.layout.processors
    for attempt in range(TIMES):
        at = int(calm.steps * (0.45 + 0.07 * attempt))
        world = _Counted(build, workers, [Fault("step", at, "kill", victim)])
        world.run()
        world.outside.compare(calm.outside.result())
        if world.before is None or len(world.complete) < workers - 1:
            continue
        since = sum(n for (_, p, epoch), n in world.before.items() if epoch >= world.cuts[infos[p].group])
        again = world.handled - calm.handled
        if not since:
            continue
        lost, still_open = 0, Counter[tuple[object, int]]()
        for (worker, p, epoch), n in again.items():
            if worker == victim:
                continue
            if epoch < world.complete[worker][infos[p].group][0]:
                lost += n
            else:
                still_open[worker, epoch] += n
        return again.total() / since, still_open.total() / since, beyond_one_epoch(still_open) / since, lost / since
    return None


def _examples(folder: Path) -> dict[str, Callable[[], Dataflow]]:
    import family
    import loop
    import mixed_policies
    import pagerank
    import payments
    import queries
    import tolls
    import trades
    import wordcount

    def corpus(size: int) -> str:
        lines = [" ".join(f"word{(n * n + k * 7) % 311}" for k in range(8)) for n in range(size)]
        pq.write_table(pa.table({"line": lines}), folder / "corpus.parquet", row_group_size=50)
        return str(folder / "corpus.parquet")

    text = corpus(2_000)
    return {
        "wordcount": lambda: wordcount.build(text, "line", 1),
        "loop": lambda: loop.build(300),
        "pagerank": lambda: pagerank.build(iterations=20),
        "family": family.build,
        "mixed_policies": lambda: mixed_policies.build(
            days=40, calls=100, per_second=2_000, folder=folder / "circles", console=Memory()
        ),
        "payments": lambda: payments.build(
            payments=2_000, per_second=4_000, per_epoch=50, folder=folder / "paid", console=Memory()
        ),
        "tolls": lambda: tolls.build(days=100, ships=400),
        "trades": lambda: trades.build(trades=200, corrections=60),
        **{query: partial(queries.build, query, events=10_000, per_epoch=200) for query in NEXMARK},
    }


def main() -> None:
    args = arguments()
    sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "nexmark")]
    with tempfile.TemporaryDirectory() as name:
        build = _examples(Path(name))[args.part]
        calm = _Counted(build, args.workers, [])
        calm.run()
        found = [_kill_one(build, args.workers, victim, calm) for victim in range(args.workers)]
        shares = [each for each in found if each is not None]
        value, still_open, beyond, lost = (sum(each) / len(shares) for each in zip(*shares, strict=True))
        report(value, kills=len(shares), goal=1.2 / args.workers)
        report(still_open, system=f"{args.part}_open")
        report(beyond, system=f"{args.part}_beyond")
        report(lost, system=f"{args.part}_lost")


if __name__ == "__main__":
    main()
