"""Exchange of changes by the key of their records; columns stay columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from libraries.differential import packing  # noqa: F401 - it says how rows are carried
from libraries.differential.rows import (
    I64,
    NOTHING,
    Rows,
    Tuples,
    constant,
    is_constant,
    of_key,
    range_of,
    split,
    summed,
)
from timely.data.batch import Batch
from timely.data.kernels.columns import pooled_take
from timely.data.routing import hash_column, partition_records, workers_of
from timely.operators.channels import Exchange

_SAMPLE = 8

_MANY = 4096
"""Least number of rows for a search for duplicates."""

_PART = 1 << 15
"""Rows hashed to workers at once."""


@dataclass(frozen=True, slots=True)
class ByKey(Exchange):
    """Exchange of changes by key.

    The key of a pair (key, value) is its first part; any other record is its own key.
    """

    def describe(self) -> str:
        return "exchange by key"

    def sample(self, batch: Batch) -> Batch:
        assert isinstance(batch, list)
        return [item.head(_SAMPLE) if type(item) is Rows else item for item in batch[:_SAMPLE]]

    def split(self, batch: Batch, workers: int) -> list[Batch | None]:
        """The part of `batch` for each worker."""
        pairs, columns, _ = split(batch)
        parts = [list(part) for part in partition_records(pairs, _key, workers)]
        for rows in map(_thinned, columns):
            owners = _owners(rows.key, workers)
            for worker in range(workers):
                mine = np.flatnonzero(owners == worker)
                if len(mine) == len(rows):
                    parts[worker].append(rows)
                elif len(mine):
                    parts[worker].append(Rows(*(_taken(each, mine) for each in (rows.key, rows.value, rows.diff))))
        return [part or None for part in parts]


BY_KEY = ByKey()


@dataclass(frozen=True, slots=True)
class ByPlace(Exchange):
    """Exchange of tuples by the value in one place."""

    place: int = 0

    def describe(self) -> str:
        return f"exchange by place {self.place}"

    def sample(self, batch: Batch) -> Batch:
        assert isinstance(batch, list)
        return [item.head(_SAMPLE) if type(item) is Tuples else item for item in batch[:_SAMPLE]]

    def split(self, batch: Batch, workers: int) -> list[Batch | None]:
        """The part of `batch` for each worker."""
        records = [item for item in batch if type(item) is not Tuples]
        parts = [list(part) for part in partition_records(records, self._key, workers)]
        for each in batch:
            if type(each) is Tuples:
                owners = _owners(each.columns[self.place], workers)
                for worker, part in enumerate(parts):
                    mine = np.flatnonzero(owners == worker)
                    if len(mine):
                        part.append(
                            Tuples(tuple(_taken(column, mine) for column in each.columns), _taken(each.diff, mine))
                        )
        return [part or None for part in parts]

    def _key(self, change: tuple[Any, int]) -> Any:
        return change[0][self.place]


def _thinned(rows: Rows) -> Rows:
    """Rows, consolidated if most of them are duplicates of bare keys."""
    if len(rows) < _MANY or not is_constant(rows.value) or rows.value[0] != NOTHING:
        return rows
    low, high = range_of(rows.key)
    if 2 * (high - low) > len(rows):
        return rows
    (key,), diff = summed([rows.key], rows.diff)
    return Rows(key, constant(NOTHING, len(key)), diff)


def _owners(key: I64, workers: int) -> npt.NDArray[Any]:
    """Worker of each key, computed in parts that fit the processor's cache."""
    owners = [workers_of(hash_column(key[at : at + _PART]), workers) for at in range(0, max(1, len(key)), _PART)]
    return owners[0] if len(owners) == 1 else np.concatenate(owners)


def _taken(column: I64, rows: npt.NDArray[np.intp]) -> I64:
    return constant(int(column[0]), len(rows)) if is_constant(column) else pooled_take(column, rows)


def _key(change: tuple[Any, int]) -> Any:
    return of_key(change[0])[0]
