"""External world of a simulated job: observed outputs and acknowledged inputs.

The user's sinks are replaced by recording ones with the same promise, captures are recorded too, and sources are watched:
what was acknowledged must never be asked for again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Protocol

from falkirk.simulate.judging import Publication, observed, order_of, same, shown
from recovery.guarantees.promises import Alike, Grade, Promise, promises
from timely.data.batch import Batch
from timely.dataflow.graph import Graph
from timely.errors import FalkirkError
from timely.io.interface import (
    Chunk,
    End,
    Partition,
    Position,
    Source,
    Wait,
    deals_epochs,
    source_repeats,
    whole_epochs,
)
from timely.io.memory import PendingEpochs, rows_of
from timely.time import INF, Time, visible

Result = dict[tuple[str, Time], list[Any]]
"""Records of all workers, in a fixed order, by output and time."""


def by_output(result: Result) -> dict[str, dict[Time, list[Any]]]:
    """Result split by output."""
    found: dict[str, dict[Time, list[Any]]] = {}
    for (name, time), records in result.items():
        found.setdefault(name, {})[time] = records
    return found


class Violation(FalkirkError):
    """Raised for a forbidden behaviour of the job."""


class Contradiction(Violation):
    """Raised for two publications of the same output with different content."""


class Around(Protocol):
    """Simulated environment, as needed by sources and outputs."""

    now: float
    """The simulated time, in seconds."""

    def at_io(self, worker: int) -> None:
        """Signal an externally visible action of a process, a possible crash point."""


@dataclass(slots=True)
class _Watched:
    """Source partition with its visited, acknowledged and last positions."""

    known: set[str] = field(default_factory=lambda: {"null"})
    over: set[str] = field(default_factory=set)
    acknowledged: str = "null"
    last: str = "null"
    end: str | None = None
    """Position of its end, once reached.

    It may be read again after that, to see whether it is still the same.
    """
    finished: bool = False
    """True for a share of a source at its end before the number of workers changed."""


class Outside:
    """Collector of a job's published outputs.

    An exactly-once output (a capture, or a sink that says so) gives each time of each worker whole, and what comes again must
    be what came before. One that is at-least-once may repeat an epoch, or parts of it.
    """

    def __init__(self) -> None:
        self.exactly: dict[tuple[str, int, Time], list[Any]] = {}
        self.commits: dict[str, list[Publication]] = {}
        """Commits of at-least-once outputs, in order."""
        self.promises: dict[str, Promise] = {}
        self.repeated = 0
        self.gaps: dict[str, list[tuple[int, int]]] = {}
        """Declared incomplete epochs of each output: first and last."""
        self.digest = blake2b(digest_size=16)
        self.changes = 0
        """Number of publications and acknowledgements."""
        self._partitions: dict[tuple[str, str], _Watched] = {}
        self._sharing: set[str] = set()
        """Sources with a share of each epoch for each worker."""
        self._shares: dict[tuple[str, str], Position] = {}
        """Starts of shares for another number of workers, by source and partition."""

    def isolated(self, graph: Graph, around: Around) -> Graph:
        """The graph with recording sinks and watched sources.

        Raises FalkirkError for sources that cannot be read again.
        """
        graph = copy(graph)
        graph.nodes = list(graph.nodes)
        for at, node in enumerate(graph.nodes):
            if node.sink is not None:
                exactly = bool(getattr(node.sink, "exactly_once", False))
                graph.nodes[at] = replace(node, sink=RecordingSink(self, around, node.name, exactly))
            elif node.source is not None:
                if not getattr(node.source, "rereadable", True):
                    kind = type(node.source).__name__
                    raise FalkirkError(
                        f"the {node} reads from {kind}, which cannot be read again, so no failure can be recovered from: "
                        "simulate the program with a source that can, for example Iterable or Files"
                    )
                timed = getattr(node.source, "with_clock", None)
                source = node.source if timed is None else timed(lambda: around.now)
                graph.nodes[at] = replace(node, source=WatchedSource(self, source, node.name))
        self.promises = {promise.output: promise for promise in promises(graph)}
        return graph

    def captures(self, worker: int, graph: Graph, around: Around) -> Callable[[int, Time, Batch], None]:
        """Callback of a worker's session for captured batches."""

        def take(node: int, time: Time, batch: Batch) -> None:
            around.at_io(worker)
            self.publish(graph.nodes[node].name, worker, time, rows_of(batch))
            around.at_io(worker)

        return take

    def publish(self, name: str, worker: int, time: Time, records: Sequence[Any]) -> None:
        """Record the whole exactly-once output of a worker at a time."""
        key = (name, worker, time)
        content = sorted(records, key=order_of)
        self._note("published", key, content)
        if key in self.exactly:
            self.repeated += 1
            if not same(self.exactly[key], content) and self.promised(name) == Grade.PRECISE:
                raise Contradiction(
                    f"{name!r} on worker {worker} gave at time {visible(time)} {shown(self.exactly[key])}, and now "
                    f"{shown(content)}"
                )
        self.exactly[key] = content

    def commit(self, name: str, worker: int, time: Time, records: Sequence[Any]) -> None:
        """Record a commit of an epoch of an at-least-once output of a worker."""
        content = sorted(records, key=order_of)
        self._note("committed", (name, worker, time), content)
        self.commits.setdefault(name, []).append((worker, time, content))

    def _note(self, *what: Any) -> None:
        self.changes += 1
        self.digest.update(repr(what).encode())

    def result(self) -> Result:
        """Result by output and time.

        Exactly-once outputs; of the others the last commit of each epoch of each worker.
        """
        last = dict(self.exactly)
        for name, seen in self.commits.items():
            last.update({(name, worker, time): content for worker, time, content in seen})
        found: Result = {}
        for (name, _, time), content in last.items():
            found.setdefault((name, time), []).extend(content)
        return {key: sorted(content, key=order_of) for key, content in sorted(found.items())}

    def compare(self, expected: Result, alike: Mapping[str, Alike] | None = None) -> None:
        """Check every output against its delivery guarantee.

        Args:
            expected: the result of a run without failures.
            alike: how far each output gives the same in every such run; one that is not named, in each epoch.

        Raises:
            Violation: naming output, and what it did.
        """
        seen: dict[str, list[Publication]] = {name: list(commits) for name, commits in self.commits.items()}
        for (name, worker, time), content in sorted(self.exactly.items(), key=lambda entry: entry[0][2]):
            seen.setdefault(name, []).append((worker, time, content))
        right = by_output(expected)
        for name in sorted(seen.keys() | right.keys()):
            promised = self.promised(name)
            again = self.promises[name].again if name in self.promises else Alike.EPOCHS
            level = min(again, (alike or {}).get(name, Alike.EPOCHS))
            given, wanted = seen.get(name, []), right.get(name, {})
            if name in self.promises and promised == Grade.GAP:
                promised = self.promises[name].besides
            if gaps := self.gaps.get(name):
                if level < Alike.EPOCHS:
                    continue  # what lies in which epoch differs between runs, so nothing is known of single ones
                given = [each for each in given if not _inside(gaps, each[1])]
                wanted = {time: rows for time, rows in wanted.items() if not _inside(gaps, time)}
            found, why = observed(given, wanted, level, twice=again < Alike.EPOCHS)
            if found < promised:
                raise Violation(f"{name!r} is promised to be {promised}, and is {found}: it {why}")

    def promised(self, name: str) -> Grade:
        """Grade required of an output; of captures, that for one failure.

        The process that runs a simulated job, and so holds the captures, never fails.
        """
        promise = self.promises.get(name)
        if promise is None:
            return Grade.PRECISE
        if promise.kind == "capture":  # its cause of pairs of workers and mates counts, which may die here
            return min([promise.one, *(cause.grade for cause in promise.causes if cause.pair)])
        return promise.any

    def declare(self, name: str, first: int | None, last: int | None) -> None:
        """Record incomplete epochs of an output, as the timeline has them."""
        self.gaps.setdefault(name, []).append((INF if first is None else first, INF if last is None else last))

    # Sources

    def read(self, source: str, partition: str, position: Position) -> None:
        """Record a read of a partition up to `position`."""
        watched = self._watched(source, partition)
        watched.last = json.dumps(position)
        watched.known.add(watched.last)

    def sought(self, source: str, partition: str, position: Position) -> None:
        """Record a seek of a partition to `position`.

        Raises Violation if something after that was acknowledged.
        """
        watched, there = self._watched(source, partition), json.dumps(position)
        if there not in watched.known:
            raise Violation(f"source {source!r} is to read {partition} from {position!r}, where it has never been")
        if there in watched.over:
            raise Violation(f"source {source!r} is to read {partition} again from {position!r}: more was acknowledged")
        watched.last = there

    def shares(self, source: str) -> None:
        """Record a source with a share of each epoch for each worker."""
        self._sharing.add(source)

    def shared_anew(self, source: str, partition: str, position: Position) -> None:
        """Record the start of a share of epochs for another number of workers."""
        self._shares[source, partition] = position

    def forget_shares(self) -> None:
        """Forget the shares of an interrupted move."""
        self._shares.clear()

    def resized(self) -> None:
        """Take over the shares of epochs of the new number of workers."""
        shares = {key: watched for key, watched in self._partitions.items() if key[0] in self._sharing}
        reading = {source for (source, _), watched in shares.items() if watched.end is None and not watched.finished}
        for key in shares:
            del self._partitions[key]
        for key, position in self._shares.items():
            finished = key[0] not in reading
            self._partitions[key] = _Watched(known={"null", json.dumps(position)}, finished=finished)
        self._shares.clear()

    def ended(self, source: str, partition: str) -> None:
        """Record the end of a partition."""
        watched = self._watched(source, partition)
        watched.end = watched.last

    def acknowledged(self, source: str, partition: str, position: Position, before: Collection[Position]) -> None:
        """Record the acknowledgement of `position`; `before`: positions before it.

        Nothing before it will be asked for again.
        """
        watched = self._watched(source, partition)
        watched.acknowledged = json.dumps(position)
        self.changes += 1
        watched.over.update(map(json.dumps, before))

    def check_acknowledged(self) -> None:
        """Check at the end of the job: all input must be acknowledged.

        Raises Violation otherwise.
        """
        for (source, name), watched in self._partitions.items():
            if watched.finished and watched.last == "null":
                continue
            if watched.acknowledged != watched.end:
                raise Violation(
                    f"source {source!r}: the job is over, and {name}, which ends at {watched.end}, was acknowledged up to "
                    f"{watched.acknowledged} only"
                )

    def _watched(self, source: str, partition: str) -> _Watched:
        return self._partitions.setdefault((source, partition), _Watched())


