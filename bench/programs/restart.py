"""The silence of a job after `kill -9` of one of its workers: until the first output of an epoch that was due after that.

Each worker keeps running sums for its half of `--size` keys (about 33 bytes a key and worker), saved every second, and when
all are loaded gets 50 epochs of 1,000 records a second. `redone_of_all` is which share of the records that were handled before
the kill was handled again: without recovery it is 1. `redone_of_last_cut` is the share of what all workers together would do
again if all went back to the last checkpoint. `--part process` gives what starting such a worker process from nothing takes,
without its state.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
from clocked import Clock, Epochs
from common import arguments, report

import falkirk
from falkirk import Dataflow, Lazy, agg
from timely.io import Chunk, End, Partition, Wait

LOADING = 16
RATE = 50
SECONDS = 26
BEGAN = "began"
"""The file that says when the epochs at a fixed rate began."""
KILLS = (4, 8, 12)
"""A worker dies when the epochs of so many seconds at the fixed rate are there, on all workers."""


@dataclass(kw_only=True)
class _Steady(Epochs):
    """All keys in the first epochs; once all are there, a few records an epoch at a fixed rate; the same after going back."""

    keys: int
    folder: Path

    def read(self) -> Chunk | Wait | End:
        epoch = self.epoch
        if epoch < LOADING:
            keys = np.arange(self.keys * epoch // LOADING, self.keys * (epoch + 1) // LOADING)
        else:
            if not (self.folder / BEGAN).exists():
                return Wait(seconds=0.05)
            due = float((self.folder / BEGAN).read_text()) + (epoch - LOADING) / RATE
            now = time.time()
            if epoch >= LOADING + SECONDS * RATE:
                return End()
            if now < due:
                return Wait(seconds=due - now)
            keys = np.random.default_rng(epoch).integers(0, self.keys, 1000)
        self.epoch += 1
        return Chunk(epoch, pa.table({"key": keys, "value": keys}), self.epoch, closes=True)


@dataclass(frozen=True)
class _SteadySource:
    keys: int
    folder: Path
    repeats: ClassVar[bool] = True

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        return [_Steady(name=f"part-{worker}", keys=self.keys, folder=self.folder)]


def _least(folder: Path, workers: int) -> int:
    """The newest epoch that is there on all workers; -1 if there is none."""
    newest = dict.fromkeys(map(str, range(workers)), -1)
    for file in folder.glob("out-*"):
        worker = file.name.split("-")[1]
        lines = [line for line in file.read_text().splitlines() if line.count(" ") == 1]
        newest[worker] = max([newest[worker], *(int(line.split()[0]) for line in lines)])
    return min(newest.values())


def _records(keys: int, epoch: int) -> int:
    """The number of records of each worker in an epoch."""
    return keys // LOADING if epoch < LOADING else 1000


def build(folder: Path, keys: int) -> Dataflow:
    """The program."""
    flow = Dataflow("restart")
    with flow.region("all", policy=Lazy(every="1s")):
        rows = flow.columns("rows", _SteadySource(keys, folder))
        rows.group_by("key").agg(over="scope", n=agg.count(), s=agg.sum("value")).to(Clock(folder), name="out")
    return flow


def main() -> None:
    args = arguments()
    if args.part == "process":
        began = time.perf_counter()
        code = "import numpy, pyarrow, polars, runtime.recovery.driver, timely.data.kernels as k; k.warm()"
        subprocess.run([sys.executable, "-c", code], check=True)
        report((time.perf_counter() - began) * 1000)
        return
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as store:
        folder = Path(name)
        killed: list[float] = []

        def wait_for(epoch: int) -> None:
            while _least(folder, args.workers) < epoch:
                time.sleep(0.1)

        def kill() -> None:
            chance = random.Random(7)
            wait_for(LOADING - 1)
            (folder / "writing").write_text(repr(time.time()))
            (folder / "writing").rename(folder / BEGAN)
            for number, seconds in enumerate(KILLS):
                wait_for(LOADING + seconds * RATE)
                time.sleep(chance.random())  # anywhere between two checkpoints
                worker = number % args.workers
                os.kill(int((folder / f"pid-{worker}").read_text()), signal.SIGKILL)
                killed.append(time.time())

        thread = threading.Thread(target=kill, daemon=True)
        thread.start()
        falkirk.run(build(folder, args.size), workers=args.workers, store=store)
        thread.join()
        outputs = sorted(
            (float(at), int(epoch), file.name.split("-")[1])
            for file in folder.glob("out-*")
            for epoch, at in (line.split() for line in file.read_text().splitlines() if line.count(" ") == 1)
        )
        began = float((folder / BEGAN).read_text())
        silent = []
        of_all, of_last_cut = [], []
        for at in killed:
            # What survivors had complete they may write a moment later: that is no sign of life of the job.
            first = min(when for when, epoch, _ in outputs if began + (epoch - LOADING) / RATE >= at)
            silent.append((first - at) * 1000)
            done = {(epoch, worker) for when, epoch, worker in outputs if when < at}
            again = {(epoch, worker) for when, epoch, worker in outputs if at < when < first} & done
            redone = sum(_records(args.size, epoch) for epoch, _ in again)
            behind = {each for each in done if each[0] >= min((epoch for epoch, _ in again), default=1 << 60)}
            of_all.append(redone / sum(_records(args.size, epoch) for epoch, _ in done))
            of_last_cut.append(redone / max(sum(_records(args.size, epoch) for epoch, _ in behind), 1))
    report(statistics.median(silent), all=[round(each) for each in silent])
    report(statistics.median(of_all), system="redone_of_all", unit="share", all=of_all)
    report(statistics.median(of_last_cut), system="redone_of_last_cut", unit="share", all=of_last_cut)


if __name__ == "__main__":
    main()
