"""Running sums of many keys at a steady rate, for programs that kill workers: source, program, outputs, silences."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
from clocked import Clock, Epochs

from falkirk import Dataflow, Lazy, PassiveStandby, agg
from timely.io import Chunk, End, Partition, Wait

LOADING = 16
"""Epochs with all keys, before the steady ones."""
RATE = 50
"""Steady epochs a second."""
BEGAN, ENDED = "began", "ended"
"""Files: time at which the steady epochs began; end of all input."""


@dataclass(kw_only=True)
class _Steady(Epochs):
    """All keys in the first epochs, then 1,000 records an epoch at a fixed rate; the same after going back."""

    keys: int
    folder: Path
    seconds: float

    def read(self) -> Chunk | Wait | End:
        epoch = self.epoch
        if epoch < LOADING:
            keys = np.arange(self.keys * epoch // LOADING, self.keys * (epoch + 1) // LOADING)
        else:
            if not (self.folder / BEGAN).exists():
                return Wait(seconds=0.05)
            if epoch >= LOADING + self.seconds * RATE or (self.folder / ENDED).exists():
                return End()
            due = began(self.folder) + (epoch - LOADING) / RATE
            if (now := time.time()) < due:
                return Wait(seconds=due - now)
            keys = np.random.default_rng(epoch).integers(0, self.keys, 1000)
        self.epoch += 1
        return Chunk(epoch, pa.table({"key": keys, "value": keys}), self.epoch, closes=True)


@dataclass(frozen=True)
class _SteadySource:
    keys: int
    folder: Path
    seconds: float
    repeats: ClassVar[bool] = True

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        return [_Steady(name=f"part-{worker}", keys=self.keys, folder=self.folder, seconds=self.seconds)]


def build(
    folder: Path, keys: int, seconds: float = float("inf"), policy: Lazy | PassiveStandby | None = None
) -> Dataflow:
    """The program: sums over steady epochs for `seconds`, or until there is the file `ENDED`.

    They are saved every second, or as `policy` says.
    """
    flow = Dataflow("steady")
    with flow.region("all", policy=policy or Lazy(every="1s")):
        rows = flow.columns("rows", _SteadySource(keys, folder, seconds))
        rows.group_by("key").agg(over="scope", n=agg.count(), s=agg.sum("value")).to(Clock(folder), name="out")
    return flow


def begin(folder: Path) -> None:
    """Let the steady epochs begin now."""
    (folder / "writing").write_text(repr(time.time()))
    (folder / "writing").rename(folder / BEGAN)


def first_due(folder: Path, at: float) -> float:
    """Steady epoch due at a time; those before it were due earlier."""
    return LOADING + (at - began(folder)) * RATE


def outputs(folder: Path) -> list[tuple[float, int, str]]:
    """Time, epoch and worker of each output so far, ascending."""
    lines = [(line, file.name.split("-")[1]) for file in folder.glob("out-*") for line in file.read_text().splitlines()]
    return sorted(
        (float(line.split()[1]), int(line.split()[0]), worker) for line, worker in lines if line.count(" ") == 1
    )


def newest(folder: Path, workers: int) -> int:
    """Newest epoch out on all workers; -1 for none."""
    of = dict.fromkeys(map(str, range(workers)), -1)
    for _, epoch, worker in outputs(folder):
        of[worker] = max(of[worker], epoch)
    return min(of.values())


def kill(folder: Path, worker: int) -> float:
    """Kill the process of a worker by SIGKILL; the time of that."""
    os.kill(int((folder / f"pid-{worker}").read_text()), signal.SIGKILL)
    return time.time()


def first_sign(folder: Path, written: Iterable[tuple[float, int, str]], killed: float) -> float:
    """Time of the first output due after a kill: survivors may write earlier ones a moment later."""
    due = first_due(folder, killed)
    return min(when for when, epoch, _ in written if epoch >= due)


def began(folder: Path) -> float:
    """Time at which the steady epochs began."""
    return float((folder / BEGAN).read_text())
