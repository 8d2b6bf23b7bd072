"""Source driver: reads partitions, feeds the worker, and applies limits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
from msgspec.structs import replace

from runtime.content_fingerprint import Content, is_of_input, of_input
from runtime.control import JobStats
from runtime.kept_input import KeptPartition
from runtime.read_ahead import ReadAhead
from timely.data.span import Span, in_few_batches
from timely.dataflow.graph import Node
from timely.errors import FalkirkError, OperatorError, SourceError, at_line, told
from timely.io.descriptors import with_descriptors
from timely.io.interface import (
    ChecksummedPartition,
    Chunk,
    ClockedPartition,
    End,
    Files,
    Partition,
    Position,
    Source,
    Wait,
    source_repeats,
)
from timely.time import FINITE, INF
from timely.worker.worker import Worker


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on work in flight.

    They are independent of the frequency of checkpoints.

    `epochs`: how many epochs a source may be ahead of the oldest epoch that is not complete where its records end.
    `bytes`: how many bytes may wait in the queues of a worker, or for its links, before sources everywhere pause.
    `seconds`: with a store, how much work, in seconds of a worker's processor time, may be open in epochs that it has read: it
    reads fewer than `epochs` ahead where they take long, two at least (one where others read most epochs), because a failure
    makes others do them again.

    >>> flow = falkirk.Dataflow()
    >>> seen = flow.source("items", falkirk.Iterable(range(4), epoch_every=1)).capture("out")
    >>> len(falkirk.run(flow, limits=falkirk.Limits(epochs=2)).captured("out"))
    4
    """

    epochs: int = 32
    bytes: int = 256 << 20
    seconds: float = 0.02

    def __post_init__(self) -> None:
        for limit in (self.epochs, self.bytes):
            if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
                raise FalkirkError(
                    at_line(f"limits are whole numbers from 1 up, or nothing could ever be read: {self}")
                )
        if not self.seconds >= 0:
            raise FalkirkError(at_line(f"seconds of open work are a number from 0 up, not {self.seconds!r}"))


class Mark(msgspec.Struct, frozen=True):
    """Position of a partition after an epoch, and data to recognise the epoch."""

    epoch: int
    position: Position
    before: Position = None
    """Position at the start of the epoch."""
    content: Content = msgspec.field(default_factory=Content)


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """Partition's part of a checkpoint: position to resume at, and the epoch before.

    That epoch is recognised by its fingerprint.
    """

    partition: str
    position: Position
    ended: bool
    before: Position = None
    fingerprint: int = 0


@dataclass(frozen=True, slots=True)
class Ends:
    """End positions of the epochs from `begin` on, before `upto`.

    See `recovery.epoch_ends`.
    """

    begin: int
    upto: int
    partitions: Mapping[str, tuple[tuple[int, Position], ...]]
    alone: bool


_NO_MARK = Mark(-1, None)
"""Mark of a partition with nothing read yet."""


@dataclass(slots=True)
class _Reader:
    partition: Partition
    epoch: int = 0
    ended: bool = False
    wake: float = 0.0
    fileno: int | None = None
    positions: deque[Mark] = field(default_factory=deque)
    """Position after each epoch read, for epochs a rollback may repeat."""
    final: Mark = _NO_MARK
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


_BATCHES = (pl.DataFrame, list, pa.Table)
_MOST_WAITS = 1000
"""Consecutive waits tolerated from a partition when an epoch is read again."""


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


