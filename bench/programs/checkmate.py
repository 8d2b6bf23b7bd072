"""Experiment of CheckMate: Nexmark queries with a killed worker, by policy.

Siachamis and others, *CheckMate: Evaluating Checkpointing Protocols for Streaming Dataflows* (ICDE 2024), kill one worker
under q1, q3, q8, q12 and a reachability query with a loop, uniform and with hot items. Here `--part` is query, policy and,
in a skewed run, "hot": `q3-lazy`, `q12-snapshot-hot`. Two workers get `--size` events in each of 25 epochs a second. Latency
is the time from when an epoch is due until all workers have told a sink of it. Worker 1 dies after a steady phase. *Restart*
is the time from then to the first output due later (q12 has one every 0.4 s), *recovery* the time until latency is back, for
a second, within twice its 99th percentile before.

`--part table` runs all and prints the table of docs/papers.md, in milliseconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars as pl
import steady
from clocked import Clock, Epochs
from common import arguments, percentile, report

import falkirk
from falkirk import Columns, Dataflow, Eager, Iterable, Lazy, LogHistory, Snapshot, differential, graph
from runtime.program import Program
from timely.io import Chunk, End, Partition, Wait

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "nexmark"))

from house import House
from queries import QUERIES, Streams

RATE = 25
"""Epochs a second."""
WARM, BEFORE, AFTER = 5.0, 10.0, 12.0
"""Seconds of warming up, steady work before the kill, and work after it."""
HOT, HOT_SHARE = 4, 0.5
"""Hot keys, and their share of the events."""
HOT_KEYS = {"persons": "id", "auctions": "seller", "bids": "bidder"}
NODES = 150

POLICIES: dict[str, Callable[[], falkirk.Policy] | None] = {
    "no_store": None,
    "lazy": partial(Lazy, every="1s"),
    "snapshot": partial(Snapshot, every="1s"),
    "history": partial(LogHistory, every="1s"),
    "eager": Eager,
    "lazy_mates": partial(Lazy, every="1s"),
}
CASES = [
    *((query, policy, "") for query in ("q1", "q3", "q8", "q12") for policy in POLICIES),
    *(("q12", policy, "hot") for policy in POLICIES),
    *(("reach", policy, "") for policy in ("no_store", "lazy", "lazy_mates")),
]
"""Cases of the table. Eager regions and snapshots have no loops."""

Frame = Callable[[int], pl.DataFrame]


@dataclass(kw_only=True)
class _Paced(Epochs):
    """The share of a worker of each epoch, when it is due; the same after going back."""

    frame: Frame
    worker: int
    workers: int
    folder: Path

    def read(self) -> Chunk | Wait | End:
        try:
            began = steady.began(self.folder)
        except FileNotFoundError:
            return Wait(seconds=0.05)
        if self.epoch >= (WARM + BEFORE + AFTER) * RATE:
            return End()
        due = began + self.epoch / RATE
        if (now := time.time()) < due:
            return Wait(seconds=due - now)
        self.epoch += 1
        rows = self.frame(self.epoch - 1).gather_every(self.workers, self.worker)
        return Chunk(self.epoch - 1, rows, self.epoch, closes=True)


@dataclass(frozen=True)
class _Source:
    name: str
    frame: Frame
    folder: Path
    repeats: ClassVar[bool] = True

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        name = f"{self.name}-{worker}"
        return [_Paced(name=name, frame=self.frame, worker=worker, workers=workers, folder=self.folder)]


def _events(house: House, kind: str, hot: bool, epoch: int) -> pl.DataFrame:
    """The events of an epoch; with `hot`, half of them are of four keys."""
    frame = house.frame(kind, epoch)
    if not hot or kind == "persons":
        return frame
    key = HOT_KEYS[kind]
    chance = np.random.default_rng((epoch, len(kind)))
    chosen = pl.Series(chance.random(len(frame)) < HOT_SHARE)
    keys = pl.Series(1_000 + chance.integers(0, HOT, len(frame)), dtype=frame.schema[key])
    return frame.with_columns(pl.when(chosen).then(keys).otherwise(pl.col(key)).alias(key))


def _edges(size: int, epoch: int) -> pl.DataFrame:
    """Edges added at an epoch, and those of ten epochs before, removed."""

    def of(number: int) -> np.ndarray:
        return np.random.default_rng(number).integers(0, NODES, (2, max(1, size // 16)))

    came, went = of(epoch), of(epoch - 10) if epoch >= 10 else np.empty((2, 0), np.int64)
    both = np.concatenate([came, went], 1)
    return pl.DataFrame({"a": both[0], "b": both[1], "d": np.repeat([1, -1], [came.shape[1], went.shape[1]])})


def build(query: str, policy: str, hot: bool, size: int, folder: str) -> Dataflow:
    """The program of a case."""
    flow, at = Dataflow(query), Path(folder)
    chosen = POLICIES[policy]
    with flow.region("query", policy=chosen() if chosen else None):
        found: Columns | falkirk.Stream
        if query == "reach":
            edges = flow.columns("edges", _Source("edges", partial(_edges, size), at))
            roots = differential.from_records(flow.source("roots", Iterable(range(10))))
            found = graph.reach(differential.from_columns(edges, "a", "b", "d"), roots).changes()
        else:
            house = House(size * 10**6, size)
            streams = Streams(flow, lambda kind: _Source(kind, partial(_events, house, kind, hot), at))
            found = QUERIES[query](streams)
    found.to(Clock(at), name="out")
    return flow


def _there(folder: Path) -> dict[int, float]:
    """Time of each epoch's first output, of the last worker."""
    of_worker: dict[tuple[int, str], float] = {}
    for at, epoch, worker in steady.outputs(folder):
        of_worker.setdefault((epoch, worker), at)
    found: dict[int, float] = {}
    for (epoch, _), at in of_worker.items():
        found[epoch] = max(found.get(epoch, 0.0), at)
    return found


