"""The driver's half of sources: reads partitions, turns chunks into input of the worker, and holds back when it must."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import polars as pl
import pyarrow as pa

from runtime.content_fingerprint import Content
from runtime.kept_input import KeptPartition
from timely.data.batch import nbytes
from timely.dataflow.graph import Node
from timely.errors import FalkirkError, SourceError, at_line, told
from timely.io.interface import Chunk, End, Files, Partition, Position, Source, Wait
from timely.time import INF
from timely.worker.worker import Worker


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of what may be in flight. A knob of its own: it has nothing to do with how often state is saved.

    `epochs`: how many epochs a source may be ahead of the oldest epoch that is not complete where its records end.
    `bytes`: how many bytes may wait in the queues of a worker, or for its links, before sources everywhere pause.
    """

    epochs: int = 16
    bytes: int = 256 << 20

    def __post_init__(self) -> None:
        for limit in (self.epochs, self.bytes):
            if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
                raise FalkirkError(
                    at_line(f"limits are whole numbers from 1 up, or nothing could ever be read: {self}")
                )


@dataclass(frozen=True, slots=True)
class Mark:
    """The position of a partition after an epoch, and the marks by which the epoch is known again."""

    epoch: int
    position: Position
    before: Position = None
    """The position at which the epoch begins."""
    content: Content = field(default_factory=Content)


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """A partition's share of a checkpoint: where it goes on, and the epoch before that, to be recognised by."""

    partition: str
    position: Position
    ended: bool
    before: Position = None
    fingerprint: int = 0


@dataclass(slots=True)
class _Reader:
    partition: Partition
    epoch: int = 0
    ended: bool = False
    wake: float = 0.0
    fileno: int | None = None
    positions: deque[Mark] = field(default_factory=deque)
    """The position after each epoch that was read and may be read again."""
    final: Mark = Mark(-1, None)
    """The same, for the last of the epochs that will not be read again."""
    shift: int = 0
    """Added to the partition's epochs: one that cannot be read again begins anew in a new process, and the job does not."""
    acknowledged: Position = None
    """The last position that its partition was told."""


_MOST_WAITS = 1000
"""A partition that is read again, and so often in a row says that there is nothing yet, is not waited for."""


