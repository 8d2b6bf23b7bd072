"""Reading partitions to their end, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from timely.io.interface import Chunk, End, Partition, Source, Wait


def chunks(partition: Partition) -> list[Chunk]:
    """Everything up to the end; epochs never fall and nothing follows a closed epoch."""
    found: list[Chunk] = []
    while not isinstance(result := partition.read(), End):
        if isinstance(result, Chunk):
            if found:
                assert result.epoch >= found[-1].epoch
                assert result.epoch > found[-1].epoch or not found[-1].closes
            found.append(result)
        else:
            assert isinstance(result, Wait)
    return found


def rows(data: Any) -> list[Any]:
    if data is None:
        return []
    return data.to_pylist() if isinstance(data, pa.Table) else list(data)


def comparable(found: Sequence[Chunk]) -> list[tuple[int, list[Any], Any, bool]]:
    return [(c.epoch, rows(c.data), c.position, c.closes) for c in found]


def read_all(source: Source, workers: int = 1) -> list[tuple[int, Any]]:
    """(epoch, row) of all partitions of all workers."""
    found = []
    for worker in range(workers):
        for partition in source.partitions(worker, workers):
            found += [(c.epoch, row) for c in chunks(partition) for row in rows(c.data)]
            partition.close()
    return found


def check_seek_anywhere(source: Source, workers: int = 1) -> None:
    """From every position, a fresh partition and the used one both read exactly what followed."""
    for worker in range(workers):
        for number, partition in enumerate(source.partitions(worker, workers)):
            whole = chunks(partition)
            expected = comparable(whole)
            for i, position in enumerate([None, *(c.position for c in whole)]):
                fresh = source.partitions(worker, workers)[number]
                assert fresh.name == partition.name
                for one in (fresh, partition):
                    one.seek(position)
                    assert comparable(chunks(one)) == expected[i:]
                fresh.close()
            partition.close()
