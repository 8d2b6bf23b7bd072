"""Interfaces of sources and sinks.

All their I/O happens in drivers, never inside the worker.

A source is split into *partitions*, each read by one worker. A partition hands out *chunks*: an epoch, some data and
the position after it. Positions make a source re-readable: `seek(position)` and the next chunk is the one that followed.
`ack(position)` promises that nothing before that position will be asked for again. These three are what rollback
recovery rests on (Falkirk Wheel, section 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import polars as pl

from timely.data.batch import Batch

Position = None | int | str | list["Position"] | dict[str, "Position"]
"""Position in a partition, as plain data for the journal."""


class Chunk(msgspec.Struct, frozen=True):
    """One piece of input.

    `epoch` never falls within a partition: a chunk of epoch e says that every epoch below e is over there.
    `closes` says that e itself is over after this chunk, which lets e complete before the next chunk is there.
    `data` may be None: then the chunk only moves the epoch. `position` is where to `seek` to read on after it.

    >>> falkirk.Chunk(epoch=3, data=["a", "b"], position=17, closes=True)
    Chunk(epoch=3, data=['a', 'b'], position=17, closes=True)
    """

    epoch: int
    data: Batch | None
    position: Position
    closes: bool = False


class Wait(msgspec.Struct, frozen=True):
    """Nothing to read now: retry after `seconds` or once `fileno` is readable.

    Whichever comes first.

    >>> falkirk.Wait(0.5)
    Wait(seconds=0.5, fileno=None)
    """

    seconds: float | None = None
    fileno: int | None = None


class End(msgspec.Struct, frozen=True):
    """End of a partition, for good.

    >>> falkirk.End()
    End()
    """


class Partition(Protocol):
    """Part of a source, read in order by one worker."""

    name: str

    def read(self) -> Chunk | Wait | End:
        """Read the next chunk; must not block for longer than a disk access."""

    def seek(self, position: Position) -> None:
        """Read on from `position` of an earlier chunk (None: from the start)."""

    def ack(self, position: Position) -> None:
        """Promise never to read again before `position`."""

    def close(self) -> None:
        """Release files and sockets."""


class ClockedPartition(Partition, Protocol):
    """Partition with input or epochs paced by a clock, replayable without it.

    After a restart its last epoch is read again. And where epochs that it had given are known to others, it is read again as
    they have it: the reader knows the epochs then, and those of the chunks do not count.
    """

    def read_until(self, position: Position) -> Chunk | Wait | End:
        """Next chunk at once, ending at `position` at the latest, without the clock."""


class TellingPartition(Partition, Protocol):
    """Partition with work in progress elsewhere, and a report of it."""

    def working(self) -> tuple[int, str, int, int, float] | None:
        """Progress report: epoch, activity, amount done, total (0: unknown), seconds."""


class SharePartition(Partition, Protocol):
    """Partition with a worker's share of each epoch, for any number of workers."""

    def at_epoch(self, epoch: int) -> Position:
        """Position of the first record of this share from `epoch` on."""


class ChecksummedPartition(Partition, Protocol):
    """Partition with checksums of its input between two positions.

    So that epochs are known again without looking at records while they are read.

    Without it the last epoch before a checkpoint is known by some of its records, which are picked out of every epoch.
    """

    @property
    def checksums(self) -> bool:
        """True if an epoch's checksum changes with its content.

        Asked after a chunk was read; the answer does not change.
        """

    def checksum(self, begin: Position, end: Position) -> int:
        """Checksum of the stored input between two positions, once a checkpoint.

        It is of the bytes as they are now, however they were read.

        Raises SourceError if that cannot be read any more.
        """


class HoldingPartition(Partition, Protocol):
    """Partition of in-memory columns, referenced instead of sampled.

    So of what was read a reference is enough, until somebody asks what it was; others are copied a little of.
    """

    held: bool


