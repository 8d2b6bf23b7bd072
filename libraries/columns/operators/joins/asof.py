"""As-of joins of two streams of columns: left rows with their nearest right rows.

Each left row comes out at its own time, when that is complete: with a row of the same time, or, running, of all right rows
that have come by then. Right rows that come later do not reach it, whatever their place in the order is. What is near is
looked up in an index (`kernels.ordered_rows`), and Polars chooses among that.

As changes, a later right row may be nearer to earlier left rows. Only left rows between it and its neighbours on the right
side are affected: they are matched without it and with it; where the match differs, the former pair is taken back. The cost of
an epoch grows with its rows and the affected left rows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from math import ceil
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from libraries.columns.kernels.ordered_rows import Moments, ends_of, moments
from libraries.columns.kernels.row_store import take
from libraries.columns.kernels.rows import KeyedFrame
from libraries.columns.kernels.sorted_rows import sorted_rows
from libraries.columns.operators.joins.joining import LEFT, RIGHT, Joining, Watermarked, signed
from libraries.columns.state import OrderedRowsState
from timely.data.kernels.series import frame_of
from timely.errors import GraphError, user_site
from timely.time import Time

Strategy = Literal["backward", "forward", "nearest"]

Tolerance = str | int | float | dt.timedelta


def check_asof(on: Any, by: Any, strategy: str) -> tuple[str, ...]:
    """Validated `by` columns of an as-of join."""
    keys = () if by is None else (by,) if isinstance(by, str) else tuple(by)
    if not isinstance(on, str) or not all(isinstance(key, str) for key in keys):
        raise GraphError(f"{user_site()}: join_asof(on=..., by=...) takes names of columns, not {on!r} and {by!r}")
    if strategy not in get_args(Strategy):
        kinds = ", ".join(f"strategy={known!r}" for known in get_args(Strategy))
        raise GraphError(f"{user_site()}: join_asof has {kinds}, not {strategy!r}")
    return keys


def check_places(on: str, *frames: pl.DataFrame | None) -> None:
    """Check the ordering column of an as-of join: present, orderable, no null or NaN.

    Raises:
        KeyError, TypeError, ValueError: as they have no such column, or one that has no order, or as some are null or NaN.
    """
    for frame in frames:
        if frame is not None:
            if on not in frame.columns:
                raise KeyError(f"no column {on!r}; there are {', '.join(map(repr, frame.columns))}")
            moments(frame[on])


def in_order_at_a_place(rows: pl.DataFrame, on: str, by: Sequence[str]) -> pl.DataFrame:
    """Right rows of one time, sorted by content if places repeat.

    So the row met at a place does not depend on the order of arrival.
    """
    if not rows.select(*by, on).is_duplicated().any():
        return rows
    return sorted_rows(rows, [*by, on])


class AsofJoin(Joining):
    """As-of join: each row of input 0 with at most one row of input 1.

    Emits Polars frames, in the order of `on`.

    Args:
        on: what rows are ordered by: numbers, dates or datetimes.
        by: columns that must be equal, maybe none.
        strategy, tolerance: as in Polars' `join_asof`.
    """

    verb = "join_asof"

    sides: tuple[int, ...] = (RIGHT,)
    """Sides with rows kept from time to time."""

    def __init__(
        self,
        on: str,
        by: Sequence[str] = (),
        strategy: Strategy = "backward",
        tolerance: Tolerance | None = None,
        right: Mapping[str, Any] | None = None,
        suffix: str = "_right",
        over: Literal["time", "scope"] = "scope",
    ) -> None:
        self._at = on
        self._strategy: Strategy = strategy
        self._tolerance = tolerance
        self._kept = {side: OrderedRowsState(by, on) for side in self.sides} if over == "scope" else {}
        super().__init__(by, right, suffix, tuple(self._kept.values()))

    def _meet(self, time: Time, new_left: pl.DataFrame | None, new_right: pl.DataFrame | None) -> list[pl.DataFrame]:
        check_places(self._at, new_left, new_right)
        if new_right is not None:
            new_right = in_order_at_a_place(new_right, self._at, self._on)
        if not self._kept:
            return [] if new_left is None else [self._beside_nearest(new_left, new_right)]
        return self._meet_kept(time, new_left, new_right)

    def _meet_kept(
        self, time: Time, new_left: pl.DataFrame | None, new_right: pl.DataFrame | None
    ) -> list[pl.DataFrame]:
        """Rows of a running join, emitted at `time`."""
        if new_right is not None:
            self._kept[RIGHT].append(time, KeyedFrame(new_right, self._on))
        return [] if new_left is None else [self._nearest(time, new_left)]

    def _nearest(self, time: Time, rows: pl.DataFrame) -> pl.DataFrame:
        """Left rows, each with its nearest right row so far."""
        return self._beside_nearest(rows, self._kept[RIGHT].rows(time).near(KeyedFrame(rows, self._on), self._strategy))

    def _beside_nearest(self, left: pl.DataFrame, right: pl.DataFrame | None) -> pl.DataFrame:
        """Left rows in the order of `on`, each with its nearest row of `right`."""
        there = self._known(RIGHT, right)
        return left.sort(self._at, maintain_order=True).join_asof(
            there.sort(self._at, maintain_order=True),
            on=self._at,
            by=self._on or None,
            strategy=self._strategy,
            tolerance=self._tolerance,
            suffix=self._suffix,
            check_sortedness=False,
        )


_UNITS = {"ms": Fraction(1, 1000), "us": Fraction(1), "ns": Fraction(1000)}
"""Units in a microsecond, for each unit of datetimes."""


class ExpiringAsofJoin(Watermarked, AsofJoin):
    """Running `AsofJoin` in the root scope, with expiry of right rows.

    Input 2 is the watermark of input 0, in microseconds or as a number.

    Of each key the right rows behind the watermark are kept, and the newest that is not behind it, as far as the strategy and
    the tolerance ask for them. Dropping also waits until nothing will be rolled back behind the row for which another one is
    dropped.
    """

    def _passed(self, side: int, mark: int) -> None:
        kept = self._kept[RIGHT]
        there = kept.rows((0,)).columns()
        if there is not None:
            unit = _microsecond(there.schema[self._at])
            kept.evict_passed(ceil(mark * unit), self._strategy, _distance(self._tolerance, unit))


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
