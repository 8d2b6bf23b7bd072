"""Eager regions: how long a message takes until its output is out, durably, and how many records a second go through.

`--part one`: one message at a time. The next one is read when the sink has heard of the one before; in between, the same
process writes a file of a kilobyte as the store does ("bare_durable_write"), so that both meet the same disk at the same
moment. The value is the median in microseconds; `ratio` is that of the two medians.

`--part many`: `--size` records at most as fast as they are read, in epochs of so many; the value is records a second, from the
first read to the last commit.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from common import arguments, percentile, report
from tally import Timed

import falkirk
from falkirk import Dataflow, Eager, Iterable
from timely.data.batch import Batch
from timely.io import Chunk, End, Partition, Position, Wait

WARM = 50
"""Messages that are not counted."""
GROUPS = (1, 10, 100, 1_000, 10_000)


def bare_durable_write(folder: int, number: int, content: bytes) -> None:
    """A file, its sync, its name, and the sync of its folder."""
    file = os.open("writing", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=folder)
    os.write(file, content)
    os.fsync(file)
    os.close(file)
    os.rename("writing", f"bare-{number}", src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


@dataclass
class _Meeting:
    """The meeting point of the source and the sink of one worker."""

    began: float = 0.0
    ended: float = 0.0
    eager: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    pipe: tuple[int, int] = (-1, -1)


@dataclass
class _OneByOne:
    """A message when the one before has come out, and a bare write before it."""

    meeting: _Meeting
    size: int
    folder: Path
    epoch: int = 0
    name: str = "all"
    handle: int = -1

    def read(self) -> Chunk | Wait | End:
        meeting = self.meeting
        if meeting.pipe[0] < 0:
            meeting.pipe = os.pipe()
            self.handle = os.open(self.folder, os.O_RDONLY)
        if len(meeting.eager) < self.epoch:
            return Wait(fileno=meeting.pipe[0])
        if self.epoch:
            os.read(meeting.pipe[0], 1)
        if self.epoch == self.size:
            return End()
        began = time.perf_counter()
        bare_durable_write(self.handle, self.epoch, bytes(1024))
        meeting.began = time.perf_counter()
        meeting.bare.append(meeting.began - began)
        self.epoch += 1
        return Chunk(self.epoch - 1, [("all", self.epoch)], self.epoch, closes=True)

    def seek(self, position: Position) -> None:
        self.epoch = position if isinstance(position, int) else 0

    def ack(self, position: Position) -> None:
        return

    def close(self) -> None:
        return


@dataclass
class _Source:
    meeting: _Meeting
    size: int
    folder: Path
    repeats = True

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        return [_OneByOne(self.meeting, self.size, self.folder)] if worker == 0 else []


@dataclass
class _Sink:
    """Notes when each message is out."""

    meeting: _Meeting
    folder: Path
    exactly_once = True

    def open(self, worker: int, workers: int) -> _Sink:
        return self

    def write(self, epoch: int, batch: Batch) -> None:
        return

    def commit(self, epoch: int) -> None:
        self.meeting.ended = time.monotonic()
        self.meeting.eager.append(time.perf_counter() - self.meeting.began)
        if self.meeting.pipe[1] >= 0:
            os.write(self.meeting.pipe[1], b"!")

    def abort(self) -> None:
        return

    def close(self) -> None:
        for name, found in (("eager", self.meeting.eager), ("bare", self.meeting.bare)):
            (self.folder / name).write_text(" ".join(map(repr, found)))
        (self.folder / "ended").write_text(repr(self.meeting.ended))


class Totals(falkirk.Operator):
    """Adds up, message by message."""

    def __init__(self) -> None:
        self.state = falkirk.KeyedState()

    def on_batch(self, ctx: falkirk.Context, port: int, time: tuple[int, ...], batch: Batch) -> None:
        held = self.state.read(time)
        new: dict[str, int] = {}
        for key, value in batch:
            new[key] = new.get(key, held.get(key, 0)) + value
        self.state.write(time, new)
        ctx.send(list(new.items()))


def one_by_one(size: int, folder: Path) -> Dataflow:
    """The program of part "one"."""
    meeting = _Meeting()
    flow = Dataflow("one")
    with flow.region("now", policy=Eager()):
        totals = flow.source("in", _Source(meeting, size, folder)).unary("totals", Totals, notifies=False)
        totals.to(_Sink(meeting, folder), name="out")
    return flow


def in_groups(size: int, group: int, folder: Path) -> Dataflow:
    """The program of part "many"."""
    records = [(f"key {n % 100}", n) for n in range(size)]
    flow = Dataflow("many")
    with flow.region("now", policy=Eager()):
        source = Timed(Iterable(records, batch=group, epoch_every=group), folder)
        totals = flow.source("in", source).unary("totals", Totals, notifies=False)
        totals.to(_Sink(_Meeting(), folder), name="out")
    return flow


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as other:
        folder, store = Path(name), Path(other)
        if args.part == "one":
            falkirk.run(one_by_one(args.size, folder), store=store / "one")
            found = {each: sorted(map(float, (folder / each).read_text().split()[WARM:])) for each in ("eager", "bare")}
            medians = {each: percentile(times, 0.5) * 1e6 for each, times in found.items()}
            tails = {each: percentile(times, 0.95) * 1e6 for each, times in found.items()}
            report(medians["eager"], p95=tails["eager"])
            report(medians["bare"], system="bare_durable_write", p95=tails["bare"])
            report(medians["eager"] / medians["bare"], system="ratio", unit="x")
            return
        for group in GROUPS:
            size = min(args.size, 2_000 * group)
            falkirk.run(in_groups(size, group, folder), store=store / str(group))
            seconds = float((folder / "ended").read_text()) - float((folder / "start-0-0").read_text())
            report(size / seconds, system=f"epochs_of_{group}", unit="records/s")


if __name__ == "__main__":
    main()