class Source(Protocol):
    """Interface of a source: input of a dataflow.

    One that says `repeats = True` puts the same records into the same epochs whenever it is read. One that says
    `deals_epochs = True` as well reads all of epoch e at worker e modulo their number, one with `whole_epochs = True` reads an
    epoch at each worker in one chunk. With `one_epoch = True` all of it is one epoch. One with `layout_free =
    True` has the same partitions, of the same names, for every number of workers, which share them out: then its job can go on
    with another number.

    >>> class Countdown:
    ...     # A source of two partitions; the position is the number that comes next.
    ...     def partitions(self, worker, workers):
    ...         return [Part(f"from-{n}", n) for i, n in enumerate([2, 1]) if i % workers == worker]
    >>> class Part:
    ...     def __init__(self, name, n):
    ...         self.name, self.n = name, n
    ...     def read(self):
    ...         if self.n < 0:
    ...             return falkirk.End()
    ...         self.n -= 1
    ...         return falkirk.Chunk(0, [self.n + 1], self.n)
    ...     def seek(self, position):
    ...         self.n = position
    ...     def ack(self, position):
    ...         pass
    ...     def close(self):
    ...         pass
    >>> flow = falkirk.Dataflow()
    >>> result = flow.source("countdown", Countdown()).capture("out")
    >>> sorted(n for _, batch in falkirk.run(flow).captured("out") for n in batch)
    [0, 0, 1, 1, 2]
    """

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """Partitions of this worker; each belongs to exactly one worker."""


class TypedSource(Protocol):
    """Source with a schema known before reading.

    Then mistakes in verbs show where they are called.
    """

    def columns_schema(self) -> pl.Schema | None:
        """Schema of all its batches in Polars types; None if unknown."""


class Files(Protocol):
    """Access to a folder for a source's own files, shared by all workers of a job."""

    durable: bool
    """True if the folder outlives the job's processes."""

    note: Callable[[str], None]
    """Shows the user a note, once; from any thread."""

    def folder(self, name: str) -> Path:
        """Folder of this name, made if missing.

        Raises FalkirkError if the job has none.
        """


class FilingSource(Source, Protocol):
    """Source with files of its own; `with_files` comes before `partitions`."""

    def with_files(self, files: Files, name: str) -> Source:
        """Copy of the source with its files in `files`, under the unique `name`."""


class Writer(Protocol):
    """One worker's end of a sink.

    Epochs are committed in order. `commit(e)` comes once everything of epoch e has been written, and only for epochs
    that had a write; what it makes visible must be whole.

    A writer with a method `incomplete(first, last)` is told, after a failure, of the epochs that may lack records for good
    (last None: from `first` on): before any of them is committed again, and possibly more than once.
    """

    def write(self, epoch: int, batch: Batch) -> None:
        """Take a batch of `epoch`, invisible to others until `commit(epoch)`."""

    def commit(self, epoch: int) -> None:
        """Make the complete `epoch` durable and visible, atomically."""

    def abort(self) -> None:
        """Discard everything half-written after a failure of the job."""

    def close(self) -> None:
        """Release files and connections at the job's end."""


class Sink(Protocol):
    """Interface of a sink: output of a dataflow.

    A sink with `one_writer = True` gets an epoch of all workers at one of them, for a target that takes it in one step.

    >>> class Printed:
    ...     # A sink that prints an epoch when it is complete.
    ...     def open(self, worker, workers):
    ...         return Pages()
    >>> class Pages:
    ...     def __init__(self):
    ...         self.held = {}
    ...     def write(self, epoch, batch):
    ...         self.held.setdefault(epoch, []).extend(batch)
    ...     def commit(self, epoch):
    ...         print(epoch, self.held.pop(epoch))
    ...     def abort(self):
    ...         self.held.clear()
    ...     def close(self):
    ...         pass
    >>> flow = falkirk.Dataflow()
    >>> flow.source("items", falkirk.Iterable([1, 2, 3], epoch_every=2)).to(Printed())
    >>> result = falkirk.run(flow)
    0 [1, 2]
    1 [3]
    """

    def open(self, worker: int, workers: int) -> Writer:
        """Writer of this worker."""


class JobSink(Sink, Protocol):
    """Sink with output identified by job; `for_job` comes before `open`."""

    def for_job(self, job: str, name: str) -> Sink:
        """Copy of the sink for one job, under its `name` in that job.

        A job has one identity from its beginning to its end, over all restarts; another run, with another store or with none,
        is another job. What one job has written another must neither take for its own nor replace.
        """


def deals_epochs(source: Source) -> bool:
    """True if worker e mod W always reads all of epoch e.

    W is the number of workers.
    """
    return bool(getattr(source, "deals_epochs", False)) and source_repeats(source)


def whole_epochs(source: Source) -> bool:
    """True if each worker always reads an epoch in one chunk, epoch after epoch."""
    return bool(getattr(source, "whole_epochs", False)) and source_repeats(source)


def source_repeats(source: Source) -> bool:
    """True if every read of the source gives the same records in the same epochs."""
    return bool(getattr(source, "repeats", False)) and bool(getattr(source, "rereadable", True))
