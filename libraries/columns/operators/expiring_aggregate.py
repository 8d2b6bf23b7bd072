"""Running totals of keys with a time to live by event time.

A key is forgotten when the watermark (`timely.operators.watermark`) passes its last event time. Rows before the watermark do
not come here: so what a key had is forgotten before or after all of its rows of an epoch, never between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from libraries.columns import agg
from libraries.columns.agg import Aggregate
from libraries.columns.kernels.added import Added
from libraries.columns.kernels.parts import Part
from libraries.columns.operators.aggregate import REFUSALS, Grouping, forget_values, refused
from libraries.columns.operators.reading import VALUE
from libraries.columns.operators.windows import AT
from libraries.columns.state import ExpiringTotals, ValuesOfKeys
from timely.data.batch import Batch, as_polars
from timely.data.kernels.columns import Numbers
from timely.operators.base import Context
from timely.state import Parts, TimedValues
from timely.time import Time

_LAST = "last()"
"""Name of the aggregate with the last event time of a key."""

_MARK = "watermark"
_VALUES = Part("values", AT)


def with_last(aggregates: Mapping[str, Aggregate]) -> dict[str, Aggregate]:
    """Aggregates plus the last event time, left out of results."""
    return {**aggregates, _LAST: agg.max(AT)}


class ExpiringAggregate(Grouping):
    """Running totals of keys with a time to live; emits the keys that changed.

    Port 0 takes rows with `AT`, port 1 the watermarks.

    Args:
        keys: the key columns, one or more. Input must be exchanged by them.
        aggregates: output column → aggregate.
        combined: whether rows come from `PreAggregate`, with `with_last`, where there are several workers.
    """

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, Aggregate], combined: bool = False) -> None:
        super().__init__(keys, with_last(aggregates), combined)
        self._aggregates = dict(aggregates)
        self._watermarks = TimedValues()
        self._totals = ExpiringTotals(self._keys, self._parts, AT)
        self._met = {column: ValuesOfKeys([*keys, VALUE]) for column in self._reading.distinct}
        """Distinct values seen so far in each counted column, by key."""
        self.state = Parts(self._pending, self._watermarks, self._totals, **self._met)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        if port == 0:
            super().on_batch(ctx, port, time, batch)
        else:
            self._watermarks.at(time)[_MARK] = batch[0]
            ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        tables = self._pending.pop(time)
        try:
            if tables:
                rows = self._reading.by_key(self._rows(tables), lambda column, met: self._new(time, column, met))
                changed = self._totals.add(time, rows, self._differs)
                if len(changed):
                    ctx.send(self._finish(changed.columns(self._finishing)))
            for mark in self._watermarks.pop(time).values():
                forget_values(time, self._keys, self._totals.expire(time, mark - 1), self._met.values())
        except REFUSALS as error:
            sample = as_polars(tables[0]) if tables and self._is_rows(tables[0]) else tables[0] if tables else []
            raise refused(ctx, time, error, sample) from error

    def _new(self, time: Time, column: str, met: list[Added]) -> list[pa.Array]:
        """Keys and values seen for the first time."""
        return self._met[column].new(time, [added.keys for added in met])

    def _differs(self, before: Mapping[Part, Numbers], after: Mapping[Part, Numbers]) -> npt.NDArray[np.bool_]:
        """Mask of keys with a new or changed result."""
        found = [aggregate.differs(before, after) for aggregate in self._aggregates.values()]
        return reduce(np.logical_or, [*found, before[_VALUES] == 0])
