"""As-of joins with a time to live, by event time, for right rows.

Late rows are split off before this operator, on the worker that has read them, so no left row comes before the
watermark of the left side. Of each key the right rows behind the watermark are kept, and the newest that is not behind
it, as far as the strategy and the tolerance ask for them. Dropping changes no result: it waits until nothing will be
rolled back behind the watermark, nor behind the row for which another one is dropped.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from math import ceil
from typing import Any

import polars as pl

from libraries.columns.operators.asof_join import AsofJoin, Strategy, Tolerance
from libraries.columns.operators.join import RIGHT
from timely.data.batch import Batch
from timely.operators.base import Context
from timely.state import Parts, TimedValues
from timely.time import Frontier, Time

_MARK = "mark"

_UNITS = {"ms": Fraction(1, 1000), "us": Fraction(1), "ns": Fraction(1000)}
"""Units in a microsecond, for each unit of datetimes."""


class ExpiringAsofJoin(AsofJoin):
    """Running `AsofJoin` in the root scope, with expiry of right rows.

    Input 2 is the watermark of input 0, in microseconds or as a number.
    """

    transient = ("_reached",)

    def __init__(
        self,
        on: str,
        by: Sequence[str] = (),
        strategy: Strategy = "backward",
        tolerance: Tolerance | None = None,
        right: Mapping[str, Any] | None = None,
        suffix: str = "_right",
    ) -> None:
        super().__init__(on, by, strategy, tolerance, "scope", right, suffix)
        self._marks = TimedValues()
        assert self._kept is not None
        self.state = Parts(*self._pending, self._marks, self._kept)
        self._reached: list[tuple[Time, int]] = []

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        if port > RIGHT:
            self._marks.at(time)[_MARK] = batch[0]
            ctx.notify_at(time)
        else:
            super().on_batch(ctx, port, time, batch)

    def _meet(self, time: Time, new_left: pl.DataFrame | None, new_right: pl.DataFrame | None) -> list[pl.DataFrame]:
        self._reached += [(time, mark) for mark in self._marks.pop(time).values()]
        return super()._meet(time, new_left, new_right)

    def on_watermark(self, frontier: Frontier) -> None:
        """Drop right rows out of reach of all future left rows.

        Only watermarks that are never taken back count.
        """
        super().on_watermark(frontier)
        final = [mark for time, mark in self._reached if time in frontier]
        if not final or self._kept is None:
            return
        self._reached = [each for each in self._reached if each[0] not in frontier]
        there = self._kept.rows((0,)).columns()
        if there is not None:
            unit = _microsecond(there.schema[self._at])
            self._kept.evict_passed(ceil(max(final) * unit), self._strategy, _distance(self._tolerance, unit))


def _microsecond(kind: pl.DataType) -> Fraction:
    """Units in a microsecond for a column of dates or datetimes; 1 for integers."""
    if isinstance(kind, pl.Date):
        return Fraction(1, 86_400_000_000)
    return _UNITS[kind.time_unit] if isinstance(kind, pl.Datetime) else Fraction(1)


@cache
def _distance(tolerance: Tolerance | None, unit: Fraction) -> int | None:
    """Tolerance in units of a column, rounded up; `unit` of them are a microsecond."""
    if isinstance(tolerance, str):
        length: int = pl.select(pl.lit(dt.datetime(1970, 1, 1)).dt.offset_by(tolerance).to_physical()).item()
        return ceil((abs(length) + 1) * unit)  # a nanosecond is cut off
    if isinstance(tolerance, dt.timedelta):
        return ceil(abs(tolerance // dt.timedelta(microseconds=1)) * unit)
    return None if tolerance is None else ceil(abs(tolerance))
