"""The interfaces of sources and sinks. All their I/O happens in drivers, never inside the worker.

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
"""A position in a partition. Plain data, so that it can be written to a journal."""


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
    """Nothing to read now. Ask again after `seconds`, or as soon as `fileno` is readable, whichever comes first.

    >>> falkirk.Wait(0.5)
    Wait(seconds=0.5, fileno=None)
    """

    seconds: float | None = None
    fileno: int | None = None


class End(msgspec.Struct, frozen=True):
    """This partition is over for good.

    >>> falkirk.End()
    End()
    """


class Partition(Protocol):
    """A part of a source that one worker reads, in order."""

    name: str

    def read(self) -> Chunk | Wait | End:
        """The next chunk. Must not block for longer than a disk takes."""

    def seek(self, position: Position) -> None:
        """Read on from `position`, as given by an earlier chunk (None: from the start)."""

    def ack(self, position: Position) -> None:
        """Nothing before `position` will be asked for again."""

    def close(self) -> None:
        """Release files and sockets."""


class ClockedPartition(Partition, Protocol):
    """A partition that asks the clock when to give its input, or into which epoch that goes, and can do without.

    After a restart its last epoch is read again. And where epochs that it had given are known to others, it is read again as
    they have it: the reader knows the epochs then, and those of the chunks do not count.
    """

    def read_until(self, position: Position) -> Chunk | Wait | End:
        """The next chunk, at once, of what was given before `position`; it ends there at the latest."""


class TellingPartition(Partition, Protocol):
    """A partition that has others read for it, and says how far they are."""

    def working(self) -> tuple[int, str, int, int, float] | None:
        """The epoch that they are at, what they do, so much done of so much (0: nobody knows), for how many seconds."""


class ChecksummedPartition(Partition, Protocol):
    """A partition whose input between two positions is known again without looking at records while they are read.

    Without it the last epoch before a checkpoint is known by some of its records, which are picked out of every epoch.
    """

    @property
    def checksums(self) -> bool:
        """True if the checksum of an epoch changes with the epoch. It is asked when a chunk was read, and does not change."""

    def checksum(self, begin: Position, end: Position) -> int:
        """A checksum of what lies between two positions, as it is now, however it was read; once for each checkpoint.

        Raises SourceError if that cannot be read any more.
        """


class HoldingPartition(Partition, Protocol):
    """A partition of columns that stay in memory, whether or not they were read.

    So of what was read a reference is enough, until somebody asks what it was; others are copied a little of.
    """

    held: bool


class Source(Protocol):
    """Input of a dataflow.

    One that says `repeats = True` puts the same records into the same epochs whenever it is read. One that says
    `deals_epochs = True` as well reads all of epoch e at worker e modulo their number, one with `whole_epochs = True` reads an
    epoch at each worker in one chunk. With `one_epoch = True` all of it is one epoch.

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
        """The partitions that this worker reads. Over all workers, each partition appears exactly once."""


class TypedSource(Protocol):
    """A source that may know its columns before it reads them: then mistakes in verbs show where they are called."""

    def columns_schema(self) -> pl.Schema | None:
        """The columns and types of all that it reads, as Polars sees them; None if they are not known."""


class Files(Protocol):
    """The folder for a source's own files; one for all workers of a job."""

    durable: bool
    """True if what is there outlives the job's processes."""

    note: Callable[[str], None]
    """Tells the user something, once; from any thread."""

    def folder(self, name: str) -> Path:
        """A folder, which is made if it is missing. Raises FalkirkError if the job has none."""


class FilingSource(Source, Protocol):
    """A source that keeps files of its own. Before `partitions` it is told where."""

    def with_files(self, files: Files, name: str) -> Source:
        """The same source with its files in `files`; no other source of the job is called `name`."""


class Writer(Protocol):
    """One worker's end of a sink.

    Epochs are committed in order. `commit(e)` comes once everything of epoch e has been written, and only for epochs
    that had a write; what it makes visible must be whole.
    """

    def write(self, epoch: int, batch: Batch) -> None:
        """Take a batch of `epoch`. Nothing of it may be visible to others before `commit(epoch)`."""

    def commit(self, epoch: int) -> None:
        """Everything of `epoch` is here: make it durable and visible, at once or not at all."""

    def abort(self) -> None:
        """The job failed: leave nothing half-written."""

    def close(self) -> None:
        """The job is over: release files and connections."""


class Sink(Protocol):
    """Output of a dataflow.

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
        """This worker's writer."""


class JobSink(Sink, Protocol):
    """A sink that finds again what it has written. Before `open` it is told whose that is."""

    def for_job(self, job: str, name: str) -> Sink:
        """The same sink for one job. `name` is its name in that job.

        A job has one identity from its beginning to its end, over all restarts; another run, with another store or with none,
        is another job. What one job has written another must neither take for its own nor replace.
        """


def deals_epochs(source: Source) -> bool:
    """True if epoch e of a source is read by worker e modulo their number, all of it, whenever it is read."""
    return bool(getattr(source, "deals_epochs", False)) and source_repeats(source)


def whole_epochs(source: Source) -> bool:
    """True if each worker reads an epoch of a source in one chunk, epoch after epoch, whenever it is read."""
    return bool(getattr(source, "whole_epochs", False)) and source_repeats(source)


def source_repeats(source: Source) -> bool:
    """True if a source puts the same records into the same epochs whenever it is read again, in whatever process."""
    return bool(getattr(source, "repeats", False)) and bool(getattr(source, "rereadable", True))
