"""By what an epoch of input is known again when it is read once more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from timely.data.batch import Batch, as_arrow, take
from timely.data.codec import encode
from timely.data.codec.hashing import hash_columns
from timely.errors import CodecError

WHOLE, EVERY = 256, 64
"""Of an epoch's records so many are looked at whole, and of what comes after them one of so many. All are counted."""

_NUMBERS = np.arange(WHOLE)


@dataclass(slots=True)
class Content:
    """The fingerprint of an epoch's content. It does not depend on the chunks in which that is read.

    While it is read, records are only picked out; they are hashed when somebody asks, which is once a checkpoint.
    """

    rows: int = 0
    picked: list[Batch] = field(default_factory=list)
    """Copies of columns: a part of a batch would keep all of it in memory."""

    def add(self, data: Batch) -> None:
        """The next chunk."""
        whole = min(max(0, WHOLE - self.rows), len(data))
        rest = whole + -(self.rows + whole) % EVERY
        if isinstance(data, list):
            picked: Batch = data[:whole] + data[rest::EVERY]
        else:
            numbers = _NUMBERS[:whole]
            if rest < len(data):
                numbers = np.concatenate((numbers, np.arange(rest, len(data), EVERY)))
            picked = take(data, numbers)
        self.rows += len(data)
        if len(picked):
            self.picked.append(picked)

    def fingerprint(self) -> int:
        """A number that other content is very unlikely to have; 0 where nothing was read."""
        if not self.rows:
            return 0
        number = crc32(encode(self.rows))
        try:
            found = number
            for batch in self.picked:
                found = _crc(batch, found)
        except CodecError:  # records that stay in this process may be of any type
            found = number
        return found | 1


def _crc(batch: Batch, before: int) -> int:
    """The records one after the other, however many a batch has."""
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
