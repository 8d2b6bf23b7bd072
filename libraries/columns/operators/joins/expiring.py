"""Running joins with a time to live: rows of epochs too far apart do not meet.

A row of epoch e meets rows of the epochs from e - n to e + n, at the later of the two epochs: an interval join by
epoch. Rows out of reach of all future rows are dropped as soon as no rollback can go back to a time at which they could
be met. The end of the input is out of reach of all epochs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl

from libraries.columns.kernels.row_store import ColumnList
from libraries.columns.kernels.rows import KeyedFrame, Met
from libraries.columns.operators.joins.equi import LEFT, RIGHT, Joining, marked
from libraries.columns.state import OrderedRowsState
from timely.data.batch import as_polars, divide
from timely.data.kernels.series import frame_of, series_of
from timely.time import INF, Frontier, Time

EPOCH = "epoch()"
"""Epoch column of kept rows, the last one."""

_END = 1 << 62

ExpiringHow: TypeAlias = Literal["inner", "semi", "lookup"]


class ExpiringJoin(Joining):
    """Joins input 0 with input 1 on equal keys, for epochs at most `ttl` apart.

    Both are in the root scope.

    Args:
        how: "inner": each pair. "semi": each left row that has a match, once. "lookup": each left row at its own time, with
            what is there of the right, or with nulls.
        ttl: in epochs.
    """

    def __init__(
        self,
        on: Sequence[str],
        how: ExpiringHow,
        ttl: int,
        right: Mapping[str, Any] | None = None,
        suffix: str = "_right",
    ) -> None:
        self.how = how
        self._ttl = ttl
        self._kept = (OrderedRowsState(on, EPOCH), OrderedRowsState(on, EPOCH))
        super().__init__(on, right, suffix, self._kept)

    def _meet(self, time: Time, new_left: pl.DataFrame | None, new_right: pl.DataFrame | None) -> list[pl.DataFrame]:
        epoch = _END if time[0] == INF else int(time[0])
        if self.how == "semi" and new_right is not None:
            new_right = new_right.select(self._on).drop_nulls().unique(maintain_order=True)
        mine, theirs = (
            None if new is None else KeyedFrame(_dated(new, epoch), self._on) for new in (new_left, new_right)
        )
        found = []
        if theirs is not None and self.how != "lookup":
            met = self._among(LEFT, time, theirs, epoch, by_row=True)
            if met is not None and self.how == "semi":
                # Left rows that such a key has met came out then; those that wait have met none.
                known = marked(self._among(RIGHT, time, theirs, epoch), len(theirs.frame))
                met.choose(np.flatnonzero(~known[met.places]))
                found.append(frame_of(_undated(met.columns)))
            elif met is not None:
                found.append(self._beside(_undated(met.columns), _undated(theirs.take(met.places))))
        if theirs is not None:
            self._kept[RIGHT].append(time, theirs)
        if mine is not None:
            met = self._among(RIGHT, time, mine, epoch)
            plain = _undated(mine.frame.get_columns())
            if self.how == "lookup":
                there = self._kept[RIGHT].rows(time).columns()
                if met is not None:
                    met.columns = _undated(met.columns)
                found.append(self._looked_up(plain, met, None if there is None else there.drop(EPOCH)))
            elif self.how == "semi":
                some, others = divide(mine.frame, series_of("", marked(met, len(mine.frame))))
                found.append(frame_of(_undated(as_polars(some).get_columns())))
                mine = KeyedFrame(as_polars(others), self._on)
            elif met is not None:
                found.append(self._beside(_undated(mine.take(met.places)), _undated(met.columns)))
        if mine is not None and self.how != "lookup":
            self._kept[LEFT].append(time, mine)
        return [frame for frame in found if len(frame)]

    def _among(self, side: int, time: Time, rows: KeyedFrame, epoch: int, by_row: bool = False) -> Met | None:
        """Live rows of a side with the keys of `rows`, as of `epoch`."""
        upto = np.full(len(rows.frame), epoch)
        return self._kept[side].rows(time).meet(rows, (upto - self._ttl, upto), by_row)

    def on_watermark(self, frontier: Frontier) -> None:
        """Drop rows too old to meet any future row."""
        super().on_watermark(frontier)
        for time in frontier.antichain:
            for kept in self._kept:
                kept.evict(int(time[0]) - self._ttl)


def _dated(frame: pl.DataFrame, epoch: int) -> pl.DataFrame:
    return frame.hstack([series_of(EPOCH, np.full(len(frame), epoch))])


def _undated(columns: ColumnList) -> ColumnList:
    return columns[:-1]
