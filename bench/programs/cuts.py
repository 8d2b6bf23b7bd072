"""The interval between cuts: 0.5 s are asked for, and the 95th percentile of what comes is the figure.

`--part` says which job: "flights" (examples/flights.py without Spark), "tiny_epochs" (10,000 epochs of one record a second),
"state_128mb" and "state_1gb" (running aggregates of so much, 34 bytes a key in a checkpoint: all keys as fast as they are
taken, then 100 epochs of 1,000 random keys a second). A job with large state is killed (`kill -9` of worker 0) when that has
gone on for `STEADY` seconds, and goes on for `AFTER` seconds more.

Beside the time between cuts: from a cut until W contains it ("_to_w"), the longest ("_longest"), the peak memory of a worker
("_memory"), and, where one was killed, the seconds until the first new output ("_restore"), and the peak memory of the worker
that came in its place ("_restored_memory").
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from clocked import Clock, Epochs
from common import arguments, percentile, report

import falkirk
from falkirk import Dataflow, Ephemeral, Lazy, agg
from timely.data.batch import Batch
from timely.io import Chunk, End, Partition, Wait

EVERY = 0.5
KEY_BYTES = 34
STATES = {"state_128mb": 128 << 20, "state_1gb": 1 << 30}
LOAD_ROWS = 1 << 18
RATE, ROWS = 100, 1000
STEADY, AFTER = 15.0, 8.0
TINY_RATE, TINY_SECONDS = 10_000, 15


@dataclass(kw_only=True)
class _Paced(Epochs):
    """Epoch after epoch from `make`, each when `due` says so (seconds after the first one that has to wait)."""

    epochs: int
    make: Callable[[int], Batch]
    due: Callable[[int], float]
    folder: Path
    began: float | None = field(default=None)

    def read(self) -> Chunk | Wait | End:
        if self.epoch >= self.epochs:
            return End()
        due = self.due(self.epoch)
        if due > 0.0:
            now = time.time()
            began = self._begin(now)
            if now < began + due:
                return Wait(seconds=began + due - now)
        self.epoch += 1
        return Chunk(self.epoch - 1, self.make(self.epoch - 1), self.epoch, closes=True)

    def _begin(self, now: float) -> float:
        """The time when this worker first had to wait, also in an earlier process."""
        if self.began is None:
            note = self.folder / f"steady-{self.name}"
            if not note.exists():
                note.write_text(repr(now))
            self.began = float(note.read_text())
        return self.began


@dataclass(frozen=True)
class _Source:
    folder: Path
    epochs: int
    make: Callable[[int], Batch]
    due: Callable[[int], float]

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        if worker:
            return []
        return [_Paced(name="0", epochs=self.epochs, make=self.make, due=self.due, folder=self.folder)]


def large(folder: Path, size: int) -> Dataflow:
    """Running aggregates of `size` bytes."""
    keys = size // KEY_BYTES
    load = -(-keys // LOAD_ROWS)

    def make(epoch: int) -> Batch:
        if epoch < load:
            chosen = np.arange(epoch * LOAD_ROWS, min((epoch + 1) * LOAD_ROWS, keys))
        else:
            chosen = np.random.default_rng(epoch).integers(0, keys, ROWS)
        return pa.table({"key": chosen, "value": chosen})

    def due(epoch: int) -> float:
        return (epoch - load + 1) / RATE if epoch >= load else 0.0

    flow = Dataflow("cuts")
    with flow.region("all", policy=Lazy(every=EVERY)):
        rows = flow.columns("rows", _Source(folder, load + int((STEADY + AFTER) * RATE), make, due))
        totals = rows.group_by("key").agg(over="scope", n=agg.count(), s=agg.sum("value"), m=agg.max("value"))
        totals.to(Clock(folder), name="out")
    return flow


def tiny(folder: Path) -> Dataflow:
    """Tiny epochs, as fast as they come."""
    flow = Dataflow("cuts")
    with flow.region("all", policy=Lazy(every=EVERY)):
        source = _Source(
            folder, TINY_RATE * TINY_SECONDS, lambda epoch: [(epoch % 7, 1)], lambda epoch: (epoch + 1) / TINY_RATE
        )
        sums = flow.source("ones", source).keyed().sum(name="sums")
        sums.records().capture("running")
        sums.records().to(Clock(folder), name="out")
    return flow


def flights(folder: Path) -> Dataflow:
    """The flights without their Spark region."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
    import flights as example
    import flights_data
    import polars as pl

    flow = Dataflow("cuts")
    with flow.region("front", policy=Ephemeral()):
        source = falkirk.Parquet(flights_data.prepare(), epoch="hour", split="row_groups")
        arrived, stranded = flow.columns("flights", source).branch(pl.col("arr_delay").is_not_null(), name="arrived")
    with flow.region("rest", policy=Lazy(every=EVERY)):
        for key in ("carrier", "route"):
            arrived.group_by(key).agg(over="scope", name=f"by-{key}", **example.STATISTICS).capture(f"{key}s")
        stranded.key_by("carrier").count(name="by-airline").capture("stranded")
        links = example.late_chains(arrived)
        causes = example.find_causes(links).filter(lambda found: found[3] is not None, name="only-new")
        causes.map(lambda found: (found[0], found[1:3]), name="cause").capture("causes")
        accounts = causes.map(lambda found: (found[1], (1, found[3])), name="account").keyed()
        accounts.reduce(example.add, name="by-cause", any_order=True).capture("knock-on")
        causes.to(Clock(folder), name="out")
    return flow


