"""Interval joins of two streams of columns: pairs with event times within bounds.

A pair comes out once, when the time of the later of its rows is complete. Late rows are split off before this operator,
on the worker that has read them, so no left row comes before the watermark of the left side: right rows that could only
meet earlier left rows are dropped, and left rows likewise. Dropping changes no result; it waits until nothing will be
rolled back behind the watermark.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from libraries.columns.kernels.rows import KeyedFrame
from libraries.columns.operators.joins.equi import LEFT, RIGHT, Joining
from libraries.columns.operators.windows import AT
from libraries.columns.state import OrderedRowsState
from timely.data.batch import Batch
from timely.operators.base import Context
from timely.state import Parts, TimedValues
from timely.time import Frontier, Time


class IntervalJoin(Joining):
    """Joins rows of input 0 and input 1 with lower <= left - right <= upper.

    Inputs 2 and 3 are the watermarks of these two.

    Args:
        by: key columns. Both inputs must be exchanged by them.
        lower, upper: bounds of the difference of event times.
    """

    verb = "join_interval"
    transient = ("_reached",)

    def __init__(self, by: Sequence[str], lower: int, upper: int, suffix: str = "_right") -> None:
        self._lower = lower
        self._upper = upper
        self._kept = (OrderedRowsState(by, AT), OrderedRowsState(by, AT))
        super().__init__(by, None, suffix, self._kept)
        self._marks = TimedValues()
        self.state = Parts(*self._pending, self._marks, *self._kept)
        self._reached: list[tuple[Time, int, int]] = []

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        if port > RIGHT:
            self._marks.at(time)[port - RIGHT - 1] = batch[0]
            ctx.notify_at(time)
        else:
            super().on_batch(ctx, port, time, batch)

    def _meet(self, time: Time, new_left: pl.DataFrame | None, new_right: pl.DataFrame | None) -> list[pl.DataFrame]:
        self._reached += [(time, side, mark) for side, mark in self._marks.pop(time).items()]
        left, right = self._kept
        found: list[pl.DataFrame] = []
        mine = None if new_left is None else KeyedFrame(new_left, self._on)
        theirs = None if new_right is None else KeyedFrame(new_right, self._on)
        if theirs is not None:
            right.append(time, theirs)
        if mine is not None:
            at = mine.frame[AT].to_numpy()
            met = right.rows(time).meet(mine, (at - self._upper, at - self._lower))
            if met is not None:
                found.append(self._beside(mine.take(met.places), met.columns))
        if theirs is not None:
            at = theirs.frame[AT].to_numpy()
            met = left.rows(time).meet(theirs, (at + self._lower, at + self._upper), by_row=True)
            if met is not None:
                found.append(self._beside(met.columns, theirs.take(met.places)))
        if mine is not None:
            left.append(time, mine)
        return [frame.select(pl.exclude(AT, AT + self._suffix)) for frame in found]

    def on_watermark(self, frontier: Frontier) -> None:
        """Drop rows out of reach of all future rows, by watermarks never taken back."""
        super().on_watermark(frontier)
        final = [each for each in self._reached if each[0] in frontier]
        if final:
            self._reached = [each for each in self._reached if each[0] not in frontier]
            for _, side, mark in final:
                if side == LEFT:
                    self._kept[RIGHT].evict(mark - self._upper)
                else:
                    self._kept[LEFT].evict(mark + self._lower)
