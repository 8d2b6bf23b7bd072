"""The placement of regions on Spark: gather and compute on one worker, which has Spark, and read on all."""

from __future__ import annotations

from functools import cache
from itertools import count

from timely.data.routing import shard_of, stable_hash, worker_of_shard

HOME = 0
"""The routing key of the worker that has Spark."""


def home(workers: int) -> int:
    """The worker that has Spark: the same for all regions of a job."""
    return _owner(HOME, workers)


@cache
def keys_of(workers: int) -> tuple[int, ...]:
    """For each worker a routing key that it owns."""
    keys: dict[int, int] = {}
    for key in count():
        keys.setdefault(_owner(key, workers), key)
        if len(keys) == workers:
            return tuple(keys[worker] for worker in range(workers))
    raise AssertionError  # every worker owns some shard


def _owner(key: int, workers: int) -> int:
    return worker_of_shard(shard_of(stable_hash(key)), workers)
