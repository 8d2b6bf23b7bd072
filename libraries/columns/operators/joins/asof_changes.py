"""As-of joins as changes: each left row with its nearest right row so far.

A later right row may be nearer to earlier left rows. Only left rows between it and its neighbours on the right side are
affected: they are looked up in an index and matched without it and with it; where the match differs, the former pair is
taken back. The cost of an epoch grows with its rows and the affected left rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from libraries.columns.kernels.ordered_rows import Moments, ends_of, moments
from libraries.columns.kernels.row_store import take
from libraries.columns.kernels.rows import KeyedFrame
from libraries.columns.operators.joins.asof import AsofJoin
from libraries.columns.operators.joins.joining import LEFT, RIGHT, signed
from timely.data.kernels.series import frame_of
from timely.time import Time


class AsofChanges(AsofJoin):
    """Running `AsofJoin`, as changes; `CHANGE` is the last column.

    Of right rows at one place the one that came last is met from behind, and the one that came first from before.
    """

    sides = (LEFT, RIGHT)

    def _meet_kept(
        self, time: Time, new_left: pl.DataFrame | None, new_right: pl.DataFrame | None
    ) -> list[pl.DataFrame]:
        found: list[pl.DataFrame] = []
        if new_right is not None:
            beside = self._beside_new(time, new_right)
            before = None if beside is None else self._nearest(time, beside)
            self._kept[RIGHT].append(time, KeyedFrame(new_right, self._on))
            if beside is not None and before is not None:
                after = self._nearest(time, beside)
                other = _differ(before, after)
                found += [signed(before.filter(other), -1), signed(after.filter(other), 1)]
        if new_left is not None:
            found.append(signed(self._nearest(time, new_left), 1))
            self._kept[LEFT].append(time, KeyedFrame(new_left, self._on))
        return [frame for frame in found if len(frame)]

    def _beside_new(self, time: Time, new_right: pl.DataFrame) -> pl.DataFrame | None:
        """Kept left rows possibly nearest to a new right row."""
        left = self._kept[LEFT].rows(time)
        if left.columns() is None:
            return None
        places = new_right.select(*self._on, self._at).unique(maintain_order=True).sort(self._at, maintain_order=True)
        given = KeyedFrame(places, self._on)
        at = moments(places[self._at])
        low, high = self._kept[RIGHT].rows(time).around(given)
        low = np.maximum(low, self._next_to(places, 1))
        high = np.minimum(high, self._next_to(places, -1))
        span = (at if self._strategy == "backward" else low), (at if self._strategy == "forward" else high)
        met = left.meet(given, span)
        if met is None:
            return None
        _, first = np.unique(met.rows, return_index=True)
        return frame_of(take(met.columns, first))

    def _next_to(self, places: pl.DataFrame, by: int) -> Moments:
        """Neighbour of each place within its key: the one before (1) or behind (-1).

        At the edges, the least or greatest possible place.
        """
        shifted = pl.col(self._at).shift(by)
        column = places.select(shifted.over(self._on) if self._on else shifted)[self._at].to_physical()
        least, most = ends_of(moments(places[self._at]))
        found: Moments = column.fill_null(least if by > 0 else most).to_numpy()
        return found


def _differ(before: pl.DataFrame, after: pl.DataFrame) -> pl.Series:
    """Mask of rows differing between two frames."""
    found: npt.NDArray[np.bool_] = np.zeros(len(before), np.bool_)
    for was, now in zip(before.get_columns(), after.get_columns(), strict=True):
        found |= was.ne_missing(now).to_numpy()
    return pl.Series(found)
