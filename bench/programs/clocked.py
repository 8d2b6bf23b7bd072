"""Sources of which an epoch is a position, and sinks that note when each epoch was there, for programs that time a job."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from timely.data.batch import Batch
from timely.io import Position


@dataclass
class Epochs:
    """The part of a partition that is the same for all: `epoch` is the next one, and the position after the last one."""

    name: str
    epoch: int = 0

    def seek(self, position: Position) -> None:
        self.epoch = position if isinstance(position, int) else 0

    def ack(self, position: Position) -> None:
        return

    def close(self) -> None:
        return


@dataclass(frozen=True)
class Clock:
    """A sink that notes in "out-WORKER-PID" when each epoch was there, and in "pid-WORKER" which process it was."""

    folder: Path
    exactly_once = False

    def open(self, worker: int, workers: int) -> ClockWriter:
        (self.folder / f"pid-{worker}").write_text(str(os.getpid()))
        return ClockWriter(self.folder / f"out-{worker}-{os.getpid()}")


class ClockWriter:
    """A line an epoch: its number, and the time."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", buffering=1)

    def write(self, epoch: int, batch: Batch) -> None:
        return

    def commit(self, epoch: int) -> None:
        self._file.write(f"{epoch} {time.time()}\n")

    def abort(self) -> None:
        return

    def close(self) -> None:
        self._file.close()
