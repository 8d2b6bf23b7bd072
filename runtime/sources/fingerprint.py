"""Fingerprint of an input epoch, to recognise it when it is read again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa

from timely.data.batch import Batch, as_arrow, take
from timely.data.codec import encode
from timely.data.codec.hashing import hash_columns
from timely.errors import CodecError

WHOLE, EVERY = 256, 64
"""Number of first records all sampled, and sampling step after them.

All records are counted.
"""

MANY, SELDOM = 4096, 1024
"""Number of records before sampling slows down to one in `SELDOM`.

Each sampled record is read from memory in no cache.
"""

_THIN = 1 << 32
"""Bit of a fingerprint sampled with the step `SELDOM`.

Earlier versions sampled with the step `EVERY` to the end.
"""


_OF_INPUT = 1 << 33
"""Bit of a fingerprint made from a partition's own checksum."""


def of_input(checksum: int) -> int:
    """Fingerprint of an epoch from its partition's checksum."""
    return checksum & 0xFFFFFFFF | 1 | _OF_INPUT


def is_of_input(fingerprint: int) -> bool:
    """True if a fingerprint was made from a partition's checksum, not from records."""
    return bool(fingerprint & _OF_INPUT)


class _Held(NamedTuple):
    """Columns staying in memory, with the slices of rows to sample."""

    data: Batch
    steps: tuple[slice, ...]


@dataclass(slots=True)
class Content:
    """Fingerprint of an epoch's content, independent of its division into chunks.

    Records are only sampled while they are read, and hashed on demand, once a checkpoint. Where the partition has a
    checksum of its own they are only counted.
    """

    rows: int = 0
    picked: list[Batch | _Held] = field(default_factory=list)
    """Samples: copies of rows, or whole columns if they stay in memory anyway.

    A slice of a batch would keep all of it in memory.
    """
    thin: bool = True

    @classmethod
    def like(cls, fingerprint: int) -> Content:
        """Content for comparison with a fingerprint, perhaps of an earlier version."""
        return cls(thin=bool(fingerprint & _THIN))

    @property
    def counted(self) -> bool:
        """True if there are records, and none was sampled."""
        return self.rows > 0 and not self.picked

    def add(self, data: Batch, held: bool = False) -> None:
        """Add the next chunk.

        `held`: its columns stay in memory as they are.
        """
        steps = self._steps(len(data))
        picked = _Held(data, steps) if held and not isinstance(data, list) else _picked(data, steps)
        self.rows += len(data)
        if any(at.start < at.stop for at in steps):
            self.picked.append(picked)

    def _steps(self, records: int) -> tuple[slice, ...]:
        """Slices of the next chunk to sample."""
        whole = min(max(0, WHOLE - self.rows), records)
        often = min(max(0, MANY - self.rows), records) if self.thin else records
        rest, seldom = (at + -(self.rows + at) % step for at, step in ((whole, EVERY), (often, SELDOM)))
        return slice(0, whole, 1), slice(rest, max(rest, often), EVERY), slice(seldom, max(seldom, records), SELDOM)

    def fingerprint(self) -> int:
        """Checksum of the samples and the record count; 0 if nothing was read."""
        if not self.rows:
            return 0
        number = crc32(encode(self.rows))
        try:
            found = number
            for each in self.picked:
                found = _crc(_picked(*each) if isinstance(each, _Held) else each, found)
        except CodecError:  # records that stay in this process may be of any type
            found = number
        return found | 1 | _THIN * self.thin


def _picked(data: Batch, steps: tuple[slice, ...]) -> Batch:
    """Sampled records of a chunk."""
    if isinstance(data, list):
        return [record for step in steps for record in data[step]]
    return _plain(take(data, np.concatenate([np.arange(at.start, at.stop, at.step) for at in steps])))


def _plain(batch: Batch) -> Batch:
    """Decode dictionary columns of a few rows, to release the dictionaries."""
    if isinstance(batch, pa.Table):
        for place, name in enumerate(batch.column_names):
            if pa.types.is_dictionary(batch.schema.field(place).type):
                chunks = [chunk.dictionary_decode() for chunk in batch.column(place).chunks]
                if chunks:
                    batch = batch.set_column(place, name, pa.chunked_array(chunks))
    return batch


def _crc(batch: Batch, before: int) -> int:
    """Checksum of records in order, continuing from `before`, whatever their batches."""
    if isinstance(batch, list):
        return _crc_of_records(batch, before)
    table = as_arrow(batch)
    try:
        return crc32(hash_columns([table[name] for name in table.column_names]).tobytes(), before)
    except CodecError:  # columns that cannot be keys, such as lists
        return _crc_of_records(table.to_pylist(), before)


def _crc_of_records(records: list[Any], before: int) -> int:
    for record in records:
        before = crc32(encode(record), before)
    return before