class _Watch(threading.Thread):
    """Notes the peak memory of the workers, and kills worker 0 when it is time."""

    def __init__(self, folder: Path, kill: bool) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.kill = kill
        self.peaks: dict[int, int] = {}
        """By process, bytes."""
        self.before: set[int] = set()
        """The processes that were there when one was killed."""
        self.killed: float | None = None

    def run(self) -> None:
        while True:
            time.sleep(0.1)
            for file in self.folder.glob("pid-*"):
                try:
                    process = int(file.read_text())
                    status = Path(f"/proc/{process}/status").read_text()
                    self.peaks[process] = int(status.partition("VmHWM:")[2].split()[0]) * 1024
                except (OSError, ValueError, IndexError):
                    continue  # it has just ended
            steady = self.folder / "steady-0"
            if self.kill and steady.exists():
                began = steady.read_text()
                if began and time.time() >= float(began) + STEADY:
                    self.kill, self.killed, self.before = False, time.time(), set(self.peaks)
                    os.kill(int((self.folder / "pid-0").read_text()), signal.SIGKILL)


def restore_seconds(folder: Path, killed: float) -> float:
    """From the kill to the first output of an epoch that had not been there before."""
    out = [line.split() for file in folder.glob("out-*") for line in file.read_text().splitlines()]
    there = [(int(line[0]), float(line[1])) for line in out if len(line) == 2]
    last = max(epoch for epoch, at in there if at <= killed)
    return min(at for epoch, at in there if at > killed and epoch > last) - killed


def main() -> None:
    args = arguments()
    part = args.part
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        events = folder / "events"
        build = partial(
            {"flights": flights, "tiny_epochs": tiny}.get(part) or partial(large, size=STATES[part]), folder
        )
        watch = _Watch(folder, part in STATES)
        watch.start()
        falkirk.run(build, workers=args.workers, store=folder / "store", events=events)
        happened = [json.loads(line) for line in events.read_text().splitlines()]
        safe = [event for event in happened if event["kind"] == "safe"]
        between = sorted(event["interval"] for event in safe if "interval" in event)
        to_w = sorted(event["seconds"] for event in safe)
        report(percentile(between, 0.95), system=part, p50=percentile(between, 0.5), cuts=len(safe))
        report(percentile(to_w, 0.95), system=f"{part}_to_w", p50=percentile(to_w, 0.5))
        report(max(*between, *to_w), system=f"{part}_longest")
        report(max(watch.peaks.values()) / 2**20, system=f"{part}_memory", unit="MB")
        if watch.killed is not None:
            restored = max(peak for process, peak in watch.peaks.items() if process not in watch.before)
            report(restored / 2**20, system=f"{part}_restored_memory", unit="MB")
            report(restore_seconds(folder, watch.killed), system=f"{part}_restore")


if __name__ == "__main__":
    main()