class SourceDriver:
    """Reads this worker's partitions of one source. The partition that is furthest behind is read first.

    Positions are acknowledged when their epochs are complete; with `rereads` only when `acknowledge` says that they will not be
    read again, and `rewind` goes back to them. `files` is where a source may keep files of its own.
    """

    def __init__(
        self,
        node: Node,
        worker: Worker,
        clock: Callable[[], float],
        rereads: bool = False,
        files: Files | None = None,
    ) -> None:
        source = node.source
        assert source is not None
        self._node = node
        self._worker = worker
        self._clock = clock
        self._rereads = rereads
        self._rereadable = getattr(source, "rereadable", True)
        opened = self._open(source, files)
        if rereads and not self._rereadable:
            opened = [KeptPartition(partition) for partition in opened]
        self._readers = [_Reader(partition) for partition in opened]
        self._live = list(self._readers)
        self.records = 0
        self.bytes = 0
        if not self._live and not rereads:
            worker.advance(node.index, None)

    def _open(self, source: Source, files: Files | None) -> list[Partition]:
        try:
            filing = getattr(source, "with_files", None)
            if filing is not None and files is not None:
                source = filing(files, self._node.name)
            partitions = list(source.partitions(self._worker.index, self._worker.plan.workers))
            for partition in partitions:
                lacking = [name for name in ("name", "read", "seek", "ack", "close") if not hasattr(partition, name)]
                if lacking:
                    raise SourceError(
                        f"its partition, of type {type(partition).__name__}, has no {', no '.join(lacking)}"
                    )
            return partitions
        except FalkirkError as error:
            raise self._blame(error) from error
        except Exception as error:
            raise self._blame(SourceError(f"cannot be opened: {told(error)}")) from error

    @property
    def done(self) -> bool:
        return not self._live

    def may_read(self, limits: Limits) -> bool:
        """True if this source can bring more without anything else happening first."""
        return bool(self._free(limits))

    def waits(self, limits: Limits) -> tuple[float | None, list[int]]:
        """The time to ask again (seconds on the clock; None: no time is set), and the files that may become readable."""
        readers = self._free(limits)
        times = [reader.wake or self._clock() for reader in readers if reader.wake or reader.fileno is None]
        return min(times, default=None), [reader.fileno for reader in readers if reader.fileno is not None]

    def pump(self, limits: Limits) -> bool:
        """Read one chunk, if one may be read now. True if something was read."""
        if not self._live:
            return False
        oldest = self._oldest()
        if not self._rereads:
            self.acknowledge(oldest)
        reader = self._next(oldest + limits.epochs)
        if reader is None:
            return False
        self._worker.acting = self._node
        try:
            chunk = reader.partition.read()
        except FalkirkError as error:
            raise type(error)(str(self._blame(error))) from error
        except Exception as error:
            text = error if isinstance(error, OSError) else told(error)
            raise self._blame(SourceError(f"partition {reader.partition.name}: {text}")) from error
        return self._take(reader, chunk)

    def _oldest(self) -> int:
        """The oldest epoch that is not complete where the records end."""
        current = self._worker.input_time(self._node.index)
        assert current is not None
        return current[0] - self._worker.epochs_in_flight(self._node.index)

    def _free(self, limits: Limits) -> list[_Reader]:
        """The readers that the limit on epochs does not hold back."""
        if not self._live:
            return []
        bound = self._oldest() + limits.epochs
        return [reader for reader in self._live if reader.epoch < bound]

    def _next(self, bound: int) -> _Reader | None:
        """The readable partition with the least epoch, if that is below `bound`."""
        live = self._live
        if len(live) == 1 and not live[0].wake and live[0].fileno is None:
            return live[0] if live[0].epoch < bound else None
        best: _Reader | None = None
        now = self._clock()
        for reader in live:
            asleep = reader.wake > now and reader.fileno is None
            if (
                not asleep
                and reader.epoch < bound
                and (best is None or (reader.wake, reader.epoch) < (best.wake, best.epoch))
            ):
                best = reader
        return best

    def _take(self, reader: _Reader, chunk: Chunk | Wait | End) -> bool:
        node = self._node.index
        if isinstance(chunk, Wait):
            now = self._clock()
            reader.wake = now + chunk.seconds if chunk.seconds is not None else 0.0
            reader.fileno = chunk.fileno
            if reader.wake == 0.0 and reader.fileno is None:
                reader.wake = now + 0.01
            return False
        reader.wake, reader.fileno = 0.0, None
        if isinstance(chunk, Chunk):
            if reader.shift:
                chunk = replace(chunk, epoch=chunk.epoch + reader.shift)
            if chunk.epoch < reader.epoch:
                raise self._blame(
                    SourceError(
                        f"partition {reader.partition.name} went back from epoch {reader.epoch} to {chunk.epoch}; "
                        "epochs must never fall within a partition"
                    )
                )
            reader.epoch = chunk.epoch + chunk.closes
            self._remember(reader, chunk)
            if chunk.data is not None and not isinstance(chunk.data, list | pl.DataFrame | pa.Table):
                raise self._blame(
                    SourceError(
                        f"partition {reader.partition.name} gives {type(chunk.data).__name__} for a batch: give a list of "
                        "records, a Polars frame or an Arrow table"
                    )
                )
            if chunk.data is not None and len(chunk.data):
                self.records += len(chunk.data)
                self.bytes += nbytes(chunk.data)
                self._worker.feed(node, (chunk.epoch,), chunk.data)
        else:
            reader.ended = True
            self._live.remove(reader)
        self._worker.advance(node, (min(r.epoch for r in self._live),) if self._live else None)
        return True

    def acknowledge(self, oldest: int) -> None:
        """No epoch before `oldest` will be read again."""
        # With `rereads` the last epoch is read once more after a restart, to recognise it; but not when all is over.
        over = not self._rereads or oldest > INF
        for reader in self._readers:
            while reader.positions and reader.positions[0].epoch < oldest:
                reader.final = reader.positions.popleft()
            safe = reader.final.position if over else reader.final.before
            if safe != reader.acknowledged:
                reader.acknowledged = safe
                reader.partition.ack(safe)

    def _remember(self, reader: _Reader, chunk: Chunk) -> None:
        last = reader.positions[-1] if reader.positions else reader.final
        same = last.epoch == chunk.epoch
        content = last.content if same else Content()
        if self._rereads and chunk.data is not None and len(chunk.data):
            content.add(chunk.data)
        mark = Mark(chunk.epoch, chunk.position, last.before if same else last.position, content)
        if same and reader.positions:
            reader.positions[-1] = mark
        else:
            reader.positions.append(mark)

    def positions(self, epoch: int) -> list[PartitionPosition]:
        """The position of each partition after all epochs before `epoch`."""
        found = []
        for reader in self._readers:
            mark = reader.final
            for read in reader.positions:
                if read.epoch >= epoch:
                    break
                mark = read
            over = reader.ended and (not reader.positions or reader.positions[-1].epoch < epoch)
            found.append(
                PartitionPosition(reader.partition.name, mark.position, over, mark.before, mark.content.fingerprint())
            )
        return found

    def rewind(self, epoch: int | None, places: Mapping[str, PartitionPosition] | None) -> None:
        """Read on at `epoch` (None: everything was read), from `places`, by partition, or from where that was before.

        Raises SourceError when a partition is gone for which there is a place, cannot go back, or holds something else now.
        """
        positions = places
        if positions is not None:
            gone = positions.keys() - {reader.partition.name for reader in self._readers}
            if gone:
                names = ", ".join(sorted(gone))
                raise self._blame(SourceError(f"the job had read from {names} before it was stopped, and that is gone"))
        here = {} if epoch is None else {place.partition: place for place in self.positions(epoch)}
        for reader in self._readers:
            name = reader.partition.name
            at: Position = None
            if positions is not None:
                place = positions.get(name, PartitionPosition(name, None, False))
                at = place.position if self._rereadable else None  # of this process all, of others nothing
                reader.positions.clear()
                reader.final = Mark(-1, at)
                if epoch is not None and place.fingerprint and self._rereadable:
                    self._recognise(reader, place)
                if not self._rereadable:
                    reader.shift = epoch or 0
            elif epoch is not None:
                at = here[name].position
                while reader.positions and reader.positions[-1].epoch >= epoch:
                    reader.positions.pop()
            reader.ended = epoch is None
            reader.epoch = epoch or 0
            reader.wake, reader.fileno = 0.0, None
            if epoch is not None:
                try:
                    reader.partition.seek(at)
                except FalkirkError as error:
                    raise self._blame(error) from error
        self._live = [reader for reader in self._readers if not reader.ended]
        if not self._live and epoch is not None:
            self._worker.advance(self._node.index, None)

    def _recognise(self, reader: _Reader, place: PartitionPosition) -> None:
        """Read the epoch before a place once more: going on where other input has come would mix two inputs."""
        partition = reader.partition
        try:
            partition.seek(place.before)
            read = getattr(partition, "read_again", partition.read)
            content, epoch, waits = Content(), None, 0
            while True:
                chunk = read()
                if isinstance(chunk, Wait):
                    waits += 1
                    if waits > _MOST_WAITS:
                        return  # it gives its input at its own pace, and has no `read_again`
                    continue
                if not isinstance(chunk, Chunk) or (epoch is not None and chunk.epoch != epoch and content.rows):
                    break
                epoch, waits = chunk.epoch, 0
                if chunk.data is not None and len(chunk.data):
                    content.add(chunk.data)
                if chunk.position == place.position:
                    break
        except FalkirkError as error:
            raise self._blame(error) from error
        if content.fingerprint() != place.fingerprint:
            raise self._blame(
                SourceError(
                    f"partition {partition.name} holds something else than when the job was saved: the {content.rows:,} "
                    f"records before position {place.position!r} are not those that were read then. Bring the input back as it "
                    "was, or start anew with an empty store"
                )
            )

    def close(self) -> None:
        """Release the partitions; if the job is over, none of their input will be asked for again."""
        for reader in self._readers:
            # With `rereads` a worker that is done may be needed again: what is safe was acknowledged.
            if self._worker.done and not self._rereads and reader.positions:
                reader.partition.ack(reader.positions[-1].position)
                reader.positions.clear()
        for reader in self._readers:
            reader.partition.close()

    def _blame(self, error: FalkirkError) -> SourceError:
        return SourceError(f"source {self._node.name!r} ({self._node.site}): {error}")
