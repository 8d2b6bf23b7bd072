"""Records of an example with a region on Spark that are handled again after `kill -9` of a worker.

As a share of those since the last cut of each group. The workers are real processes, beside a real Spark; one of them is killed
when half of the epochs are complete. What each processor takes is noted in a file of its process; what is taken beyond what a
run without failures takes was done again. `value` is its share of all, `_open` the part of it that survivors did again: at most
epochs that were not complete there; `_beyond` is what of that is more than one epoch of each survivor.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from common import arguments, beyond_one_epoch, report

from falkirk import Dataflow
from recovery.memory.recorder import WorkerRecorder
from recovery.store.address import StoreAddress
from runtime.control import Stats
from runtime.page.recorded import RecordedJob
from runtime.program import Program
from runtime.supervisor.supervisor import Job

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DAYS = 42
"""Of flights; an epoch is an hour, and Spark has the flights of a week."""
REPORTS = 8
"""Days of orders: an epoch each, and a run of Spark."""
ORDERS = 20_000
"""Of a day."""

Handled = Counter[tuple[int, int, int]]
"""Records by (worker, processor, epoch)."""


def build(part: str, folder: Path, flights: Path) -> Dataflow:
    """The example; in a worker, its recorder notes from now on what processors take."""
    sys.path.insert(0, str(EXAMPLES))
    if part == "flights":
        import flights as example

        flow = example.build(flights)
    else:
        import orders as example

        example.ORDERS = ORDERS
        flow = example.build(REPORTS)
    _meter(folder)
    return flow


def _meter(folder: Path) -> None:
    delivered = WorkerRecorder.delivered
    meters: dict[int, int] = {}

    def metered(self: Any, processor: int, port: int, time: Any, batch: Any) -> None:
        pid = os.getpid()
        if pid not in meters:  # a process of its own, not one that a fork has left this to
            meters[pid] = os.open(folder / f"meter-{self._index}-{pid}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(meters[pid], b"%d %d %d\n" % (processor, time[0], len(batch)))
        delivered(self, processor, port, time, batch)

    if delivered.__module__ != __name__:
        WorkerRecorder.delivered = metered  # type: ignore[method-assign]


def _handled(folder: Path) -> Handled:
    found: Handled = Counter()
    for file in folder.glob("meter-*"):
        worker = int(file.name.split("-")[1])
        for line in file.read_bytes().splitlines():
            processor, epoch, records = map(int, line.split())
            found[worker, processor, epoch] += records
    return found


class _Run:
    """A run in a store of its own; `kill_at` is the epoch from which on all that is open when the last worker is killed."""

    def __init__(self, part: str, workers: int, flights: Path, kill_at: int | None) -> None:
        self.before: Handled | None = None
        self.cuts: Counter[int] = Counter()
        self._kill_at = kill_at
        with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as store:
            self._folder = Path(name)
            program = Program(flow=partial(build, part, self._folder, flights))
            self._job = Job(program, workers, store, on_event=self._hear)
            self._victim = workers - 1
            self._job.run(self._watch)
            self.handled = _handled(self._folder)
            with StoreAddress.of(store).open() as opened:
                self.groups = [info.group for info in RecordedJob(opened).layout.processors]

    def _hear(self, kind: str, at: float, data: Any) -> None:
        if kind == "checkpoint" and self.before is None:
            epoch = sys.maxsize if data["epoch"] < 0 else data["epoch"]  # -1 is the end: all of it is saved
            self.cuts[data["group"]] = max(self.cuts[data["group"]], epoch)

    def _watch(self, stats: Mapping[int, Stats]) -> None:
        reached = [each.epoch for each in stats.values() if each.epoch is not None]
        if self._kill_at is not None and self.before is None and reached and min(reached) >= self._kill_at:
            os.kill(self._job.pids[self._victim], signal.SIGKILL)
            self.before = _handled(self._folder)


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as name:
        flights = Path(name) / "flights.parquet"
        if args.part == "flights":
            sys.path.insert(0, str(EXAMPLES))
            import flights_data

            table = flights_data.read_package()
            flights_data.write(table.filter(table["day"] <= DAYS), flights)
        calm = _Run(args.part, args.workers, flights, None)
        run = _Run(args.part, args.workers, flights, DAYS * 24 // 2 if args.part == "flights" else REPORTS // 2)
    if run.before is None:
        raise SystemExit("the job was over before half of it was seen: nothing was killed")
    since = sum(n for (_, p, epoch), n in run.before.items() if epoch >= run.cuts[run.groups[p]])
    again = Counter({key: run.handled[key] - calm.handled[key] for key in run.handled | calm.handled})
    survivors: Counter[tuple[object, int]] = Counter()
    for (worker, _, epoch), n in again.items():
        if worker != args.workers - 1:
            survivors[worker, epoch] += n
    report(again.total() / since, since_the_last_cut=since, goal=1.2 / args.workers)
    report(survivors.total() / since, system=f"{args.part}_open")
    report(beyond_one_epoch(survivors) / since, system=f"{args.part}_beyond")


if __name__ == "__main__":
    main()
