"""The rows of a time in an order, as one batch."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from libraries.columns.operators.aggregate import REFUSALS
from timely.data.batch import Batch, as_polars, concat
from timely.operators.base import Context, Operator
from timely.operators.stateless import operator_error
from timely.state import TimedBatches
from timely.time import Time


class SortOfTime(Operator):
    """Sorts all rows of a complete time by `by`.

    Input must be gathered at one worker.

    Rows that are equal in these go by their other columns, the least first, so that a replay gives the same.

    Args:
        by: names of columns and expressions of a column each: the first counts most.
        descending: for each of them.
        nulls_last: for each of them.
    """

    repeats_over = "time"
    one_batch = True

    def __init__(self, by: Sequence[str | pl.Expr], descending: Sequence[bool], nulls_last: Sequence[bool]) -> None:
        self._by = list(by)
        self._named = {each for each in by if isinstance(each, str)}
        self._descending = list(descending)
        self._nulls_last = list(nulls_last)
        self._pending = TimedBatches()
        self.state = self._pending

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        try:
            frame = as_polars(batch)
        except TypeError as error:
            raise operator_error(f"sort {ctx.name!r}", ctx.site, time, error, None, batch) from error
        self._pending.add(time, frame)
        ctx.notify_at(time)

    def on_notify(self, ctx: Context, time: Time) -> None:
        batches = self._pending.pop(time)
        try:
            found = self._sorted(as_polars(concat(batches)))
        except REFUSALS as error:
            raise operator_error(f"sort {ctx.name!r}", ctx.site, time, error, None, batches[0]) from error
        ctx.send(found)

    def _sorted(self, rows: pl.DataFrame) -> pl.DataFrame:
        others = [name for name in rows.columns if name not in self._named]
        ties = [False] * len(others)
        return rows.sort([*self._by, *others], descending=self._descending + ties, nulls_last=self._nulls_last + ties)
