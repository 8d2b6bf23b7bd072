"""The cost of what survivors keep, on a job in which nothing fails: CPU seconds of its workers by those of one that keeps none.

Two jobs of `--workers` workers with stores begin together. In one of them no edge is kept, so its senders forget at once what
they have sent. Worker n of both has the same core, a few milliseconds each in turn, so that whatever slows one slows both.
`--part` is the program: `wordcount`, a running count of 50,000 words an epoch and worker; `keyed`, sums of as many rows with
uniform keys, of which half cross; `loop`, 50 records that go round a loop and change the worker in each of its 20 iterations;
`tiny`, 48 records an epoch through three exchanges. Input is in memory, so that nothing beside hides the cost.

The epochs are divided into blocks, of which the first quarter is left out: until then what is kept grows, and takes memory
that was never written to, each page of it an interruption. `_begin` is how many CPU seconds more a worker took for those.
`_low` and `_high` are the bounds of a 95 % bootstrap interval of the ratio over the other blocks. `--size` is how many
thousandths of the usual number of epochs are run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from clocked import Epochs
from common import arguments, report

import falkirk
from falkirk import Dataflow, Lazy, agg
from recovery import layout
from timely.data.kernels import warm
from timely.io import Chunk, End, Partition, Wait

FOLDER = "FALKIRK_BENCH_FOLDER"
"""Names the folder of one of the two jobs; both are in one, in which their workers meet."""
EPOCHS = {"wordcount": 2_400, "keyed": 2_000, "loop": 480, "tiny": 8_000}
ROWS = 50_000
BLOCKS = 16
BEGIN = 4
"""Blocks that are left out."""
ROUNDS = 20
INPUTS = 4
"""Different epochs; then they come again."""


def _inputs(part: str, worker: int) -> list[Any]:
    rng = np.random.default_rng((7, worker))
    if part == "loop":
        return [[(int(key), ROUNDS) for key in rng.integers(0, 1000, 50)] for _ in range(INPUTS)]
    if part == "tiny":
        return [[int(key) for key in rng.integers(0, 1000, 48)] for _ in range(INPUTS)]
    if part == "keyed":
        keys = [rng.integers(0, 100_000, ROWS) for _ in range(INPUTS)]
        return [pa.table({"key": each, "value": rng.random(ROWS)}) for each in keys]
    words = pa.array([f"word{number}" for number in range(100_000)])
    share = 1 / np.arange(1, 100_001)
    codes = [rng.choice(100_000, ROWS, p=share / share.sum()).astype(np.int32) for _ in range(INPUTS)]
    coded = [pa.DictionaryArray.from_arrays(pa.array(each), words) for each in codes]
    return [pa.table({"word": each.cast(pa.string()).dictionary_encode()}) for each in coded]


@dataclass(kw_only=True)
class _Blocks(Epochs):
    inputs: list[Any]
    epochs: int
    file: Path

    def read(self) -> Chunk | Wait | End:
        epoch = self.epoch
        if epoch % max(1, self.epochs // BLOCKS) == 0 or epoch == self.epochs:
            with self.file.open("a") as file:
                file.write(f"{epoch} {time.process_time()!r}\n")
        if epoch >= self.epochs:
            return End()
        self.epoch += 1
        return Chunk(epoch, self.inputs[epoch % INPUTS], self.epoch, closes=True)


@dataclass(frozen=True)
class _Source:
    part: str
    epochs: int
    folder: Path
    repeats: ClassVar[bool] = True

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        inputs = _inputs(self.part, worker)
        warm()
        _meet(worker, 2 * workers, self.folder.parent)
        file = self.folder / f"used-{worker}"
        return [_Blocks(name=f"part-{worker}", inputs=inputs, epochs=self.epochs, file=file)]


def _meet(worker: int, workers: int, folder: Path) -> None:
    """Wait for all workers of both jobs, and share a core with the other one of this number."""
    cores = sorted(os.sched_getaffinity(0))
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {cores[worker % len(cores)]})
    (folder / f"here-{os.getpid()}").touch()
    while len(list(folder.glob("here-*"))) < workers:
        time.sleep(0.001)


def build(part: str, epochs: int, folder: Path, keeps: bool) -> Dataflow:
    """The program; what a process that builds it lays out keeps nothing, unless it `keeps`."""
    if not keeps:
        made = layout._edges
        layout._edges = lambda *given: (layout.replace(edge, kept=False) for edge in made(*given))
    flow = Dataflow("kept")
    with flow.region("all", policy=Lazy(every="1s")):
        source = _Source(part, epochs, folder)
        if part == "wordcount":
            counts: Any = flow.columns("words", source).group_by("word").agg(over="scope", n=agg.count())
        elif part == "keyed":
            parts = {"total": agg.sum("value"), "n": agg.count(), "top": agg.max("value")}
            counts = flow.columns("rows", source).group_by("key").agg(over="time", **parts)
        elif part == "tiny":
            counts = flow.source("rows", source).key_by(lambda key: key).count(name="first").records()
            counts = counts.key_by(lambda each: each[0] % 101 + each[1]).count(name="second").records()
            counts = counts.key_by(lambda each: each[0] % 17).count(name="third").records()
        else:
            counts = flow.source("rows", source).iterate(_round)
            counts = counts.key_by(lambda each: each[0]).count(name="ended").records()
    counts.to(falkirk.Callback(_ignore), name="out")
    return flow


def _round(records: Any) -> Any:
    sent = records.exchange(lambda each: each[0])
    return sent.map(lambda each: (each[0] + 1, each[1] - 1)).branch(lambda each: each[1] > 0)


def _ignore(*_: Any) -> None:
    return


def _run(part: str, epochs: int, workers: int, folder: Path) -> None:
    """One of the two jobs, in a process of its own."""
    with tempfile.TemporaryDirectory() as store:
        falkirk.run(partial(build, part, epochs, folder, folder.name == "kept"), workers=workers, store=store)


def _blocks(folder: Path) -> np.ndarray:
    """CPU seconds of the workers together, block by block."""
    used = [[float(line.split()[1]) for line in file.read_text().splitlines()] for file in folder.glob("used-*")]
    return np.diff(np.array(used), axis=1).sum(axis=0)


def main() -> None:
    args = arguments()
    epochs = max(BLOCKS, EPOCHS[args.part] * args.size // 1000 // BLOCKS * BLOCKS)
    if FOLDER in os.environ:
        _run(args.part, epochs, args.workers, Path(os.environ[FOLDER]))
        return
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / "kept", Path(name) / "forgotten"]
        jobs = []
        for folder in folders[:: 1 if os.getpid() % 2 else -1]:  # neither is always the first
            folder.mkdir()
            jobs.append(subprocess.Popen([sys.executable, *sys.argv], env=os.environ | {FOLDER: str(folder)}))
        codes = [job.wait() for job in jobs]
        if any(codes):
            sys.exit("one of the two jobs has failed")
        kept, forgotten = map(_blocks, folders)
        begin = (kept[:BEGIN].sum() - forgotten[:BEGIN].sum()) / args.workers
        kept, forgotten = kept[BEGIN:], forgotten[BEGIN:]
    drawn = np.random.default_rng(7).integers(0, len(kept), (2000, len(kept)))
    ratios = np.sort(kept[drawn].sum(axis=1) / forgotten[drawn].sum(axis=1))
    report(kept.sum() / forgotten.sum(), cpu_seconds=kept.sum(), without=forgotten.sum())
    report(ratios[50], system=f"{args.part}_low")
    report(ratios[-50], system=f"{args.part}_high")
    report(begin, system=f"{args.part}_begin")


if __name__ == "__main__":
    main()
