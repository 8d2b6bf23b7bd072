"""Routing of keys to workers, by stable 64-bit hash and one of 1,024 shards.

State is kept by shard, so that another number of workers moves whole shards. The hash itself is
`timely.data.codec.hashing`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import compress, pairwise
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from timely.data.batch import Batch, Columns
from timely.data.codec.hashing import MIXING, Hashes, hash_column, hash_columns, stable_hash
from timely.data.kernels.columns import PLAIN, column_of, numbers, pooled_empty, take_rows, whole
from timely.data.kernels.tables import Ids, compiled_loops, read_only
from timely.errors import CodecError

__all__ = [
    "SHARDS",
    "hash_column",
    "hash_columns",
    "partition",
    "partition_columns",
    "partition_records",
    "shard_of",
    "shards_of",
    "stable_hash",
    "worker_of_shard",
    "workers_of",
]

SHARDS = 1024
"""Number of shards; fixed for the life of a store."""

KeyFunction: TypeAlias = Callable[[Any], Any]

_SHARD_SHIFT = 64 - 10


def shard_of(hash_: int) -> int:
    """Shard of a hash: its upper ten bits."""
    return hash_ >> _SHARD_SHIFT


def shards_of(hashes: Hashes) -> npt.NDArray[np.uint16]:
    """Shard of every hash."""
    return (hashes >> np.uint64(_SHARD_SHIFT)).astype(np.uint16)


def worker_of_shard(shard: int, workers: int) -> int:
    """Owner of a shard; workers own contiguous ranges of nearly equal size."""
    return shard * workers // SHARDS


class _ShardCache(dict[Any, int]):
    """Cache of the shards of recent keys, one for all key types."""

    LIMIT = 1 << 16

    def __missing__(self, key: Hashable) -> int:
        if len(self) >= self.LIMIT:
            self.clear()
        shard = self[key] = stable_hash(key) >> _SHARD_SHIFT
        return shard


_shards = _ShardCache()
_VECTORISED = 64  # Keys from which on NumPy is quicker than the cache, for integers.


def partition(batch: Batch, key: KeyFunction | str | Sequence[str] | None, workers: int) -> list[Batch | None]:
    """Split a batch by the owners of its keys.

    See `partition_records` and `partition_columns`.
    """
    if isinstance(batch, list):
        if key is not None and not callable(key):
            raise CodecError(f"records are routed by a function of the record, not by column names ({key!r})")
        return [part or None for part in partition_records(batch, key, workers)]
    if key is None or callable(key):
        raise CodecError("columns are routed by column names: exchange(by='name')")
    return cast(list[Batch | None], partition_columns(batch, [key] if isinstance(key, str) else list(key), workers))


def partition_records(records: list[Any], key: KeyFunction | None, workers: int) -> list[list[Any]]:
    """Split records among workers by key, in order: one list for each worker.

    A list may be empty.

    Args:
        key: gives the key of a record; None for `record[0]`.

    Raises:
        CodecError: if a key cannot be hashed.
    """
    if workers == 1:
        return [records]
    parts: list[list[Any]]
    if len(records) == 1:
        record = records[0]
        parts = [[] for _ in range(workers)]
        only = record[0] if key is None else key(record)
        parts[_shard(only) * workers // SHARDS] = records
        return parts
    keys = [record[0] for record in records] if key is None else [key(record) for record in records]
    owners = _owners(keys, workers)
    if workers <= 4 and len(records) > 16:
        return [list(compress(records, owners.translate(_IS[worker]))) for worker in range(workers)]
    parts = [[] for _ in range(workers)]
    for owner, record in zip(owners, records):
        parts[owner].append(record)
    return parts


_IS = [bytes(int(byte == worker) for byte in range(256)) for worker in range(4)]


def _shard(key: Any) -> int:
    try:
        return _shards[key]
    except TypeError:  # Not hashable in Python: `stable_hash` knows better why, or can do it all the same.
        return stable_hash(key) >> _SHARD_SHIFT


def _owners(keys: list[Any], workers: int) -> Any:
    """Worker of each key, as bytes for up to 256 workers."""
    hashes: Hashes | None = None
    if len(keys) >= _VECTORISED and type(keys[0]) is int and set(map(type, keys)) == {int}:
        try:
            hashes = hash_column(np.array(keys, np.int64))
        except OverflowError:
            hashes = None
    if hashes is not None:
        owners = workers_of(hashes, workers)
        return owners.tobytes() if workers <= 256 else owners
    try:
        shards, owner = _shards, _owner_tables(workers)
        found = [owner[shards[key]] for key in keys]
        return bytes(found) if workers <= 256 else found
    except TypeError:
        return [_shard(key) * workers // SHARDS for key in keys]


_tables: dict[int, list[int]] = {}


def _owner_tables(workers: int) -> list[int]:
    table = _tables.get(workers)
    if table is None:
        table = _tables[workers] = [worker_of_shard(shard, workers) for shard in range(SHARDS)]
    return table


def workers_of(hashes: Hashes, workers: int) -> npt.NDArray[Any]:
    """Worker of every hash: the owner of its shard."""
    shards = hashes >> np.uint64(_SHARD_SHIFT)
    shards *= np.uint64(workers)
    shards >>= np.uint64(10)
    return shards.astype(np.uint8 if workers <= 256 else np.uint16)


def _by_owner(owners: npt.NDArray[Any], workers: int) -> tuple[Ids, Ids]:
    """Row numbers sorted by owner, and the end of each worker's part."""
    if len(owners) < _MANY or workers > _FEW:
        return np.argsort(owners, kind="stable"), np.cumsum(np.bincount(owners, minlength=workers))
    order, ends = pooled_empty(len(owners) + 1, np.intp), np.empty(workers, np.intp)
    compiled_loops().order_by_owner(read_only(owners), order, ends)
    return order[:-1], ends