def _inside(gaps: Sequence[tuple[int, int]], time: Time) -> bool:
    return any(first <= time[0] <= last for first, last in gaps)


class RecordingSink:
    """Recording replacement of a user's sink, with the same guarantee."""

    def __init__(self, outside: Outside, around: Around, name: str, exactly_once: bool) -> None:
        self.exactly_once = exactly_once
        self._outside = outside
        self._around = around
        self._name = name

    def open(self, worker: int, workers: int) -> RecordingWriter:
        """One worker's writer."""
        give = self._outside.publish if self.exactly_once else self._outside.commit
        return RecordingWriter(give, self._around, self._name, worker, self._outside.gaps)


class RecordingWriter:
    """Writer of epochs to an `Outside`; uncommitted data is lost with its process."""

    def __init__(
        self,
        give: Callable[[str, int, Time, Sequence[Any]], None],
        around: Around,
        name: str,
        worker: int,
        gaps: Mapping[str, Sequence[tuple[int, int]]],
    ) -> None:
        self._gaps = gaps
        self._declared: list[tuple[int, int]] = []
        """Epochs known to be incomplete: first and last."""
        self._give = give
        self._around = around
        self._name = name
        self._worker = worker
        self._pending = PendingEpochs()

    def write(self, epoch: int, batch: Batch) -> None:
        """Buffer the batch until the commit."""
        self._around.at_io(self._worker)
        self._pending.add(epoch, batch)

    def incomplete(self, first: int, last: int | None) -> None:
        """Note incomplete epochs."""
        self._declared.append((int(first), INF if last is None else last))

    def commit(self, epoch: int) -> None:
        """Publish the buffered epoch.

        Raises Violation if it is declared incomplete, and this sink was not told.
        """
        self._around.at_io(self._worker)
        if _inside(self._gaps.get(self._name, ()), (int(epoch),)) and not _inside(self._declared, (int(epoch),)):
            raise Violation(
                f"{self._name!r} on worker {self._worker} commits epoch {epoch}, not told that it is incomplete"
            )
        rows = [row for batch in self._pending.take(epoch) for row in rows_of(batch)]
        self._give(self._name, self._worker, (int(epoch),), rows)  # not END, which is for users
        self._around.at_io(self._worker)

    def abort(self) -> None:
        """Discard uncommitted data."""
        self._pending.clear()

    close = abort


