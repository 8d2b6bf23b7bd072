"""Running joins of near rows: rows out of reach of all later ones are dropped.

`ExpiringJoin`: a row of epoch e meets rows of the epochs from e - n to e + n, at the later of the two epochs. The end of the
input is out of reach of all epochs.
`IntervalJoin`: rows meet whose event times are within bounds, at the time of the later one.

Rows are dropped as soon as no rollback can go back to a time at which they could be met.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl

from libraries.columns.kernels.rows import KeyedFrame, Matches
from libraries.columns.operators.joins.joining import LEFT, RIGHT, Watermarked
from libraries.columns.operators.joins.running import RunningJoin
from libraries.columns.operators.windows import AT
from libraries.columns.state import OrderedRowsState
from timely.data.kernels.series import series_of
from timely.data.span import Span
from timely.time import INF, Frontier, Time

EPOCH = "epoch()"
"""Epoch column of kept rows, the last one."""

_END = 1 << 62

ExpiringHow: TypeAlias = Literal["inner", "semi", "lookup"]


class ExpiringJoin(RunningJoin[OrderedRowsState]):
    """Joins input 0 with input 1 on equal keys, for epochs at most `ttl` apart.

    Both are in the root scope.

    Args:
        how: "inner": each pair. "semi": each left row that has a match, once. "lookup": each left row at its own time, with
            what is there of the right, or with nulls.
        ttl: in epochs.
    """

    hidden = (EPOCH,)
    refreshes = True

    def __init__(
        self,
        on: Sequence[str],
        how: ExpiringHow,
        ttl: int,
        right: Mapping[str, Any] | None = None,
        suffix: str = "_right",
    ) -> None:
        self._ttl = ttl
        super().__init__(on, how, (OrderedRowsState(on, EPOCH), OrderedRowsState(on, EPOCH)), right, suffix)

    def _as_kept(self, time: Time, rows: pl.DataFrame | Span | None) -> KeyedFrame | None:
        if not isinstance(rows, pl.DataFrame):
            return None
        return KeyedFrame(rows.hstack([series_of(EPOCH, np.full(len(rows), _epoch(time)))]), self._on)

    def _among(self, side: int, time: Time, rows: KeyedFrame, by_row: bool = False) -> Matches | None:
        upto = np.full(rows.count, _epoch(time))
        return self._kept[side].rows(time).meet(rows, (upto - self._ttl, upto), by_row)

    def on_watermark(self, frontier: Frontier) -> None:
        """Drop rows too old to meet any future row."""
        super().on_watermark(frontier)
        for time in frontier.antichain:
            for kept in self._kept:
                kept.evict(int(time[0]) - self._ttl)


def _epoch(time: Time) -> int:
    return _END if time[0] == INF else int(time[0])


class IntervalJoin(Watermarked, RunningJoin[OrderedRowsState]):
    """Joins rows of input 0 and input 1 with lower <= left - right <= upper.

    Inputs 2 and 3 are the watermarks of these two. Right rows that could only meet earlier left rows are dropped, and left
    rows likewise.

    Args:
        by: key columns. Both inputs must be exchanged by them.
        lower, upper: bounds of the difference of event times.
    """

    verb = "join_interval"
    hidden = (AT,)

    def __init__(self, by: Sequence[str], lower: int, upper: int, suffix: str = "_right") -> None:
        self._lower = lower
        self._upper = upper
        super().__init__(by, "inner", (OrderedRowsState(by, AT), OrderedRowsState(by, AT)), None, suffix)

    def _among(self, side: int, time: Time, rows: KeyedFrame, by_row: bool = False) -> Matches | None:
        at = rows.frame[AT].to_numpy()
        span = (at - self._upper, at - self._lower) if side == RIGHT else (at + self._lower, at + self._upper)
        return self._kept[side].rows(time).meet(rows, span, by_row)

    def _passed(self, side: int, mark: int) -> None:
        if side == LEFT:
            self._kept[RIGHT].evict(mark - self._upper)
        else:
            self._kept[LEFT].evict(mark + self._lower)