_MANY = 8192
"""Least rows for a compiled loop; the first one loads Numba."""

_FEW = 8
"""Most workers for one pass each instead of a sort."""


def partition_columns(columns: Columns, keys: Sequence[str], workers: int) -> list[Columns | None]:
    """Split columns among workers by key, in order; None for an empty part.

    Args:
        keys: the key columns. One: the key is its value. Several: the key is the tuple of their values.

    Raises:
        CodecError: if a key column is missing, or of a type that cannot be a key.
    """
    if not len(columns):
        return [None] * workers
    if workers == 1:
        return [columns]
    names = columns.columns if isinstance(columns, pl.DataFrame) else columns.column_names
    missing = [key for key in keys if key not in names]
    if missing:
        raise CodecError(f"there is no key column {missing[0]!r}; the columns are {list(names)}")
    if isinstance(columns, pa.Table) and len(columns) >= _MANY and len(keys) == 1 and workers <= _FEW:
        parts = _divide_words(columns, keys[0], workers)
        if parts is not None:
            return parts
    for key in keys:
        kind = columns.schema.field(key).type if isinstance(columns, pa.Table) else None
        if kind is not None and (pa.types.is_interval(kind) or pa.types.is_nested(kind)):
            raise CodecError(
                f"column {key!r} of type {kind} cannot be a key; use numbers, text, bytes, dates, or several such columns"
            )
    owners = workers_of(hash_columns([columns[key] for key in keys]), workers)
    order, ends = _by_owner(owners, workers)
    if len(busy := np.flatnonzero(np.diff(ends, prepend=0))) == 1:
        return [columns if worker == busy[0] else None for worker in range(workers)]
    return _parts(columns[order] if isinstance(columns, pl.DataFrame) else take_rows(columns, order), ends)


def _parts(gathered: Columns, ends: Ids) -> list[Columns | None]:
    """Adjacent row ranges of each worker."""
    begins = [0, *ends.tolist()]
    return [gathered.slice(begin, end - begin) if begin < end else None for begin, end in pairwise(begins)]


def _divide_words(table: pa.Table, key: str, workers: int) -> list[Columns | None] | None:
    """Partition of plain 64-bit columns by an integer key; None for others.

    No order of rows is made.
    """
    columns = [whole(column) for column in table.columns]
    plain = all(column.type.id in PLAIN and not column.null_count for column in columns)
    if not plain or not pa.types.is_integer(table.schema.field(key).type):
        return None
    owners = owners_of_integers(numbers(columns[table.column_names.index(key)]), workers)
    if owners is None:
        return None
    counts, loops = np.empty(workers, np.intp), compiled_loops()
    loops.count_owners(owners, counts)
    ends = np.cumsum(counts)
    divided = []
    for column in columns:
        words, out = read_only(numbers(column).view(np.int64)), pooled_empty(len(owners), np.int64)
        if workers == 2:
            loops.divide_in_two(owners, ends[0], words, out)
        else:
            loops.divide_words(owners, ends - counts, words, out)
        divided.append(column_of(out.view(PLAIN[column.type.id]), column.type))
    return _parts(pa.Table.from_arrays(divided, table.column_names), ends)


def owners_of_integers(values: npt.NDArray[np.int64], workers: int) -> npt.NDArray[np.uint8] | None:
    """Worker of each integer key, in one pass; None if a key is out of range."""
    owners = np.empty(len(values), np.uint8)
    prime, *mixes = MIXING
    found = compiled_loops().owners_of_integers(
        read_only(values), np.int64(prime), *map(np.uint64, mixes), np.uint64(workers), owners
    )
    return read_only(owners) if found else None
