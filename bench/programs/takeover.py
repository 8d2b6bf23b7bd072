"""The silence of a job after `kill -9` of one of its workers: without mates (`--part lazy`), and with them (`lazy_mates`).

Each of two workers keeps running sums for its half of `--size` keys, saved every second, and gets epochs of 1,000 records at a
fixed rate once all are loaded. The time counts from the kill until the first output, on any worker, of an epoch due after it.
With mates, a worker dies when both mates have their state. The second figure is processor seconds of all processes of the job
for each second, between the loading and the first kill.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
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
SETTLE_SECONDS = 6
"""Seconds of steady epochs in which processor time is counted."""
KILLS = 4
BEGAN, ENDED = "began", "ended"
"""Files that say when the epochs at a fixed rate began, and that they may end."""


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
            if (self.folder / ENDED).exists():
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


def _outputs(folder: Path) -> list[tuple[float, int, str]]:
    """Time, epoch and worker of each output so far."""
    lines = [(line, file.name.split("-")[1]) for file in folder.glob("out-*") for line in file.read_text().splitlines()]
    return sorted(
        (float(line.split()[1]), int(line.split()[0]), worker) for line, worker in lines if line.count(" ") == 1
    )


def _least(folder: Path, workers: int) -> int:
    """The newest epoch that is there on all workers; -1 if there is none."""
    newest = dict.fromkeys(map(str, range(workers)), -1)
    for _, epoch, worker in _outputs(folder):
        newest[worker] = max(newest[worker], epoch)
    return min(newest.values())


def _is_past(folder: Path, due: float) -> bool:
    """True if there is an output of an epoch after `due`."""
    return any(epoch >= due for _, epoch, _ in _outputs(folder))


def build(folder: Path, keys: int) -> Dataflow:
    """The program."""
    flow = Dataflow("takeover")
    with flow.region("all", policy=Lazy(every="1s")):
        rows = flow.columns("rows", _SteadySource(keys, folder))
        rows.group_by("key").agg(over="scope", n=agg.count(), s=agg.sum("value")).to(Clock(folder), name="out")
    return flow


def _spent() -> float:
    """Processor seconds of all processes that this one has started."""
    parent: dict[int, int] = {}
    spent: dict[int, float] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = file.read_text().rpartition(")")[2].split()
            pid = int(file.parent.name)
            parent[pid], spent[pid] = int(fields[1]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parent and ours(parent[pid]))

    return sum(seconds for pid, seconds in spent.items() if pid != os.getpid() and ours(pid))


def _wait(ready: Callable[[], bool]) -> None:
    while not ready():
        time.sleep(0.2)


def main() -> None:
    args = arguments()
    mates = int(args.part == "lazy_mates")
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as store:
        folder = Path(name)
        log = folder / "events"
        killed: list[float] = []
        cpu: list[float] = []

        def ready(times: int) -> bool:
            """True if mates have caught up so often."""
            return not mates or (log.exists() and log.read_text().count('"mate"') >= times)

        def follow() -> None:
            chance = random.Random(7)
            _wait(lambda: _least(folder, args.workers) >= LOADING - 1)
            (folder / "writing").write_text(repr(time.time()))
            (folder / "writing").rename(folder / BEGAN)
            _wait(lambda: ready(args.workers) and _least(folder, args.workers) >= LOADING + 2 * RATE)
            began, spent = time.perf_counter(), _spent()
            time.sleep(SETTLE_SECONDS)
            cpu.append((_spent() - spent) / (time.perf_counter() - began))
            for number in range(KILLS):
                _wait(partial(ready, args.workers + number))
                time.sleep(2 + chance.random())  # a cut, and anywhere between two
                worker = number % args.workers
                os.kill(int((folder / f"pid-{worker}").read_text()), signal.SIGKILL)
                killed.append(time.time())
                due = (killed[-1] - float((folder / BEGAN).read_text())) * RATE + LOADING
                _wait(partial(_is_past, folder, due))
            (folder / ENDED).touch()

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        falkirk.run(build(folder, args.size), workers=args.workers, store=store, mates=mates, events=log)
        thread.join()
        outputs = _outputs(folder)
        began = float((folder / BEGAN).read_text())
        silent = [
            (min(when for when, epoch, _ in outputs if began + (epoch - LOADING) / RATE >= at) - at) * 1000
            for at in killed
        ]
    report(statistics.median(silent), all=[round(each) for each in silent])
    report(cpu[0], system=f"{args.part}_cpu", unit="CPU s/s")


if __name__ == "__main__":
    main()