def measure(query: str, policy: str, hot: bool, size: int, workers: int) -> dict[str, float]:
    """Figures of a case, in milliseconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        killed: list[float] = []

        def strike() -> None:
            time.sleep(2)  # workers and mates start
            steady.begin(folder)
            time.sleep(WARM + BEFORE)
            if policy != "no_store":
                killed.append(steady.kill(folder, 1))

        thread = threading.Thread(target=strike, daemon=True)
        thread.start()
        falkirk.run(
            Program(
                flow=build, args={"query": query, "policy": policy, "hot": hot, "size": size, "folder": str(folder)}
            ),
            workers=workers,
            store=None if policy == "no_store" else folder / "store",
            mates=int(policy == "lazy_mates"),
        )
        thread.join()
        began = steady.began(folder)
        there = _there(folder)
    due = {epoch: began + epoch / RATE for epoch in there}
    late = {epoch: 1e3 * (at - due[epoch]) for epoch, at in there.items()}
    calm = sorted(late[epoch] for epoch in there if WARM <= epoch / RATE < WARM + BEFORE - 0.5)
    found = {"p50": percentile(calm, 0.5), "p99": percentile(calm, 0.99), "epochs": len(calm)}
    if killed:
        after = sorted(epoch for epoch in there if due[epoch] >= killed[0])
        found["restart"] = 1e3 * (min(there[epoch] for epoch in after) - killed[0])
        slow = [epoch for epoch in after if late[epoch] > 2 * found["p99"] and due[epoch] < killed[0] + AFTER - 1.5]
        back = next((e for e in after if all(not e <= s <= e + RATE for s in slow)), after[-1])
        found["recovery"] = max(1e3 * (there[back] - killed[0]), found["restart"])
        found["worst"] = max(late[epoch] for epoch in after)
    return found


def table(size: int) -> None:
    """Print the table, each case in a process of its own."""
    print("| query | policy | p50 | p99 | restart | recovery | worst |")
    print("|---|---|---|---|---|---|---|")
    for query, policy, hot in CASES:
        part = "-".join(filter(None, (query, policy, hot)))
        command = [sys.executable, __file__, "--workers", "2", "--size", str(size), "--part", part]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        figures = {"p50": 0.0}
        for line in done.stdout.splitlines():
            figures |= json.loads(line)
        cells = [
            f"{figures[name]:,.0f}" if name in figures else ""
            for name in ("p50", "p99", "restart", "recovery", "worst")
        ]
        print(f"| {query}{', hot' if hot else ''} | `{policy}` | {' | '.join(cells)} |", flush=True)


def main() -> None:
    args = arguments()
    if args.part == "table":
        table(args.size)
        return
    query, policy, *rest = args.part.split("-")
    found = measure(query, policy, rest == ["hot"], args.size, args.workers)
    report(found.get("restart", found["p50"]), **found)


if __name__ == "__main__":
    main()
