"""Windows of epochs over columns: totals for each key and so many whole epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from libraries.columns.agg import Aggregate
from libraries.columns.operators.aggregate import REFUSALS, Grouping, refused
from libraries.columns.operators.open_tables import OpenTables
from timely.data.batch import Batch
from timely.operators.base import Context
from timely.operators.window_shapes import Epochs, Span
from timely.operators.windows import END
from timely.state import Parts
from timely.time import Time


class ColumnEpochs(Grouping):
    """Aggregates for each key and window of epochs.

    Emits Arrow tables at the last epoch of a window: the keys, start, end, then the aggregates.

    Args:
        keys: the key columns, one or more. Input must be exchanged by them.
        aggregates: output column → aggregate.
        shape: says how many epochs a window has. What comes after every epoch has a window of its own.
        combined: whether rows come from `PreAggregate` where there are several workers.
    """

    def __init__(
        self, keys: Sequence[str], aggregates: Mapping[str, Aggregate], shape: Epochs, combined: bool = False
    ) -> None:
        super().__init__(keys, aggregates, combined)
        self._shape = shape
        self._open = OpenTables(lambda tables: self._as_table([self._of_partial(table) for table in tables]))
        self.state = Parts(self._pending, self._open)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        super().on_batch(ctx, port, time, batch)
        if time != END:
            ctx.notify_at((self._shape.around(time)[1] - 1,))

    def on_notify(self, ctx: Context, time: Time) -> None:
        tables = self._pending.pop(time)
        start, end = span = self._shape.around(time)
        try:
            if time == END or end == time[0] + 1:
                rows = [*self._rows(tables), *(self._of_partial(table) for table in self._open.take(time, {start}))]
                if rows:
                    ctx.send(self._results(self._summed(rows), span))
            elif tables:
                self._open.add(time, [(start, self._united(tables))])
        except REFUSALS as error:
            raise refused(ctx, time, error, tables[0] if tables else []) from error

    def _results(self, columns: Mapping[str, pa.Array], span: Span) -> pa.Table:
        found = self._finish(columns)
        bounds = {name: pa.array(np.full(len(found), at)) for name, at in zip(("start", "end"), span, strict=True)}
        keys = {key: found[key] for key in self._keys}
        return pa.table({**keys, **bounds, **{name: found[name] for name in self._aggregates}})
