"""The driver's half of sources: reads partitions, turns chunks into input of the worker, and holds back when it must."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from timely.batch import nbytes
from timely.errors import FalkirkError, SourceError
from timely.graph import Node
from timely.io.interface import Chunk, End, Partition, Position, Source, Wait
from timely.worker import Worker


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be in flight. A knob of its own: it has nothing to do with how often state is saved.

    `epochs`: how many epochs a source may be ahead of the oldest epoch that is not complete where its records end.
    `bytes`: how many bytes may wait in the queues of a worker, or for its links, before sources everywhere pause.
    """

    epochs: int = 16
    bytes: int = 256 << 20


@dataclass(slots=True)
class _Reader:
    partition: Partition
    epoch: int = 0
    ended: bool = False
    wake: float = 0.0
    fileno: int | None = None
    positions: deque[tuple[int, Position]] = field(default_factory=deque)


class SourceDriver:
    """Reads this worker's partitions of one source. The partition that is furthest behind is read first."""

    def __init__(self, node: Node, worker: Worker, clock: Callable[[], float]) -> None:
        source = node.source
        assert source is not None
        self._node = node
        self._worker = worker
        self._clock = clock
        self._readers = [_Reader(partition) for partition in self._open(source)]
        self._live = list(self._readers)
        self.records = 0
        self.bytes = 0
        if not self._live:
            worker.advance(node.index, None)

    def _open(self, source: Source) -> list[Partition]:
        try:
            return list(source.partitions(self._worker.index, self._worker.plan.workers))
        except FalkirkError as error:
            raise self._blame(error) from error

    @property
    def done(self) -> bool:
        return not self._live

    def waits(self) -> tuple[float | None, list[int]]:
        """When to ask again (seconds on the clock; None: no time is set), and the files that may become readable."""
        times = [reader.wake for reader in self._live if reader.wake]
        return (min(times) if times else None), [reader.fileno for reader in self._live if reader.fileno is not None]

    def pump(self, limits: Limits) -> bool:
        """Read one chunk, if one may be read now. True if something was read."""
        if not self._live:
            return False
        node = self._node.index
        current = self._worker.input_time(node)
        assert current is not None
        oldest = current[0] - self._worker.epochs_in_flight(node)
        self._acknowledge(oldest)
        reader = self._next(oldest + limits.epochs)
        if reader is None:
            return False
        try:
            chunk = reader.partition.read()
        except SourceError as error:
            raise self._blame(error) from error
        except OSError as error:
            raise self._blame(SourceError(f"partition {reader.partition.name}: {error}")) from error
        return self._take(reader, chunk)

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
            if chunk.epoch < reader.epoch:
                raise self._blame(
                    SourceError(
                        f"partition {reader.partition.name} went back from epoch {reader.epoch} to {chunk.epoch}; "
                        "epochs must never fall within a partition"
                    )
                )
            reader.epoch = chunk.epoch + chunk.closes
            if reader.positions and reader.positions[-1][0] == chunk.epoch:
                reader.positions[-1] = (chunk.epoch, chunk.position)
            else:
                reader.positions.append((chunk.epoch, chunk.position))
            if chunk.data is not None and len(chunk.data):
                self.records += len(chunk.data)
                self.bytes += nbytes(chunk.data)
                self._worker.feed(node, (chunk.epoch,), chunk.data)
        else:
            reader.ended = True
            self._live.remove(reader)
        self._worker.advance(node, (min(r.epoch for r in self._live),) if self._live else None)
        return True

    def _acknowledge(self, oldest: int) -> None:
        for reader in self._readers:
            last: tuple[int, Position] | None = None
            while reader.positions and reader.positions[0][0] < oldest:
                last = reader.positions.popleft()
            if last is not None:
                reader.partition.ack(last[1])

    def close(self) -> None:
        for reader in self._readers:
            reader.partition.close()

    def _blame(self, error: FalkirkError) -> SourceError:
        return SourceError(f"source {self._node.name!r} ({self._node.site}): {error}")
