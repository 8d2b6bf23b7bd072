"""The cost of checkpoints in latency: milliseconds from when an epoch is due until the sink has all of it.

Two jobs with the same program and `--size` keys get 1,000 records of random keys in each epoch: one without a store, one that
is saved every second. Each is at work in every other window while the other rests, so that a noisy minute hits both alike. The
second job begins with saving all state, under the same load: those epochs are reported apart ("..._first_save"), and are in no
window.

`--part lazy`: running aggregates (34 bytes a key in a checkpoint), 100 epochs a second. `--part snapshot`: a region of ten
operators, five of which keep state, two of them for each key; 40 epochs a second.

Every figure has the 99th percentile as its value; `ratio` is that of the jobs, `ratio_of_windows` the median over
pairs of neighbouring windows.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from clocked import Epochs
from common import arguments, percentile, report

import falkirk
from falkirk import Columns, Dataflow, Lazy, Snapshot, agg
from timely.data.batch import Batch
from timely.io import Chunk, End, Partition, Position, Wait

LOADING = 16
"""All keys come in so many epochs, before the first window."""
ROWS = 1000
PAIRS = 12
SECONDS = 6
SETTLING = 1.5
"""Seconds at the beginning of a window that are not counted: the other job may still be making its last checkpoint."""


@dataclass(frozen=True)
class Case:
    """A program, and the jobs that run it: the first one without a store."""

    jobs: tuple[str, str]
    policy: Lazy | Snapshot
    rate: int
    """Epochs a second."""


CASES = {
    "lazy": Case(("no_checkpoints", "lazy_1s"), Lazy(every="1s"), 100),
    "snapshot": Case(("no_snapshots", "snapshot_1s"), Snapshot(every="1s"), 40),
}


@dataclass(kw_only=True)
class _Windows(Epochs):
    """All keys, then a few records an epoch at a fixed rate: until `ack` says that all keys are saved, then in windows."""

    job: int
    keys: int
    rate: int
    folder: Path
    window: int = -1
    """-1: until all is saved."""
    number: int = 0
    """Epochs in this window so far."""
    began: float = 0.0
    go: float | None = None
    saved: bool = False
    notes: list[str] = field(default_factory=list)

    def read(self) -> Chunk | Wait | End:
        if self.epoch < LOADING:
            first, last = (self.keys * (self.epoch + i) // LOADING for i in (0, 1))
            return self._chunk(np.arange(first, last))
        now = time.monotonic()
        if self.window == -1:
            if self.job == 0 or (self.saved and not self.number % self.rate):
                return self._wait_for_go()
            self.began = self.began or now + 0.5
        due = self.began + self.number / self.rate
        if now < due:
            return Wait(seconds=due - now)
        if self.window >= 0 and self.number == SECONDS * self.rate:
            return self._next_window()
        self.notes.append(f"{self.epoch} {self.window} {self.number} {due}\n")
        self.number += 1
        return self._chunk(np.random.default_rng(self.epoch).integers(0, self.keys, ROWS))

    def _chunk(self, keys: np.ndarray) -> Chunk:
        self.epoch += 1
        return Chunk(self.epoch - 1, pa.table({"key": keys, "value": keys}), self.epoch, closes=True)

    def _wait_for_go(self) -> Wait:
        (self.folder / f"ready-{self.job}").touch()
        if not (self.folder / "go").exists():
            return Wait(seconds=0.05)
        self.go = float((self.folder / "go").read_text())
        self._next_window()
        return Wait(seconds=0.05)

    def _next_window(self) -> Wait | End:
        assert self.go is not None
        self.window += 1
        self.number = 0
        self.began = self.go + (2 * self.window + self.job) * SECONDS
        return Wait(seconds=0.05) if self.window < PAIRS else End()

    def ack(self, position: Position) -> None:
        self.saved = isinstance(position, int) and position >= LOADING

    def close(self) -> None:
        (self.folder / f"due-{self.job}").write_text("".join(self.notes))


@dataclass(frozen=True)
class _Source:
    job: int
    keys: int
    rate: int
    folder: Path

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        windows = _Windows(name="all", job=self.job, keys=self.keys, rate=self.rate, folder=self.folder)
        return [windows] if worker == 0 else []


@dataclass(frozen=True)
class _Clock:
    """A sink that notes when each epoch was there, on each worker. It is told at once, and not when that is durable."""

    job: int
    folder: Path
    name: str
    exactly_once = False

    def open(self, worker: int, workers: int) -> _ClockWriter:
        return _ClockWriter(self.folder / f"there-{self.job}-{self.name}-{worker}")


class _ClockWriter:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._notes: list[str] = []

    def write(self, epoch: int, batch: Batch) -> None:
        return

    def commit(self, epoch: int) -> None:
        self._notes.append(f"{epoch} {time.monotonic()}\n")

    def abort(self) -> None:
        return

    def close(self) -> None:
        self._file.write_text("".join(self._notes))


def build(case: str, job: int, keys: int, folder: Path) -> Dataflow:
    """The program."""
    flow = Dataflow("latency")
    with flow.region("all", policy=CASES[case].policy):
        rows = flow.columns("rows", _Source(job, keys, CASES[case].rate, folder))
        found = ten_operators(rows) if case == "snapshot" else (totals_by(rows, "key"),)
        for number, stream in enumerate(found):
            stream.to(_Clock(job, folder, str(number)), name=f"out-{number}")
    return flow


def totals_by(rows: Columns, column: str) -> Columns:
    """Running aggregates of what changes."""
    return rows.group_by(column).agg(over="scope", n=agg.count(), s=agg.sum("value"), m=agg.max("value"))


def ten_operators(rows: Columns) -> tuple[Columns, ...]:
    """Nine operators behind the source: totals by key and by shop, the best of all, how many keys each shop has seen."""
    sold = rows.with_columns(shop=pl.col("key") % 1_000).exchange("key").filter(pl.col("value") >= 0)
    by_key = totals_by(sold, "key")
    best = by_key.filter(pl.col("n") > 1).agg(most=agg.max("s"))
    visitors = sold.distinct("key", "shop").group_by("shop").agg(over="scope", visitors=agg.count())
    return by_key, totals_by(sold, "shop"), best, visitors


def latencies(folder: Path, job: int, rate: int) -> dict[int, list[float]]:
    """Milliseconds of the epochs of each window that count; -1: of those before the first one."""
    there: dict[int, float] = {}
    for file in folder.glob(f"there-{job}-*"):
        for line in file.read_text().splitlines():
            epoch, at = line.split()
            there[int(epoch)] = max(there.get(int(epoch), 0.0), float(at))
    found: dict[int, list[float]] = {}
    for line in (folder / f"due-{job}").read_text().splitlines():
        epoch, window, number, due = line.split()
        if int(window) < 0 or int(number) >= SETTLING * rate:
            found.setdefault(int(window), []).append((there[int(epoch)] - float(due)) * 1e3)
    return {window: sorted(each) for window, each in found.items()}


def run_jobs(jobs: tuple[str, str], folder: Path, keys: int, workers: int) -> None:
    """Both jobs, each in a process of its own."""
    command = [
        sys.executable,
        __file__,
        "--workers",
        str(workers),
        "--size",
        str(keys),
        "--data",
        str(folder),
        "--part",
    ]
    running = [subprocess.Popen([*command, job]) for job in jobs]
    while not all((folder / f"ready-{job}").exists() for job in range(len(jobs))):
        time.sleep(0.1)
        if any(each.poll() for each in running):
            break
    (folder / "writing").write_text(repr(time.monotonic() + 1.0))
    (folder / "writing").rename(folder / "go")
    if any(each.wait() for each in running):
        raise SystemExit("a job failed")


def main() -> None:
    args = arguments()
    for name, case in CASES.items():
        if args.part in case.jobs:
            job = case.jobs.index(args.part)
            gc.freeze()  # as worker processes do: the pauses of Python's collector are not what is measured
            with tempfile.TemporaryDirectory() as store:
                flow = build(name, job, args.size, args.data)
                falkirk.run(flow, workers=args.workers, store=store if job else None)
            return
    case = CASES[args.part]
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        run_jobs(case.jobs, folder, args.size, args.workers)
        found = [latencies(folder, job, case.rate) for job in range(len(case.jobs))]
    tails: list[float] = []
    for job, of in zip(case.jobs, found):
        epochs = sorted(each for window in range(PAIRS) for each in of[window])
        tails.append(percentile(epochs, 0.99))
        report(tails[-1], system=job, p50=percentile(epochs, 0.5), p90=percentile(epochs, 0.9), longest=epochs[-1])
    first = found[1][-1]
    report(percentile(first, 0.99), system=f"{case.jobs[1]}_first_save", p50=percentile(first, 0.5), longest=first[-1])
    report(tails[1] / tails[0], system="ratio", unit="x")
    for system, share in (("ratio_of_windows", 0.99), ("ratio_of_medians", 0.5)):
        pairs = [percentile(found[1][window], share) / percentile(found[0][window], share) for window in range(PAIRS)]
        report(statistics.median(pairs), system=system, unit="x", all=[round(each, 2) for each in pairs])


if __name__ == "__main__":
    main()
