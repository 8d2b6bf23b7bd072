"""Division of state among another number of workers, by key.

A run of records says the shard of each; a run of columns is divided by the columns of the exchange in front of its
operator, whatever else the state is kept by. What is not where its key belongs is refused, and never moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from timely.data.batch import Batch, Columns, is_columns
from timely.data.routing import worker_of_shard
from timely.errors import OperatorError
from timely.state.interface import Run

S = TypeVar("S")

Split = Callable[[Columns, int], list[Columns | None]]
"""Division of columns among so many workers, as by an exchange."""


@runtime_checkable
class Mergeable(Protocol):
    """State without keys, merged and divided by its own rules."""

    def merge(self, former: list[list[Run]], worker: int, workers: int) -> Iterable[Run]:
        """Runs of a new worker, made of the runs of all former workers in order.

        The runs of all new workers together must say what the former ones did.
        """


@runtime_checkable
class Divisible(Protocol):
    """State by key with runs divided by its own rules."""

    def divided(self, run: Run, former: Division) -> list[Run | None]:
        """Parts of a run of a former worker, one for each new worker.

        Raises OperatorError for what is not where its key belongs.
        """


def everywhere(state: S) -> S:
    """Mark a state as equal on all workers at complete times; returns it."""
    state.everywhere = True  # type: ignore[attr-defined]
    return state


def is_everywhere(state: object) -> bool:
    """True if a state is equal on all workers at complete times."""
    return bool(getattr(state, "everywhere", False))


@dataclass(frozen=True, slots=True)
class Division:
    """Division of the state of an operator of one former worker.

    It is worker `index` of `former`, divided among `workers`.

    `split` divides columns; None where none of its exchanges goes by columns.
    """

    index: int
    former: int
    workers: int
    split: Split | None

    def of(self, state: object, run: Run) -> list[Run | None]:
        """Parts of a run of `state`, one for each new worker.

        Raises OperatorError for what is not where its key belongs.
        """
        if isinstance(state, Divisible):
            return state.divided(run, self)
        return [None if part is None else with_batch(run, part) for part in self.batch(run.batch)]

    def batch(self, batch: Batch) -> list[Batch | None]:
        """Parts of a batch of records with shards, or of columns."""
        if is_columns(batch):
            return cast("list[Batch | None]", self.columns(cast("Columns", batch)))
        assert isinstance(batch, list)
        parts: list[list[Any]] = [[] for _ in range(self.workers)]
        for record in batch:
            shard = record[0]
            if worker_of_shard(shard, self.former) != self.index:
                raise OperatorError(f"it keeps a key of shard {shard} on worker {self.index}, which does not own that")
            parts[worker_of_shard(shard, self.workers)].append(record)
        return [part or None for part in parts]

    def columns(self, batch: Columns) -> list[Columns | None]:
        """Parts of columns, one for each new worker."""
        if self.split is None:
            raise OperatorError("it keeps columns, and no exchange in front of it goes by columns")
        where = self.split(batch, self.former)
        if any(part is not None and len(part) for worker, part in enumerate(where) if worker != self.index):
            raise OperatorError(f"it keeps rows on worker {self.index} that its exchange sends elsewhere")
        return self.split(batch, self.workers)


def with_batch(run: Run, batch: Batch) -> Run:
    """The same run with another batch."""
    return Run(run.time, batch, run.part, run.slot, run.gone)


def in_order(runs: Iterable[Run]) -> Iterator[Run]:
    """Runs in order of time; those of one time in the order given."""
    yield from sorted(runs, key=lambda run: run.time)
