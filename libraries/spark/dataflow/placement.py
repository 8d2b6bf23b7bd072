"""Placement of regions on Spark: gather and compute on one worker, read on all.

The one worker has Spark.
"""

from __future__ import annotations

from functools import cache
from itertools import count

from timely.data.routing import shard_of, stable_hash, worker_of_shard

HOME = 0
"""Routing key of the worker with Spark."""


def home(workers: int) -> int:
    """Worker with Spark: the same for all regions of a job."""
    return _owner(HOME, workers)


@cache
def keys_of(workers: int) -> tuple[int, ...]:
    """A routing key owned by each worker, in the order of workers."""
    keys: dict[int, int] = {}
    for key in count():
        keys.setdefault(_owner(key, workers), key)
        if len(keys) == workers:
            return tuple(keys[worker] for worker in range(workers))
    raise AssertionError  # every worker owns some shard


def _owner(key: int, workers: int) -> int:
    return worker_of_shard(shard_of(stable_hash(key)), workers)
