"""Source driver: reads partitions, feeds the worker, and applies limits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter

import polars as pl

from runtime.control import JobStats
from runtime.sources.limits import Limits
from runtime.sources.positions import Ends, Mark, PartitionPosition
from runtime.sources.read_ahead import ReadAhead
from runtime.sources.reader import Reader
from runtime.sources.recognition import fingerprint, recognise
from runtime.sources.replay_buffer import KeptPartition
from timely.data.span import Span, in_few_batches
from timely.dataflow.graph import Node
from timely.errors import FalkirkError, SourceError, error_text
from timely.io.descriptors import with_descriptors
from timely.io.interface import (
    Chunk,
    End,
    Files,
    Partition,
    Position,
    Source,
    Wait,
    source_repeats,
)
from timely.time import INF
from timely.worker.worker import Worker


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
        self._ended = 0
        """First epoch with an end not yet reported."""
        self._readers = [Reader(partition) for partition in opened]
        self._live = list(self._readers)
        self._ahead = ReadAhead() if rereads else None
        """Adaptive limit on open epochs; None without recovery."""
        self.gathers = not self._anew and worker.takes_spans(node.index)
        self._oldest_open = 0
        """Oldest incomplete epoch at the start of this turn."""
        self._gathered: list[tuple[tuple[int], pl.DataFrame]] = []
        """Batches read but not yet fed to the worker."""
        self.until = INF + 1
        """First epoch not to be read, at a savepoint."""
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
            raise self._blame(SourceError(f"cannot be opened: {error_text(error)}")) from error

    @property
    def done(self) -> bool:
        return not self._live

    def working(self) -> Iterator[JobStats]:
        """Progress of queries by unfinished partitions.

        See `timely.io.interface.Partition`.
        """
        for reader in self._live:
            working = getattr(reader.partition, "working", None)
            if working is not None and (progress := working()) is not None:
                yield JobStats(self.node.name, *progress)

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
            chunk = reader.read(self._clocked and self._rereadable)
        except FalkirkError as error:
            raise type(error)(str(self._blame(error))) from error
        except Exception as error:
            text = error if isinstance(error, OSError) else error_text(error)
            raise self._blame(SourceError(f"partition {reader.partition.name}: {text}")) from error
        return self._take(reader, chunk)

    def _oldest(self) -> int:
        """Oldest epoch not yet complete at the ends of this source's records."""
        current = self._worker.input_time(self.node.index)
        assert current is not None
        return current[0] - self._worker.epochs_in_flight(self.node.index)

    def _bound(self, oldest: int, limits: Limits) -> int:
        """First epoch not to be read yet."""
        if self._ahead is None:
            return oldest + limits.epochs
        return min(self._ahead.bound(oldest, limits.seconds, limits.epochs), self.until)

    def begun(self) -> int:
        """First epoch not begun by any partition here."""
        return max((reader.begun() for reader in self._readers), default=0)

    def measure(self, spent: float) -> None:
        """Update the cost of an epoch, given this worker's processor seconds so far."""
        if self._ahead is not None and self._live:
            self._ahead.measure(spent, self._oldest())

    def _free(self, limits: Limits) -> list[Reader]:
        """Partitions within the limit on epochs."""
        if not self._live:
            return []
        bound = self._bound(self._oldest(), limits)
        return [reader for reader in self._live if reader.epoch < bound]

    def _next(self, bound: int) -> Reader | None:
        """Readable partition with the lowest epoch below `bound`; None if there is none."""
        live = self._live
        if len(live) == 1 and not live[0].wake and live[0].fileno is None:
            return live[0] if live[0].epoch < bound else None
        best: Reader | None = None
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

    def _take(self, reader: Reader, chunk: Chunk | Wait | End) -> bool:
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
            if chunk.epoch >= self.until:
                reader.hold(chunk)
                if not self._gathered:
                    self._advance()
                return True
            if self._gathered and not isinstance(chunk.data, pl.DataFrame | None):
                self.hand_over()  # while the reader is where they ended: nothing may come at a time that is over
            reader.epoch = chunk.epoch + chunk.closes
            if self._ahead is not None:
                self._ahead.read(chunk.epoch)
            if reader.again:
                reader.finish_repeated(chunk.position)
            reader.remember(chunk, self._rereads)
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

    def positions(self, epoch: int) -> list[PartitionPosition]:
        """Position of each partition at the end of all epochs before `epoch`."""
        found = []
        for reader in self._readers:
            mark = reader.mark(epoch)
            over = reader.ended and (not reader.positions or reader.positions[-1].epoch < epoch)
            number = self._fingerprint(reader, mark)
            found.append(PartitionPosition(reader.partition.name, mark.position, over, mark.before, number))
        return found

    def _fingerprint(self, reader: Reader, mark: Mark) -> int:
        try:
            return fingerprint(reader.partition, mark)
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
        if upto <= self._ended:
            return None
        begin, self._ended = self._ended, upto
        over = {
            reader.partition.name: tuple((m.epoch, m.position) for m in reader.positions if begin <= m.epoch < upto)
            for reader in self._readers
        }
        return Ends(begin, upto, over, local_only=not self._rereadable and bool(self._readers))

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
        here = {} if epoch is None else {reader.partition.name: reader.mark(epoch).position for reader in self._readers}
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
            reader.wake, reader.fileno, reader.held = 0.0, None, None
            if epoch is not None:
                try:
                    reader.partition.seek(at)
                except FalkirkError as error:
                    raise self._blame(error) from error
            reader.finish_repeated(at)
        if self._ahead is not None:
            self._ahead.begin()
        self._ended = INF + 1 if epoch is None else epoch if self._readers else 0
        self._live = [reader for reader in self._readers if not reader.ended]
        if epoch is not None:
            self._worker.advance(self.node.index, (min(r.epoch for r in self._live),) if self._live else None)

    def _recognise(self, reader: Reader, place: PartitionPosition) -> None:
        """Verify the epoch before a position of a partition, with a note if nobody can."""
        try:
            note = recognise(reader.partition, place, self._anew, self._clocked)
        except FalkirkError as error:
            raise self._blame(error) from error
        if note:
            self._note(f"source {self.node.name!r} ({self.node.site}): {note}")

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