class WatchedSource:
    """Wrapper of a user's source; an `Outside` observes reads, acks and seeks."""

    rereadable = True

    def __init__(self, outside: Outside, source: Source, name: str) -> None:
        self.repeats = source_repeats(source)
        self.deals_epochs = deals_epochs(source)
        self.whole_epochs = whole_epochs(source)
        self.layout_free = bool(getattr(source, "layout_free", False))
        self._outside = outside
        self._source = source
        self._name = name

    def partitions(self, worker: int, workers: int) -> list[Partition]:
        """Partitions read by this worker."""
        mine = self._source.partitions(worker, workers)
        return [WatchedPartition(self._outside, partition, self._name) for partition in mine]


class WatchedPartition:
    """Observed partition of a `WatchedSource`."""

    def __init__(self, outside: Outside, partition: Partition, source: str) -> None:
        self.name = partition.name
        self._outside = outside
        self._partition = partition
        self._source = source
        self._passed: list[Position] = [None]
        again: Callable[[Position], Chunk | Wait | End] | None = getattr(partition, "read_until", None)
        if again is not None:
            self.read_until = lambda position: self._seen(again(position))
        if hasattr(partition, "checksum"):
            self.checksum = partition.checksum
        share: Callable[[int], Position] | None = getattr(partition, "at_epoch", None)
        if share is not None:
            outside.shares(source)
            self.at_epoch = lambda epoch: self._shared(share(epoch))

    @property
    def checksums(self) -> bool:
        """True if the wrapped partition has checksums."""
        return bool(getattr(self._partition, "checksums", False))

    def _shared(self, position: Position) -> Position:
        self._outside.shared_anew(self._source, self.name, position)
        return position

    def read(self) -> Chunk | Wait | End:
        """The next chunk."""
        return self._seen(self._partition.read())

    def _seen(self, found: Chunk | Wait | End) -> Chunk | Wait | End:
        if isinstance(found, Chunk):
            self._outside.read(self._source, self.name, found.position)
            if found.position != self._passed[-1]:
                self._passed.append(found.position)
        elif isinstance(found, End):
            self._outside.ended(self._source, self.name)
        return found

    def seek(self, position: Position) -> None:
        """Seek to `position`."""
        self._outside.sought(self._source, self.name, position)
        self._passed = [position]
        self._partition.seek(position)

    def ack(self, position: Position) -> None:
        """Acknowledge all input before `position`."""
        before: list[Position] = []
        if position in self._passed:
            at = self._passed.index(position)
            before, self._passed = self._passed[:at], self._passed[at:]
        self._outside.acknowledged(self._source, self.name, position, before)
        self._partition.ack(position)

    def close(self) -> None:
        """Release files and sockets."""
        self._partition.close()
