"""Channels of edges: batches stay, go to the worker of their key, or go to all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from timely.data.batch import Batch, columns_of, head, is_columns
from timely.data.routing import partition_columns, partition_records, shard_of, stable_hash, worker_of_shard

_SAMPLE = 8

_PLAIN = frozenset(
    {pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64}
    | {pl.Float32, pl.Float64, pl.Boolean, pl.String}
)
"""Types of columns always fit to travel and to be keys."""


def _is_plain(batch: Batch) -> bool:
    return isinstance(batch, pl.DataFrame) and all(type(kind) in _PLAIN for kind in batch.dtypes)


@dataclass(frozen=True, slots=True)
class Channel:
    """Channel of a plain edge: batches stay on their worker."""

    def describe(self) -> str:
        """Name of the channel in the graph's fingerprint and drawings."""
        return "pipeline"

    def sample(self, batch: Batch) -> Batch:
        """First records or rows of `batch`, for a trial of routing and encoding."""
        return head(batch, _SAMPLE)

    def surely_carries(self, batch: Batch) -> bool:
        """True if the types of `batch` prove it encodable and routable. In doubt, False."""
        return _is_plain(batch)


PIPELINE = Channel()


@dataclass(frozen=True, slots=True)
class Broadcast(Channel):
    """Every batch goes to every worker.

    >>> falkirk.Broadcast().describe()
    'broadcast'
    """

    def describe(self) -> str:
        return "broadcast"


@dataclass(frozen=True, slots=True)
class Exchange(Channel):
    """Sends each record to the worker with its key's shard.

    Give `key` for records (None: the first field of a pair), `columns` for columns. `prepare` brings a batch into the
    form that the key applies to; `combine` aggregates a batch before it travels. Both run only where there are several
    workers, and then on every batch: what stays on its worker is combined as well. `within_time` says that who receives it
    keeps nothing from one time to the next: where all of a time is on one worker already, nothing is sent
    (`timely.dataflow.local_exchanges`).

    >>> class Seen(falkirk.Operator):
    ...     # The words that this worker owns: equal words meet at one worker.
    ...     def on_batch(self, ctx, port, time, batch):
    ...         ctx.send(sorted(batch))
    >>> flow = falkirk.Dataflow()
    >>> words = flow.source("words", falkirk.Iterable(["b", "a"]))
    >>> seen = words.unary("seen", Seen, falkirk.Exchange(key=lambda word: word), stateful=False).capture("out")
    >>> falkirk.run(flow).captured("out")
    [((0,), ['a', 'b'])]
    """

    key: Callable[[Any], Any] | None = None
    columns: tuple[str, ...] = ()
    prepare: Callable[[Batch], Batch] | None = None
    combine: Callable[[Batch], Batch] | None = None
    within_time: bool = False

    def describe(self) -> str:
        return f"exchange by {', '.join(self.columns)}" if self.columns else "exchange"

    def split(self, batch: Batch, workers: int) -> list[Batch | None]:
        """Parts of `batch`, one for each worker."""
        if self.prepare is not None:
            batch = self.prepare(batch)
        if self.combine is not None:
            batch = self.combine(batch)
        return self.route(batch, workers)

    def route(self, batch: Batch, workers: int) -> list[Batch | None]:
        """Parts of a prepared and combined batch, one for each worker."""
        if not is_columns(batch):
            assert isinstance(batch, list)
            return list(partition_records(batch, self.key, workers))
        if not self.columns:
            raise TypeError(
                "columns reached an exchange by record key; use to_records() before key_by or exchange(by=function), "
                "or exchange(by=column)"
            )
        return list(partition_columns(batch, list(self.columns), workers))

    def surely_carries(self, batch: Batch) -> bool:
        """See `Channel`."""
        if not isinstance(batch, pl.DataFrame) or not self.columns or self.prepare not in (None, columns_of):
            return False
        return {*self.columns} <= {*batch.columns} and _is_plain(batch)


@dataclass(frozen=True, slots=True)
class Gather(Exchange):
    """Sends every batch to one worker: the owner of the shard of `name`.

    Batches are of records or columns.
    """

    name: str = ""

    def describe(self) -> str:
        return "gather"

    def split(self, batch: Batch, workers: int) -> list[Batch | None]:
        """Parts of `batch`: all of it for one worker, None for the others."""
        return self.route(batch, workers)

    def route(self, batch: Batch, workers: int) -> list[Batch | None]:
        """See `split`."""
        parts: list[Batch | None] = [None] * workers
        parts[worker_of_shard(shard_of(stable_hash(self.name)), workers)] = batch
        return parts
