"""Records that are handled again after `kill -9` of one of several workers, as a share of those since the last cut.

Each worker reads so many epochs of `--size` records a second apart from the others; nothing logs its outputs. One worker is
killed in the midst of the job. `--part` is the program: `counts`, a running count behind one exchange; `stages`, three of them;
`join`, two streams joined and counted. Records are counted by operators in front of and behind each exchange, which note what
comes to them. If all went back to the last cut the share would be 1; what the dead worker alone had done is 1/workers of it.
`_open` is the share of what survivors did again, which is at most the epochs that were not complete, and `_beyond` the part of
that which is more than one epoch of each.
"""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from clocked import Clock, Epochs
from common import arguments, beyond_one_epoch, report

import falkirk
from falkirk import Dataflow, Iterable, Lazy
from timely.io import Chunk, End, Partition, Wait

RATE = 10
"""Epochs a second."""
EPOCHS = 120
KILLED_AT = 70
BEGAN = "began"


@dataclass(kw_only=True)
class _Paced(Epochs):
    size: int
    folder: Path

    def read(self) -> Chunk | Wait | End:
        epoch = self.epoch
        if epoch >= EPOCHS:
            return End()
        began = self.folder / BEGAN
        if epoch and not began.exists():
            return Wait(seconds=0.05)
        due = float(began.read_text()) + epoch / RATE if epoch else 0.0
        if (now := time.time()) < due:
            return Wait(seconds=due - now)
        self.epoch += 1
        offset = int(self.name.rpartition("-")[2]) * 31 + epoch * 7
        return Chunk(epoch, [f"w{(n * n + offset) % 997}" for n in range(self.size)], self.epoch, closes=True)


@dataclass(frozen=True)
class _PacedSource:
    size: int
    folder: Path
    repeats: ClassVar[bool] = True

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        return [_Paced(name=f"part-{worker}", size=self.size, folder=self.folder)]


class _Meter(falkirk.Operator):
    """Passes on what comes, and notes how many records of each epoch this were, in a file of its process."""

    repeats_over = "record"
    keeps_batches = True

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder, name
        self._file: Any = None

    transient = ("_file",)

    def on_batch(self, ctx: Any, port: int, time: Any, batch: Any) -> None:
        if self._file is None:
            folder, name = self._path
            self._file = (folder / f"meter-{name}-{ctx.worker}-{os.getpid()}").open("a", buffering=1)
        self._file.write(f"{time[0]} {len(batch)}\n")
        ctx.send(batch)


def build(folder: Path, size: int, part: str) -> Dataflow:
    """The program."""
    flow = Dataflow("survivors")

    def metered(stream: Any, name: str) -> Any:
        return stream.unary(name, lambda: _Meter(folder, name), stateful=False, notifies=False)

    with flow.region("all", policy=Lazy(every="2s")):
        words = metered(flow.source("words", _PacedSource(size, folder)), "read")
        if part == "join":
            known = flow.source("known", Iterable([(f"w{n}", n % 5) for n in range(997)])).keyed()
            pairs = metered(words.map(lambda word: (word, 1)).keyed().join(known, name="join").records(), "joined")
            found = pairs.map(lambda pair: pair[1][1])
        else:
            found = metered(words.key_by(lambda word: word).count(name="first").records(), "counted")
        if part == "stages":
            found = metered(found.key_by(lambda pair: pair[1] % 101).count(name="second").records(), "again")
        found.key_by(lambda each: len(str(each))).count(name="last").records().to(Clock(folder), name="out")
    return flow


def _handled(folder: Path) -> Counter[tuple[str, str, int]]:
    """Records by (operator, worker, epoch), in all processes."""
    found: Counter[tuple[str, str, int]] = Counter()
    for file in folder.glob("meter-*"):
        _, name, worker, _ = file.name.split("-")
        for line in file.read_text().splitlines():
            if line.count(" ") == 1:
                epoch, records = map(int, line.split())
                found[name, worker, epoch] += records
    return found


def _last_cut(events: Path) -> int:
    """The epoch of the last cut that all workers have made."""
    told = [json.loads(line) for line in events.read_text().splitlines() if line.endswith("}")]
    return max((event["epoch"] for event in told if event["kind"] == "checkpoint" and "epoch" in event), default=0)


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as store:
        folder, events = Path(name), Path(name) / "events"
        before: Counter[tuple[str, str, int]] = Counter()
        cut: list[int] = []

        def kill() -> None:
            while len(list(folder.glob("out-*"))) < args.workers:
                time.sleep(0.05)
            (folder / "writing").write_text(repr(time.time()))
            (folder / "writing").rename(folder / BEGAN)
            while max((epoch for _, _, epoch in _handled(folder)), default=0) < KILLED_AT:
                time.sleep(0.02)
            os.kill(int((folder / f"pid-{args.workers - 1}").read_text()), signal.SIGKILL)
            cut.append(_last_cut(events))
            before.update(_handled(folder))

        thread = threading.Thread(target=kill, daemon=True)
        thread.start()
        falkirk.run(build(folder, args.size, args.part), workers=args.workers, store=store, events=events)
        thread.join()
        after = _handled(folder)
        once = _reference(args.workers, args.size, args.part)
        again = {key: after[key] - once[key] for key in after}
        since = sum(records for (_, _, epoch), records in before.items() if epoch >= cut[0])
        dead = str(args.workers - 1)
        others: Counter[tuple[object, int]] = Counter()
        for (_, worker, epoch), records in again.items():
            if worker != dead:
                others[worker, epoch] += records
        report(
            sum(again.values()) / since,
            since_the_last_cut=since,
            epochs=KILLED_AT - cut[0],
            goal=1.2 / args.workers,
        )
        report(others.total() / since, system=f"{args.part}_open")
        report(beyond_one_epoch(others) / since, system=f"{args.part}_beyond")


def _reference(workers: int, size: int, part: str) -> Counter[tuple[str, str, int]]:
    """The records that are handled where nothing fails."""
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as store:
        folder = Path(name)
        (folder / BEGAN).write_text("0")
        falkirk.run(build(folder, size, part), workers=workers, store=store)
        return _handled(folder)


if __name__ == "__main__":
    main()
