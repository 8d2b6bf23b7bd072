"""State of aggregates that count the different values of keys which are given up: values are there as long as their keys."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from timely.data.kernels.added import Added
from timely.data.kernels.grouping import union
from timely.data.kernels.parts import Part
from timely.data.kernels.tables import distinct
from timely.state.expiring import ExpiringTotals
from timely.time import Time

_THERE = "there()"


class ValuesOfKeys(ExpiringTotals):
    """The different values of each key. The columns are those of the key, and last the value."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._present = Part("values", _THERE)
        super().__init__(columns, [self._present, Part("max", _THERE)], _THERE)

    def new(self, time: Time, many: Sequence[list[pa.Array]]) -> list[pa.Array]:
        """Those of some keys and values that were not there, each once, which now are.

        Raises:
            ValueError: if something was written at a later time before.
            TypeError: if a column changes to another type.
        """
        index = self.totals.index
        keys = distinct(np.concatenate([index.leading(columns[:-1]) for columns in many]))
        held, _ = self.alike(keys)
        rows = [
            Added(columns, [pa.int64()] * 2, [np.ones(len(columns[0]), np.int64)] * 2, [None] * 2) for columns in many
        ]
        come = self.add(time, rows, lambda before, after: before[self._present] == 0)
        self.relate(keys, union([held, come.ids], len(self.totals)))
        return index.keys(come.ids)

    def give_up(self, time: Time, keys: list[pa.Array]) -> None:
        """Forget all values of these keys.

        Raises:
            ValueError: if something was written at a later time before.
        """
        leading = distinct(self.totals.index.leading(keys))
        held, _ = self.alike(leading)
        self.remove(time, held)
        self.relate(leading, held[:0])
