"""Programs whose batches are divided otherwise when they are done again, each killed at a drawn record, many times.

`python -m tests.soak.divided_kills --runs 20`. Each has an operator whose output depends on its batches or on their order, and
an exchange by that output, so that a survivor that believed in a repetition would give records twice and never. Each record
must come out once, whatever its value. All of them were wrong after one kill before operators declared what they repeat over.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl

import falkirk
from falkirk import Dataflow, Lazy, Stream
from runtime.program import Program
from tests.falkirk.simulate.later_times import Repeats
from timely.io import Batches, Iterable

N = 300
"""Records of each program."""


@dataclass(frozen=True)
class Dying:
    """A function that gives back its record, after a while, and ends its process at one of them, once."""

    folder: str
    at: int
    number: Callable[[Any], int] = int

    def __call__(self, record: Any) -> Any:
        time.sleep(0.001)
        if self.number(record) == self.at and not os.path.exists(f"{self.folder}/died"):
            Path(self.folder, "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return record


def _first(record: Any) -> int:
    return int(record[0])


def _slowly(record: Any) -> Any:
    time.sleep(0.0005)
    return record


def _finish(stream: Stream, die: Dying) -> None:
    """Exchange pairs (number, value) by value, and capture the numbers."""
    there = stream.exchange(by=lambda pair: repr(pair[1])).policy(Lazy(every=20)).map(die).policy(Lazy(every=20))
    there.map(lambda pair: int(pair[0])).policy(Lazy(every=20)).capture("out")


def to_columns(die: Dying) -> Dataflow:
    """Types of columns that follow from the batch, behind a log."""
    flow = Dataflow("to_columns")
    rows = [{"n": n, "price": n if n % 5 else n + 0.5} for n in range(N)]
    with flow.region("before", policy=Lazy(every="10ms", log_outputs=True)):
        stream = flow.source("in", Iterable(partitioned=[rows, []], batch=1, epoch_every=5))
    _finish(stream.to_columns().to_records().map(lambda row: (row["n"], str(row["price"]))), die)
    return flow


class Frames(Sequence[Any]):
    """Frames of one row, each of which is there after another while: a source gathers more or fewer of them."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, at: Any) -> Any:
        time.sleep(0.01 * Random().random() ** 6)
        return pl.DataFrame({"n": [at]})


def small_frames(die: Dying) -> Dataflow:
    """A function of each batch behind a source that gathers small frames."""
    flow = Dataflow("small_frames")
    records = flow.columns("in", Batches(Frames(), per_epoch=12)).filter(pl.col("n") >= 0).to_records()
    _finish(records.map_batches(lambda batch: [(row["n"], (len(batch), row["n"] % 7)) for row in batch]), die)
    return flow


def behind_a_log(die: Dying) -> Dataflow:
    """A function of each batch behind a log within a worker."""
    flow = Dataflow("behind_a_log")
    with flow.region("before", policy=Lazy(every="10ms", log_outputs=True)):
        stream = flow.source("in", Iterable(partitioned=[range(N), []], batch=1, epoch_every=5))
    _finish(stream.map_batches(lambda batch: [(n, (len(batch), n % 7)) for n in batch]), die)
    return flow


def equal_keys(die: Dying) -> Dataflow:
    """Keys that are equal and not the same."""
    flow = Dataflow("equal_keys")
    parts: list[list[float]] = [list(range(N)), [float(n) for n in range(N)]]
    numbers = flow.source("in", Iterable(partitioned=parts, batch=1, epoch_every=1))
    _finish(numbers.map(lambda n: n).distinct(name="once").map(lambda n: (n, n)), die)
    return flow


def branch_by_mean(die: Dying) -> Dataflow:
    """A branch by a mean of each batch, behind an exchange."""
    flow = Dataflow("branch_by_mean")
    rows = [[{"n": n, "v": (n * 37) % 101} for n in range(part, N, 2)] for part in range(2)]
    spread = flow.source("in", Iterable(partitioned=rows, batch=1, epoch_every=8)).exchange(by=lambda row: row["n"] % 2)
    columns = spread.to_columns(schema={"n": int, "v": int})
    above, below = columns.branch(pl.col("v") > pl.col("v").mean())
    _finish(
        above.to_records().map(lambda row: (row["n"], "+")).concat(below.to_records().map(lambda row: (row["n"], "-"))),
        die,
    )
    return flow


VALUES: dict[str, list[Any]] = {
    "float32": [np.float32(16777216), np.float32(1), np.float32(1)],
    "float16": [np.float16(2048), np.float16(1), np.float16(1)],
    "complex": [0.1 + 0j, 0.2 + 0j, 0.3 + 0j],
    "decimals": [Decimal(10) ** 27, Decimal("0.6"), Decimal("0.6")],
    "texts": ["a", "b", "c"],
    "tuples": [(1,), (2,), (3,)],
}


def _sums(kind: str) -> Callable[[Dying], Dataflow]:
    def build(die: Dying) -> Dataflow:
        flow = Dataflow(f"sums_of_{kind}")
        parts = [[(key, value) for key in range(N)] for value in VALUES[kind]]
        pairs = flow.source("in", Iterable(partitioned=parts, batch=1, epoch_every=1))
        slowly = pairs.map(_slowly)
        _finish(slowly.keyed().sum(over="time", name="sums").records(), die)
        return flow

    return build


def later_times(die: Dying) -> Dataflow:
    """Records that an operator keeps for a later epoch."""
    flow = Dataflow("later_times")
    numbers = flow.source("in", Iterable(partitioned=[range(0, N, 2), range(1, N, 2)], batch=1, epoch_every=3))
    slowly = numbers.exchange(by=lambda n: n).map(die)
    slowly.unary("waits", partial(Repeats, "batches", "due", True), holds=True).policy(Lazy(every=2)).capture("out")
    return flow


PROGRAMS: dict[str, Callable[[Dying], Dataflow]] = {
    each.__name__: each for each in (to_columns, small_frames, behind_a_log, equal_keys, branch_by_mean, later_times)
} | {f"sums_of_{kind}": _sums(kind) for kind in VALUES}


def build(name: str, folder: str, at: int) -> Dataflow:
    """The program of a name."""
    number = int if name == "later_times" else _first
    return PROGRAMS[name](Dying(folder, at, number))


def check(name: str, at: int) -> bool:
    """True if a process died at record `at`; AssertionError if a record came twice or never."""
    with tempfile.TemporaryDirectory(prefix="falkirk-divided-") as folder:
        program = Program(flow=build, args={"name": name, "folder": folder, "at": at})
        workers = 3 if name.startswith("sums") else 2
        result = falkirk.run(program, workers=workers, store=f"{folder}/store")
        found = Counter(n for _, batch in result.captured("out") for n in batch)
        twice, never = sorted(n for n, k in found.items() if k > 1), sorted(set(range(N)) - set(found))
        assert (twice, never) == ([], []), f"{name}, killed at {at}: twice {twice}, never {never}"
        return Path(folder, "died").exists()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="of each program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=PROGRAMS, action="append")
    options = parser.parse_args()
    for name in options.only or PROGRAMS:
        random, died, wrong = Random(f"{options.seed} {name}"), 0, 0
        for _ in range(options.runs):
            try:
                died += check(name, random.randrange(N // 10, N))
            except AssertionError as error:
                wrong += 1
                print(error, flush=True)
        print(f"{name}: {died} kills in {options.runs} runs, {wrong} wrong", flush=True)


if __name__ == "__main__":
    main()
