"""The exchange of changes: each goes to the worker of its record's key, columns as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from libraries.differential.rows import Rows, of_key, split
from timely.data.batch import Batch
from timely.data.kernels.columns import pooled_take
from timely.data.routing import hash_column, partition_records, workers_of
from timely.operators.channels import Exchange

_SAMPLE = 8


@dataclass(frozen=True, slots=True)
class ByKey(Exchange):
    """Brings changes of equal keys to one worker: of pairs (key, value), and of other records, which are their own keys."""

    def describe(self) -> str:
        return "exchange by key"

    def sample(self, batch: Batch) -> Batch:
        assert isinstance(batch, list)
        return [item.head(_SAMPLE) if type(item) is Rows else item for item in batch[:_SAMPLE]]

    def split(self, batch: Batch, workers: int) -> list[Batch | None]:
        """The part of `batch` for each worker."""
        pairs, columns, _ = split(batch)
        parts = [list(part) for part in partition_records(pairs, _key, workers)]
        for rows in columns:
            owners = workers_of(hash_column(rows.key), workers)
            for worker in range(workers):
                mine = np.flatnonzero(owners == worker)
                if len(mine):
                    parts[worker].append(Rows(*(pooled_take(each, mine) for each in (rows.key, rows.value, rows.diff))))
        return [part or None for part in parts]


BY_KEY = ByKey()


def _key(change: tuple[Any, int]) -> Any:
    return of_key(change[0])[0]
