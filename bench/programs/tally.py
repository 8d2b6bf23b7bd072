"""The clock of the throughput programs: from the first read of any worker to the last commit of any worker.

That leaves out the start of interpreters and worker processes and the loading of compiled loops, and counts reading, as for
the other systems. All workers are on one host, where the monotonic clock is the same for all processes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timely.data.batch import Batch, as_arrow
from timely.data.kernels import warm
from timely.io import Chunk, End, Partition, Position, Source, Wait
from timely.io.interface import deals_epochs, source_repeats


class Around:
    """A partition around another one, which does all but read."""

    inner: Partition

    @property
    def checksums(self) -> bool:
        return bool(getattr(self.inner, "checksums", False))

    def checksum(self, begin: Position, end: Position) -> int:
        number: int = self.inner.checksum(begin, end)  # type: ignore[attr-defined]  # asked only of one that `checksums`
        return number

    def seek(self, position: Position) -> None:
        self.inner.seek(position)

    def ack(self, position: Position) -> None:
        self.inner.ack(position)

    def close(self) -> None:
        self.inner.close()


@dataclass
class _NotedPartition(Around):
    inner: Partition
    on_read: Callable[[int], None]
    name: str = "readings"

    def read(self) -> Chunk | Wait | End:
        chunk = self.inner.read()
        if isinstance(chunk, Chunk):
            self.on_read(chunk.epoch)
        return chunk


@dataclass
class Noted:
    """Source that notes the epoch of each chunk; `begin` gives each worker's function for that."""

    source: Source
    begin: Callable[[], Callable[[int], None]]
    repeats = True

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        on_read = self.begin()
        return [_NotedPartition(inner, on_read) for inner in self.source.partitions(worker, workers)]


@dataclass
class _TimedPartition(Around):
    inner: Partition
    file: Path
    name: str = ""
    started: bool = False

    def __post_init__(self) -> None:
        self.name = self.inner.name

    def read(self) -> Chunk | Wait | End:
        if not self.started:
            self.started = True
            self.file.write_text(repr(time.monotonic()))
        return self.inner.read()


@dataclass(frozen=True)
class Timed:
    """`source`, with notes in `folder` of when each partition was first read, and of the processor time used until then."""

    source: Source
    folder: Path
    shared: bool = False
    """True: it does not say that each epoch is read by one worker, where that is so."""

    @property
    def deals_epochs(self) -> bool:
        """As the source does."""
        return not self.shared and deals_epochs(self.source)

    @property
    def repeats(self) -> bool:
        """As the source does."""
        return source_repeats(self.source)

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """Those of the source, each with its notes.

        This is called before anything is read, so it is the place to load the compiled loops of this worker.
        """
        warm()
        (self.folder / f"cpu-{worker}").write_text(repr(time.process_time()))
        inner = self.source.partitions(worker, workers)
        return [_TimedPartition(p, self.folder / f"start-{worker}-{i}") for i, p in enumerate(inner)]


@dataclass
class _TallyWriter:
    file: Path
    columns: tuple[str, ...]
    rows: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    ended: float = 0.0
    used: float = 0.0

    def write(self, epoch: int, batch: Batch) -> None:
        table = as_arrow(batch)
        self.rows += len(table)
        for name in self.columns:
            column = table[name].to_numpy()
            self.sums[name] = self.sums.get(name, 0) + column.sum().item()

    def commit(self, epoch: int) -> None:
        self.ended, self.used = time.monotonic(), time.process_time()

    def abort(self) -> None:
        return

    def close(self) -> None:
        self.file.write_text(json.dumps({"rows": self.rows, "sums": self.sums, "ended": self.ended, "used": self.used}))


@dataclass(frozen=True)
class Tally:
    """A sink that counts rows and adds up `columns`, and leaves both with the time of its last commit in `folder`."""

    folder: Path
    columns: tuple[str, ...]

    def open(self, worker: int, workers: int) -> _TallyWriter:
        """This worker's tally."""
        return _TallyWriter(self.folder / f"tally-{worker}.json", self.columns)


def read_tally(folder: Path) -> tuple[float, int, dict[str, Any]]:
    """Seconds from first read to last commit, rows, and sums by column, over all workers."""
    started = min(float(file.read_text()) for file in folder.glob("start-*"))
    tallies = [json.loads(file.read_text()) for file in folder.glob("tally-*.json")]
    sums: dict[str, Any] = {}
    for tally in tallies:
        for name, value in tally["sums"].items():
            sums[name] = sums.get(name, 0) + value
    return max(tally["ended"] for tally in tallies) - started, sum(tally["rows"] for tally in tallies), sums


def cpu_seconds(folder: Path) -> float:
    """Processor seconds of all workers together, each until its last commit."""
    used = sum(json.loads(file.read_text())["used"] for file in folder.glob("tally-*.json"))
    return float(used - sum(float(file.read_text()) for file in folder.glob("cpu-*")))