class SourceDriver:
    """Driver of one source: reads this worker's partitions, furthest behind first.

    Positions are acknowledged when their epochs are complete; with `rereads` only when `acknowledge` says that they will not be
    read again, and `rewind` goes back to them. `files` is where a source may keep files of its own, and tells the user things.
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
        self.node = node
        self._worker = worker
        self._clock = clock
        self._rereads = rereads
        self._note: Callable[[str], None] = (lambda text: None) if files is None else files.note
        self._rereadable = getattr(source, "rereadable", True)
        self._recognised = self._rereadable and node.nondeterministic is None
        """True if input read again is checked to be the same."""
        opened = self._open(source, files)
        if rereads and not self._rereadable:
            opened = [KeptPartition(partition) for partition in opened]
        self._anew = getattr(node.policy, "anew", False)
        """True if records read again go into another epoch, so epoch ends do not matter."""
        self._clocked = rereads and not self._anew and not source_repeats(source)
        """True if the source may end its epochs elsewhere when it is read again."""
        self.tells = self._clocked
        """True if other workers must know its epoch ends to keep what they received."""
        self.tells &= not self._rereadable or all(hasattr(partition, "read_until") for partition in opened)
        self._told = 0
        """First epoch with an end not yet reported."""
        self._readers = [_Reader(partition) for partition in opened]
        self._live = list(self._readers)
        self._ahead = ReadAhead() if rereads else None
        """Adaptive limit on open epochs; None without recovery."""
        self.gathers = not self._anew and worker.takes_spans(node.index)
        self._oldest_open = 0
        """Oldest incomplete epoch at the start of this turn."""
        self._gathered: list[tuple[tuple[int], pl.DataFrame]] = []
        """Batches read but not yet fed to the worker."""
        self.records = 0
        if not self._live and not rereads:
            worker.advance(node.index, None)

    def _open(self, source: Source, files: Files | None) -> list[Partition]:
        try:
            filing = getattr(source, "with_files", None)
            if filing is not None and files is not None:
                source = filing(files, self.node.name)
            index, workers = self._worker.index, self._worker.plan.workers
            partitions = with_descriptors(lambda: list(source.partitions(index, workers)))
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

    def working(self) -> Iterator[JobStats]:
        """Progress of queries by unfinished partitions.

        See `timely.io.interface.Partition`.
        """
        for reader in self._live:
            working = getattr(reader.partition, "working", None)
            if working is not None and (said := working()) is not None:
                yield JobStats(self.node.name, *said)

    def may_read(self, limits: Limits) -> bool:
        """True if the limit on epochs allows some partition to be read."""
        return bool(self._free(limits))

    def held_back(self, limits: Limits) -> bool:
        """True if there is more to read, but the limit on epochs forbids it."""
        return bool(self._live) and not self._free(limits)

    def waits(self, limits: Limits) -> tuple[float | None, list[int]]:
        """Time to try again (seconds on the clock; None: unknown), and files to wait for."""
        readers = self._free(limits)
        times = [reader.wake or self._clock() for reader in readers if reader.wake or reader.fileno is None]
        return min(times, default=None), [reader.fileno for reader in readers if reader.fileno is not None]

    def pump(self, limits: Limits) -> bool:
        """Read one chunk, if allowed; True if something was read."""
        if not self._live:
            return False
        self._oldest_open = oldest = self._oldest()
        if not self._rereads:
            self.acknowledge(oldest)
        self._worker.acting = self.node
        return self._read_one(limits)

    def read_on(self, limits: Limits, until: float, rows: int) -> None:
        """Read on in the same turn, until time `until` or for `rows` more rows."""
        upto = self.records + rows
        self._worker.acting = self.node
        while self.records < upto and self._clock() < until and self._read_one(limits):
            pass

    def _read_one(self, limits: Limits) -> bool:
        oldest = self._oldest_open
        reader = self._next(oldest + limits.epochs if self._ahead is None else self._bound(oldest, limits))
        if reader is None:
            return False
        try:
            chunk = self._read(reader)
        except FalkirkError as error:
            raise type(error)(str(self._blame(error))) from error
        except Exception as error:
            text = error if isinstance(error, OSError) else told(error)
            raise self._blame(SourceError(f"partition {reader.partition.name}: {text}")) from error
        return self._take(reader, chunk)

    def _read(self, reader: _Reader) -> Chunk | Wait | End:
        """Next chunk of a partition, with its epoch in this job."""
        if not reader.again:
            chunk = reader.partition.read()
            _check(reader.partition, chunk)
            if not isinstance(chunk, Chunk):
                return chunk
            if self._clocked and self._rereadable:  # its clock may be behind this job's epochs: all are moved
                reader.shift, reader.least = max(reader.shift, reader.least - chunk.epoch), 0
            if reader.shift or chunk.epoch < reader.least:
                epoch = max(chunk.epoch + reader.shift, reader.least)
                chunk = replace(chunk, epoch=epoch, closes=chunk.closes and epoch == chunk.epoch + reader.shift)
            return chunk
        epoch, end = reader.again[0]
        again: ClockedPartition = reader.partition  # type: ignore[assignment]  # any other does not tell where epochs end
        chunk = again.read_until(end)
        _check(again, chunk)
        if isinstance(chunk, Chunk):
            return replace(chunk, epoch=epoch, closes=chunk.position == end)
        if isinstance(chunk, End):
            raise SourceError(
                f"partition {reader.partition.name} ends before position {end!r}, up to which it was read before. Bring the "
                "input back as it was, or start anew with an empty store"
            )
        return chunk

    def _oldest(self) -> int:
        """Oldest epoch not yet complete at the ends of this source's records."""
        current = self._worker.input_time(self.node.index)
        assert current is not None
        return current[0] - self._worker.epochs_in_flight(self.node.index)

    def _bound(self, oldest: int, limits: Limits) -> int:
        """First epoch not to be read yet."""
        if self._ahead is None:
            return oldest + limits.epochs
        return self._ahead.bound(oldest, limits.seconds, limits.epochs)

    def measure(self, spent: float) -> None:
        """Update the cost of an epoch, given this worker's processor seconds so far."""
        if self._ahead is not None and self._live:
            self._ahead.measure(spent, self._oldest())

    def _free(self, limits: Limits) -> list[_Reader]:
        """Partitions within the limit on epochs."""
        if not self._live:
            return []
        bound = self._bound(self._oldest(), limits)
        return [reader for reader in self._live if reader.epoch < bound]

    def _next(self, bound: int) -> _Reader | None:
        """Readable partition with the lowest epoch below `bound`; None if there is none."""
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
        node = self.node.index
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
                again = "; were its epochs changed, or files added, since the job of this store began?"
                raise self._blame(
                    SourceError(
                        f"partition {reader.partition.name} went back from epoch {reader.epoch} to {chunk.epoch}; "
                        f"epochs must never fall within a partition{again if self._rereads else ''}"
                    )
                )
            if self._gathered and not isinstance(chunk.data, pl.DataFrame | None):
                self.hand_over()  # while the reader is where they ended: nothing may come at a time that is over
            reader.epoch = chunk.epoch + chunk.closes
            if self._ahead is not None:
                self._ahead.read(chunk.epoch)
            if reader.again:
                self._pass(reader, chunk.position)
            self._remember(reader, chunk)
            if chunk.data is not None and (rows := len(chunk.data)):
                self.records += rows
                if self.gathers and isinstance(chunk.data, pl.DataFrame):
                    self._gathered.append(((chunk.epoch,), chunk.data))
                    return True
                self._worker.feed(node, (chunk.epoch,), chunk.data)
        else:
            reader.ended = True
            self._live.remove(reader)
        if not self._gathered:
            self._advance()
        return True

    def hand_over(self) -> None:
        """Feed the gathered batches to the worker."""
        if not self._gathered:
            return
        node, gathered = self.node.index, self._gathered
        self._gathered = []
        if len(self._live) > 1:
            gathered.sort(key=itemgetter(0))  # each partition has its own order
        first, span = gathered[0][0], None
        if first == gathered[-1][0]:
            gathered = [(first, batch) for batch in in_few_batches([batch for _, batch in gathered])]
        else:
            with suppress(TypeError):  # of different columns
                span = Span.of(gathered)
        if span is not None:
            self._worker.feed_span(node, span)
        else:
            for time, batch in gathered:
                self._worker.feed(node, time, batch)
        self._advance()

    def _advance(self) -> None:
        self._worker.advance(self.node.index, (min(r.epoch for r in self._live),) if self._live else None)

    def acknowledge(self, oldest: int) -> None:
        """Acknowledge input: no epoch before `oldest` will be read again."""
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
        content = last.content if same or not self._rereads else Content()
        if self._rereads and chunk.data is not None and len(chunk.data):
            if getattr(reader.partition, "checksums", False):
                content.rows += len(chunk.data)
            else:
                content.add(chunk.data, held=getattr(reader.partition, "held", False))
        mark = Mark(chunk.epoch, chunk.position, last.before if same else last.position, content)
        if same and reader.positions:
            reader.positions[-1] = mark
        else:
            reader.positions.append(mark)

    def _marks(self, epoch: int) -> Iterator[tuple[_Reader, Mark]]:
        """Mark of each partition at the end of all epochs before `epoch`."""
        for reader in self._readers:
            mark = reader.final
            for read in reader.positions:
                if read.epoch >= epoch:
                    break
                mark = read
            yield reader, mark

    def positions(self, epoch: int) -> list[PartitionPosition]:
        """Position of each partition at the end of all epochs before `epoch`."""
        found = []
        for reader, mark in self._marks(epoch):
            over = reader.ended and (not reader.positions or reader.positions[-1].epoch < epoch)
            number = self._fingerprint(reader.partition, mark)
            found.append(PartitionPosition(reader.partition.name, mark.position, over, mark.before, number))
        return found

    def _fingerprint(self, partition: Partition, mark: Mark) -> int:
        """Fingerprint of the epoch before a mark; 0 if nothing was read or input is gone."""
        if not mark.content.counted:
            return mark.content.fingerprint()
        try:
            return _checksum(partition, mark.before, mark.position)
        except SourceError:
            return 0  # the job can do without: who reads this again will hear of it
        except FalkirkError as error:
            raise self._blame(error) from error

    def take_ends(self) -> Ends | None:
        """Ends of the epochs finished since the last call; None if there are none.

        Only of a source that `tells`: it would cut other epochs if it were read again, and can be read again as it was.
        """
        if not self.tells:
            return None
        upto = min((reader.epoch for reader in self._live), default=INF + 1)
        if self._readers and not self._live:  # another time there may be more
            upto = 1 + max((mark.epoch for reader in self._readers for mark in reader.positions), default=-1)
        if upto <= self._told:
            return None
        begin, self._told = self._told, upto
        over = {
            reader.partition.name: tuple((m.epoch, m.position) for m in reader.positions if begin <= m.epoch < upto)
            for reader in self._readers
        }
        return Ends(begin, upto, over, alone=not self._rereadable and bool(self._readers))

    def rewind(
        self,
        epoch: int | None,
        places: Mapping[str, PartitionPosition] | None,
        upto: int = 0,
        ends: Mapping[str, Sequence[tuple[int, Position]]] | None = None,
    ) -> None:
        """Go back to `epoch` (None: the end of input) at the positions `places`.

        Without `places` each partition goes back to its position before that epoch.

        Others have the epochs before `upto`: they end in each partition at `ends`, and are read again like that. Under
        AtLeastOnce all that would come in these epochs comes in epoch `upto`.

        Raises SourceError when a partition is gone for which there is a place, cannot go back, or holds something else now.
        """
        positions = places
        if positions is not None:
            gone = positions.keys() - {reader.partition.name for reader in self._readers}
            if gone:
                names = ", ".join(sorted(gone))
                raise self._blame(SourceError(f"the job had read from {names} before it was stopped, and that is gone"))
        here = {} if epoch is None else {reader.partition.name: mark.position for reader, mark in self._marks(epoch)}
        for reader in self._readers:
            name = reader.partition.name
            at: Position = None
            if positions is not None:
                place = positions.get(name, PartitionPosition(name, None, False))
                at = place.position if self._rereadable else None  # None: replay all that this process has buffered
                reader.positions.clear()
                reader.final = Mark(-1, at)
                if epoch is not None and place.fingerprint and self._recognised:
                    self._recognise(reader, place)
            elif epoch is not None:
                at = here[name]
                while reader.positions and reader.positions[-1].epoch >= epoch:
                    reader.positions.pop()
            reader.ended = epoch is None
            reader.epoch = epoch or 0
            reader.least = max(upto, reader.epoch) if self._clocked or self._anew else 0
            if self._rereadable:
                reader.shift = 0
            elif positions is not None:
                reader.shift = reader.epoch
            if self._anew:
                reader.epoch = reader.least
            known = (ends or {}).get(name, ()) if self._rereadable else ()
            reader.again = deque((number, end) for number, end in known if number >= reader.epoch)
            reader.wake, reader.fileno = 0.0, None
            if epoch is not None:
                try:
                    reader.partition.seek(at)
                except FalkirkError as error:
                    raise self._blame(error) from error
            self._pass(reader, at)
        if self._ahead is not None:
            self._ahead.begin()
        self._told = INF + 1 if epoch is None else epoch if self._readers else 0
        self._live = [reader for reader in self._readers if not reader.ended]
        if epoch is not None:
            self._worker.advance(self.node.index, (min(r.epoch for r in self._live),) if self._live else None)

    def _pass(self, reader: _Reader, position: Position) -> None:
        """Finish the repeated epochs with their end at `position`."""
        while reader.again and reader.again[0][1] == position:
            reader.epoch = reader.again.popleft()[0] + 1

    def _recognise(self, reader: _Reader, place: PartitionPosition) -> None:
        """Verify the epoch before a position by reading it once more.

        Going on where other input has come would mix two inputs.
        """
        partition = reader.partition
        if is_of_input(place.fingerprint):
            if not hasattr(partition, "checksum"):
                raise self._blame(_other_input(partition, place, "what it holds"))
            try:
                found = _checksum(partition, place.before, place.position)
            except FalkirkError as error:
                raise self._blame(error) from error
            if found != place.fingerprint:
                raise self._blame(_other_input(partition, place, "what it holds"))
            return
        try:
            partition.seek(place.before)
            again = getattr(partition, "read_until", None)
            content, epoch, waits = Content.like(place.fingerprint), None, 0
            while True:
                chunk = partition.read() if again is None else again(place.position)
                if isinstance(chunk, Wait):
                    waits += 1
                    if waits > _MOST_WAITS:
                        self._not_recognised(partition, "has nothing yet where it is read again", "comes")
                        return
                    continue
                one = again is None and not self._anew  # otherwise it may be several of the partition's
                another = one and epoch is not None and isinstance(chunk, Chunk) and chunk.epoch != epoch
                if not isinstance(chunk, Chunk) or (another and content.rows):
                    if one and self._clocked and content.rows:  # it has passed the place
                        self._not_recognised(partition, "is cut otherwise when it is read again", "goes into epochs")
                        return
                    break
                epoch, waits = chunk.epoch, 0
                if chunk.data is not None and len(chunk.data):
                    content.add(chunk.data)
                if chunk.position == place.position:
                    break
        except FalkirkError as error:
            raise self._blame(error) from error
        if content.fingerprint() != place.fingerprint:
            count = f"{content.rows:,} record{'' if content.rows == 1 else 's'}"
            raise self._blame(_other_input(partition, place, f"the epoch of {count}" if content.rows else "no record"))

    def _not_recognised(self, partition: Partition, why: str, does: str) -> None:
        """Note for the user: a partition without `read_until` could not be verified.

        It gives its input, or ends its epochs, at its own pace.
        """
        self._note(
            f"source {self.node.name!r} ({self.node.site}): partition {partition.name} {why}, so nobody knows that it holds "
            f"what it held when the job was saved. If its input {does} at a pace of its own, let it have read_until(position)"
        )

    def close(self) -> None:
        """Close the partitions; acknowledge their input if the job is over."""
        for reader in self._readers:
            # With `rereads` a worker that is done may be needed again: what is safe was acknowledged.
            if self._worker.done and not self._rereads and reader.positions:
                reader.partition.ack(reader.positions[-1].position)
                reader.positions.clear()
        for reader in self._readers:
            reader.partition.close()

    def _blame(self, error: FalkirkError) -> SourceError:
        return SourceError(f"source {self.node.name!r} ({self.node.site}): {error}")


def _checksum(partition: Partition, begin: Position, end: Position) -> int:
    """Fingerprint of the input between two positions, by the partition's checksum."""
    asked: ChecksummedPartition = partition  # type: ignore[assignment]  # of any other records were picked out
    try:
        return of_input(asked.checksum(begin, end))
    except FalkirkError:
        raise
    except Exception as error:
        raise OperatorError(f"partition {partition.name}: its checksum() failed: {told(error)}") from error


def _other_input(partition: Partition, place: PartitionPosition, what: str) -> SourceError:
    """Error about changed input before a saved position; `what` has changed."""
    return SourceError(
        f"partition {partition.name} holds something else than when the job was saved: {what} before position "
        f"{place.position!r} is not what was read then. Bring the input back as it was, and the source's arguments, "
        "or start anew with an empty store"
    )
