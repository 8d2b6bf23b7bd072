"""Reader of one partition: its epochs in this job, and their marks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa
from msgspec.structs import replace

from runtime.sources.fingerprint import Content
from runtime.sources.positions import NO_MARK, Mark
from timely.errors import SourceError
from timely.io.interface import Chunk, ClockedPartition, End, Partition, Position, Wait
from timely.time import FINITE

_BATCHES = (pl.DataFrame, list, pa.Table)


@dataclass(slots=True)
class Reader:
    """Partition of a source, as far as this worker has read it."""

    partition: Partition
    epoch: int = 0
    ended: bool = False
    wake: float = 0.0
    fileno: int | None = None
    positions: deque[Mark] = field(default_factory=deque)
    """Position after each epoch read, for epochs a rollback may repeat."""
    final: Mark = NO_MARK
    """Mark of the last epoch never to be read again."""
    shift: int = 0
    """Offset added to the partition's epochs.

    They may begin anew in a new process, or go on in one that is over for the job.
    """
    acknowledged: Position = None
    """Last position acknowledged to the partition."""
    again: deque[tuple[int, Position]] = field(default_factory=deque)
    """Epochs to be read as they were read before, with their end positions."""
    least: int = 0
    """Lowest epoch for new records: other workers have all earlier epochs."""

    held: Chunk | None = None
    """Chunk beyond a savepoint, to be given once more may be read."""
    stood: int = 0
    """Epoch before the held chunk."""

    def begun(self) -> int:
        """First epoch with nothing given yet."""
        given = bool(self.positions) and self.positions[-1].epoch == self.epoch and self.held is None
        return (self.epoch if self.held is None else self.stood) + given

    def hold(self, chunk: Chunk) -> None:
        """Hold a chunk of a later epoch back; all epochs before that are over."""
        given = self.begun()
        self.held, self.stood, self.epoch = chunk, given, chunk.epoch

    def read(self, moved: bool) -> Chunk | Wait | End:
        """Read the partition's next chunk, with its epoch in this job.

        `moved`: epochs below `least` move all that follow, for the partition's clock may be behind the job's epochs.
        """
        if self.held is not None:
            held, self.held = self.held, None
            return held
        if not self.again:
            chunk = self.partition.read()
            _check(self.partition, chunk)
            if not isinstance(chunk, Chunk):
                return chunk
            if moved:
                self.shift, self.least = max(self.shift, self.least - chunk.epoch), 0
            if self.shift or chunk.epoch < self.least:
                epoch = max(chunk.epoch + self.shift, self.least)
                chunk = replace(chunk, epoch=epoch, closes=chunk.closes and epoch == chunk.epoch + self.shift)
            return chunk
        epoch, end = self.again[0]
        again: ClockedPartition = self.partition  # type: ignore[assignment]  # any other does not tell where epochs end
        chunk = again.read_until(end)
        _check(again, chunk)
        if isinstance(chunk, Chunk):
            return replace(chunk, epoch=epoch, closes=chunk.position == end)
        if isinstance(chunk, End):
            raise SourceError(
                f"partition {self.partition.name} ends before position {end!r}, up to which it was read before. Bring the "
                "input back as it was, or start anew with an empty store"
            )
        return chunk

    def finish_repeated(self, position: Position) -> None:
        """Finish the repeated epochs with their end at `position`."""
        while self.again and self.again[0][1] == position:
            self.epoch = self.again.popleft()[0] + 1

    def remember(self, chunk: Chunk, recognises: bool) -> None:
        """Mark the position behind a chunk; `recognises`: with the content of its epoch."""
        last = self.positions[-1] if self.positions else self.final
        same = last.epoch == chunk.epoch
        content = last.content if same or not recognises else Content()
        if recognises and chunk.data is not None and len(chunk.data):
            if getattr(self.partition, "checksums", False):
                content.rows += len(chunk.data)
            else:
                content.add(chunk.data, held=getattr(self.partition, "held", False))
        mark = Mark(chunk.epoch, chunk.position, last.before if same else last.position, content)
        if same and self.positions:
            self.positions[-1] = mark
        else:
            self.positions.append(mark)

    def mark(self, epoch: int) -> Mark:
        """Mark at the end of all epochs before `epoch`."""
        found = self.final
        for read in self.positions:
            if read.epoch >= epoch:
                break
            found = read
        return found


def _check(partition: Partition, chunk: Any) -> None:
    """Raise SourceError unless `chunk` is a valid result of `read`.

    A user's source may return anything.
    """
    why = ""
    if isinstance(chunk, Chunk):
        epoch, data = chunk.epoch, chunk.data
        if type(epoch) is not int:
            why = f"a chunk with epoch {epoch!r}: it is a whole number, an int"
        elif not 0 <= epoch < FINITE:
            why = f"a chunk with epoch {epoch}: it is a number from 0 up, and below {FINITE}"
        elif data is not None and not isinstance(data, _BATCHES):
            why = f"{type(data).__name__} for a batch: give a list of records, a Polars frame or an Arrow table"
    elif isinstance(chunk, Wait):
        if not (chunk.seconds is None or isinstance(chunk.seconds, int | float)):
            why = f"{chunk!r}: its seconds are a number, or None"
    elif not isinstance(chunk, End):
        why = f"{chunk!r}, where read() returns a Chunk, a Wait or End(); is a return missing?"
    if why:
        raise SourceError(f"partition {partition.name} gives {why}")
