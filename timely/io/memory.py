"""Sinks into memory and into a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import polars as pl
import pyarrow as pa

from timely.data.batch import Batch, as_arrow
from timely.errors import SinkError
from timely.io.arguments import function


class PendingEpochs:
    """Buffer of uncommitted batches by epoch."""

    def __init__(self) -> None:
        self._batches: dict[int, list[Batch]] = {}

    def add(self, epoch: int, batch: Batch) -> None:
        """Add a batch of `epoch`."""
        self._batches.setdefault(epoch, []).append(batch)

    def take(self, epoch: int) -> list[Batch]:
        """Remove and return the batches of `epoch`."""
        return self._batches.pop(epoch, [])

    def clear(self) -> None:
        """Discard all batches."""
        self._batches.clear()


def rows_of(batch: Batch) -> list[Any]:
    """The records, or the rows as dicts."""
    if isinstance(batch, list):
        return batch
    rows: list[Any] = batch.to_dicts() if isinstance(batch, pl.DataFrame) else batch.to_pylist()
    return rows


class Memory:
    """Keeps committed output in memory, for tests and small results.

    Exactly once, as long as this object lives: a commit replaces what the same worker committed for the epoch
    before. It holds what one job has written, the last one, and dies with the process.

    >>> kept = falkirk.Memory()
    >>> flow = falkirk.Dataflow()
    >>> flow.source("items", falkirk.Iterable([1, 2, 3], epoch_every=2)).to(kept)
    >>> result = falkirk.run(flow)
    >>> kept.records()
    [1, 2, 3]
    """

    exactly_once: ClassVar[bool] = True
    outlives: ClassVar[bool] = False

    def __init__(self) -> None:
        self._committed: dict[tuple[int, int], list[Batch]] = {}
        self._job = ""

    def for_job(self, job: str, name: str) -> Memory:
        """This object, cleared of another job's output."""
        if job != self._job:
            self._job = job
            self._committed.clear()
        return self

    def open(self, worker: int, workers: int) -> MemoryWriter:
        """Writer into this object, for workers in this process only."""
        return MemoryWriter(self._committed, worker)

    @property
    def epochs(self) -> list[int]:
        """Committed epochs, ascending."""
        return sorted({epoch for epoch, _ in self._committed})

    @property
    def batches(self) -> list[tuple[int, Batch]]:
        """(epoch, batch) for every batch, by epoch, then worker, then order of writing."""
        return [(key[0], batch) for key in sorted(self._committed) for batch in self._committed[key]]

    def records(self, epoch: int | None = None) -> list[Any]:
        """All records, or rows as dicts, in the order of `batches`.

        Only those of `epoch` if it is given.
        """
        return [row for e, batch in self.batches if epoch in (None, e) for row in rows_of(batch)]

    def table(self) -> pa.Table:
        """All output as one Arrow table.

        Raises SinkError if the output is records.
        """
        try:
            return pa.concat_tables([as_arrow(batch) for _, batch in self.batches], promote_options="default")
        except TypeError as error:
            raise SinkError(f"Memory: {error}. Use records() for output that is not columns.") from error


class MemoryWriter:
    """One worker's writer into a `Memory`."""

    def __init__(self, committed: dict[tuple[int, int], list[Batch]], worker: int) -> None:
        self._committed = committed
        self._worker = worker
        self._pending = PendingEpochs()

    def write(self, epoch: int, batch: Batch) -> None:
        """Buffer the batch until its epoch is committed."""
        self._pending.add(epoch, batch)

    def commit(self, epoch: int) -> None:
        """Publish the epoch's batches."""
        self._committed[epoch, self._worker] = self._pending.take(epoch)

    def abort(self) -> None:
        """Discard uncommitted batches."""
        self._pending.clear()

    def close(self) -> None:
        """Discard uncommitted batches."""
        self._pending.clear()


class Callback:
    """Calls `fn(epoch, batch)` for every batch of a completed epoch.

    Each worker in its own process.

    Not exactly once: after a failure, epochs that were handed over before are handed over again. A function
    that keys what it does by epoch and worker makes it so.

    >>> flow = falkirk.Dataflow()
    >>> flow.source("items", falkirk.Iterable([1, 2])).to(falkirk.Callback(lambda epoch, batch: print(epoch, batch)))
    >>> result = falkirk.run(flow)
    0 [1, 2]
    """

    exactly_once: ClassVar[bool] = False

    def __init__(self, fn: Callable[[int, Batch], object]) -> None:
        self._fn = function(fn, "Callback", SinkError)

    def open(self, worker: int, workers: int) -> CallbackWriter:
        """Writer for this worker, calling the function."""
        return CallbackWriter(self._fn)


class CallbackWriter:
    """One worker's calls of a function."""

    def __init__(self, fn: Callable[[int, Batch], object]) -> None:
        self._fn = fn
        self._pending = PendingEpochs()

    def write(self, epoch: int, batch: Batch) -> None:
        """Buffer the batch until its epoch is complete."""
        self._pending.add(epoch, batch)

    def commit(self, epoch: int) -> None:
        """Call the function.

        Raises SinkError, with its error as the cause, if it raises.
        """
        for batch in self._pending.take(epoch):
            try:
                self._fn(epoch, batch)
            except Exception as error:
                code = getattr(self._fn, "__code__", None)
                where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
                raise SinkError(
                    f"Callback: {getattr(self._fn, '__name__', self._fn)}{where} raised "
                    f"{type(error).__name__} at epoch {epoch}: {error}. Correct the function; it will be "
                    "called again for this epoch."
                ) from error

    def abort(self) -> None:
        """Discard batches not handed over."""
        self._pending.clear()

    def close(self) -> None:
        """Discard batches not handed over."""
        self._pending.clear()
