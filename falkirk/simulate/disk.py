"""Simulated store: writes take time, and may fail or tear at a crash.

The outcome of a write whose writer dies is drawn from a seed.

A put has two moments: from the first on the blob is there, for everybody; at the second its writer hears of it. Between its
beginning and the second moment the writer can die, and the put may then turn out to have been made, or not, or later, or, on
a disk that loses what it claims to have synced, in part. What was acknowledged stays.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from recovery.store.interface import AlreadyThere, Buffer, NotThere, StoreError, StoreFull
from recovery.store.memory import aligned_memory
from recovery.store.segments import as_bytes

Writer: TypeAlias = Hashable
"""A writer: an owner and its incarnation, for example ("worker-000", 2)."""


@dataclass(frozen=True, slots=True)
class DiskFaults:
    """Fault model of a disk: delays in simulated seconds, and probabilities.

    Args:
        delay: the least and the most that a write takes, if it is not slow.
        slow, slow_delay: that a write is slow, and how much longer it may take then.
        fills, full_for: that the disk is full from a write on, and for how long at most.
        unclear: that a put fails with an error that does not say whether the blob is there.
        made, late, torn: what becomes of a put whose writer dies: it was made; it is made after a while, as by a network
            that still carries it; a blob that is cut off or ends in garbage is left. Otherwise it leaves nothing.
        late_for: how long such a put may take at most.
    """

    delay: tuple[float, float] = (0.0005, 0.005)
    slow: float = 0.05
    slow_delay: float = 0.5
    fills: float = 0.0
    full_for: float = 1.0
    unclear: float = 0.0
    made: float = 0.4
    late: float = 0.1
    torn: float = 0.1
    late_for: float = 1.0


@dataclass(slots=True)
class _Operation:
    """Pending write or deletion.

    `parts` is None for a deletion, `data` what they were when it began; `late` that its writer died.
    """

    ticket: int
    writer: Writer
    name: str
    parts: Sequence[Buffer] | None
    data: bytes
    applied_at: float
    acknowledged_at: float
    unclear: bool = False
    applied: bool = False
    late: bool = False
    error: StoreError | None = None


@dataclass(slots=True)
class _Blob:
    data: memoryview
    acknowledged: bool = False


@dataclass(slots=True)
class DiskCounts:
    """Counts of simulated disk faults.

    A simulation that never meets a fault proves nothing.
    """

    acknowledged: int = 0
    slow: int = 0
    full: int = 0
    unclear: int = 0
    refused: int = 0
    made: int = 0
    late: int = 0
    torn: int = 0
    nothing: int = 0


class SimulatedDisk:
    """Store with asynchronous writes in simulated time.

    The methods of `Store` act at once and never fail by chance. Of one writer the writes finish in the order in which they
    began, as they do in `ThreadedStore`.

    Args:
        random: where all faults are drawn from; equal seeds and equal calls give equal histories.
        clock: the time of the simulation.
    """

    def __init__(self, random: Random, clock: Callable[[], float], faults: DiskFaults | None = None) -> None:
        self.counts = DiskCounts()
        self.faults = faults if faults is not None else DiskFaults()
        self._random = random
        self._clock = clock
        self._blobs: dict[str, _Blob] = {}
        self._waiting: dict[int, _Operation] = {}  # in the order in which they began
        self._done: dict[Writer, list[tuple[str, Exception | None]]] = {}
        self._moments: list[tuple[float, int]] = []  # when something is to be done for a ticket, sorted
        self._tickets = 0
        self.changes: Counter[Writer | None] = Counter()
        """Number of begun and finished operations by writer, to tell crash points apart."""
        self._full_until = 0.0

    # Store

    def put(self, name: str, parts: Sequence[Buffer]) -> None:
        """Write a blob at once. See `Store.put`."""
        self._create(name, _joined(parts)).acknowledged = True

    def get(self, name: str) -> memoryview:
        """All bytes of a blob. See `Store.get`."""
        if name not in self._blobs:
            raise NotThere(name, "the simulated disk")
        return self._blobs[name].data

    def names(self, prefix: str) -> list[str]:
        """Sorted names with the prefix `prefix`."""
        return sorted(name for name in self._blobs if name.startswith(prefix))

    def delete(self, name: str) -> None:
        """Remove a blob at once, if it is there."""
        self._blobs.pop(name, None)

    def size(self, prefix: str = "") -> int:
        """Total bytes of all blobs with the prefix `prefix`."""
        return sum(len(blob.data) for name, blob in self._blobs.items() if name.startswith(prefix))

    # In simulated time

    def begin(self, writer: Writer, name: str, parts: Sequence[Buffer]) -> int:
        """Begin to write a blob; the number of this operation."""
        return self._begin(writer, name, parts, _joined(parts))

    def begin_delete(self, writer: Writer, name: str) -> int:
        """Begin to remove a blob; the number of this operation."""
        return self._begin(writer, name, None, b"")

    def take_done(self, writer: Writer) -> list[tuple[str, Exception | None]]:
        """Finished puts of this writer, in order, with their errors.

        Deletions never fail, and it hears nothing of them.
        """
        return self._done.pop(writer, [])

    def busy(self, writer: Writer) -> bool:
        """True if this writer, alive or dead, has begun something that is not over."""
        return any(operation.writer == writer for operation in self._waiting.values())

    @property
    def full_until(self) -> float:
        """Time of the end of the disk's lack of space."""
        return self._full_until

    def advance(self, now: float) -> None:
        """Carry out all operations due by `now`.

        Raises:
            AssertionError: if somebody changed a buffer while it was being written.
        """
        while self._moments and self._moments[0][0] <= now:
            at, ticket = self._moments.pop(0)
            operation = self._waiting[ticket]
            if not operation.applied:
                self.changes[operation.writer] += 1
                self._apply(operation, at)
                if operation.late:
                    del self._waiting[ticket]
                else:
                    insort(self._moments, (operation.acknowledged_at, ticket))
            else:
                del self._waiting[ticket]
                self._hear(operation)

    def crash(self, writer: Writer) -> None:
        """Crash a writer; its pending operations end as drawn from the seed."""
        # Its writes are made one after the other: behind the first one that is not made now, none is.
        cut = False
        self._done.pop(writer, None)
        for operation in [each for each in self._waiting.values() if each.writer == writer and not each.late]:
            self._moments = [moment for moment in self._moments if moment[1] != operation.ticket]
            if not operation.applied and not cut:
                self._end(operation)
                cut = not operation.applied
            if not operation.late:
                del self._waiting[operation.ticket]

    # Inside

    def _begin(self, writer: Writer, name: str, parts: Sequence[Buffer] | None, data: bytes) -> int:
        faults, draw, now = self.faults, self._random, self._clock()
        takes = draw.uniform(*faults.delay)
        if draw.random() < faults.slow:
            takes += draw.uniform(0, faults.slow_delay)
            self.counts.slow += 1
        if draw.random() < faults.fills:
            self._full_until = max(self._full_until, now + draw.uniform(0, faults.full_for))
        unclear = parts is not None and draw.random() < faults.unclear
        before = [operation.acknowledged_at for operation in self._waiting.values() if operation.writer == writer]
        acknowledged_at = max([now, *before]) + takes
        applied_at = acknowledged_at - draw.uniform(0, takes)
        ticket = self._tickets
        self._tickets += 1
        self.changes[writer] += 1
        self._waiting[ticket] = _Operation(ticket, writer, name, parts, data, applied_at, acknowledged_at, unclear)
        insort(self._moments, (applied_at, ticket))
        return ticket

    def _apply(self, operation: _Operation, at: float) -> None:
        operation.applied = True
        if operation.parts is None:
            self._blobs.pop(operation.name, None)
        elif at < self._full_until:
            operation.error = StoreFull(f"writing {operation.name} failed: the simulated disk is full; make room")
            self.counts.full += 1
        elif operation.unclear and self._random.random() < 0.5:
            pass
        else:
            try:
                self._create(operation.name, operation.data)
            except AlreadyThere as error:
                operation.error = error
                self.counts.refused += 1

    def _hear(self, operation: _Operation) -> None:
        if operation.parts is None:
            return
        assert _joined(operation.parts) == operation.data, f"{operation.name} was changed while it was being written"
        if operation.unclear and operation.error is None:
            operation.error = StoreError(f"writing {operation.name} failed: it may be there or not")
            self.counts.unclear += 1
        elif operation.error is None:
            self.counts.acknowledged += 1
            if operation.name in self._blobs:
                self._blobs[operation.name].acknowledged = True
        self._done.setdefault(operation.writer, []).append((operation.name, operation.error))

    def _end(self, operation: _Operation) -> None:
        """Draw the outcome of a pending operation of a dead writer."""
        faults, now = self.faults, self._clock()
        fate = self._random.random()
        if fate < faults.made:
            self.counts.made += 1
            self._apply(operation, now)
        elif fate < faults.made + faults.late:
            self.counts.late += 1
            operation.late = True
            operation.applied_at = now + self._random.uniform(0, faults.late_for)
            insort(self._moments, (operation.applied_at, operation.ticket))
        elif operation.parts is not None and fate < faults.made + faults.late + faults.torn:
            self._tear(operation)
        else:
            self.counts.nothing += 1

    def _tear(self, operation: _Operation) -> None:
        if operation.name in self._blobs or not operation.data:
            return
        self.counts.torn += 1
        size = len(operation.data)
        kept = self._random.randrange(size)
        lost = size - kept
        tail = self._random.choice((b"", bytes(lost), self._random.randbytes(lost)))
        self._create(operation.name, operation.data[:kept] + tail)

    def _create(self, name: str, data: bytes) -> _Blob:
        if name in self._blobs:
            raise AlreadyThere(name)
        blob = self._blobs[name] = _Blob(aligned(data))
        return blob


def _joined(parts: Sequence[Buffer]) -> bytes:
    return b"".join(as_bytes(part) for part in parts)


def aligned(data: Buffer) -> memoryview:
    """A copy of `data` at an address that columns can use as it is."""
    memory = aligned_memory(len(data))
    memory[:] = data
    return memory.toreadonly()
