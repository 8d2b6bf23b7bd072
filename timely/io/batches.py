"""Source of ready batches: frames, tables, or lists of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import polars as pl
import pyarrow as pa

from timely.data.batch import Batch, same_types
from timely.errors import SourceError, at_line
from timely.io.column_types import polars_schema
from timely.io.counting import EpochEvery, count_of
from timely.io.interface import Chunk, End, Partition, Position


class Batches:
    """The batches of a sequence, `per_epoch` of them an epoch (None: one epoch).

    With several workers, batch i goes to worker i mod W, and an epoch is still the same batches. The position is the
    number of batches read.

    >>> import polars as pl
    >>> flow = falkirk.Dataflow()
    >>> days = [pl.DataFrame({"sold": [3]}), pl.DataFrame({"sold": [4, 5]})]
    >>> result = flow.columns("days", falkirk.Batches(days)).to_records().capture("out")
    >>> falkirk.run(flow).captured("out")
    [((0,), [{'sold': 3}]), ((1,), [{'sold': 4}, {'sold': 5}])]
    """

    rereadable: ClassVar[bool] = True
    repeats: ClassVar[bool] = True

    def __init__(self, batches: Sequence[Batch], *, per_epoch: int | None = 1) -> None:
        if not isinstance(batches, Sequence):
            raise SourceError(
                at_line(f"Batches takes a sequence of batches, such as a list, not {type(batches).__name__}")
            )
        self._batches = batches
        self._every = EpochEvery(per_epoch, "per_epoch")
        self.whole_epochs = self._every.n == 1

    def columns_schema(self) -> pl.Schema | None:
        """Common schema of all batches, if they are in a list and agree on it."""
        if not isinstance(self._batches, list | tuple) or not self._batches:
            return None
        first = self._batches[0]
        if isinstance(first, pl.DataFrame):
            names, types = first.columns, first.dtypes
            for each in self._batches:
                if not isinstance(each, pl.DataFrame) or each.columns != names or not same_types(each.dtypes, types):
                    return None
            return first.schema
        if isinstance(first, pa.Table):
            alike = all(isinstance(each, pa.Table) and each.schema.equals(first.schema) for each in self._batches)
            return polars_schema(first.schema) if alike else None
        return None

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """One partition: this worker's share of every epoch."""
        return [BatchesPartition(self._batches, self._every, worker, workers)]


class BatchesPartition:
    """Every `workers`-th batch, from number `worker` on."""

    def __init__(self, batches: Sequence[Batch], every: EpochEvery, worker: int, workers: int) -> None:
        self.name = f"batches-{worker}"
        self._batches = batches
        self._n = every.n
        self._step = workers
        self._first = worker
        self._next = worker
        self.held = isinstance(batches, list | tuple)

    def read(self) -> Chunk | End:
        """Read the next batch."""
        number = self._next
        if number >= len(self._batches):
            return End()
        self._next = after = number + self._step
        if self._n is None:
            return Chunk(0, self._batches[number], after)
        epoch = number // self._n
        return Chunk(epoch, self._batches[number], after, after // self._n > epoch)

    def seek(self, position: Position) -> None:
        """Go to a batch by number."""
        self._next = self._first if position is None else count_of(position, self.name)

    def at_epoch(self, epoch: int) -> Position:
        """Position of the first batch of this share from `epoch` on."""
        first = (epoch > 0) * len(self._batches) if self._n is None else epoch * self._n
        first = min(first, len(self._batches))
        return first + (self._first - first) % self._step

    def ack(self, position: Position) -> None:
        """No-op: the user keeps the batches."""

    def close(self) -> None:
        """No-op: there is nothing to release."""
