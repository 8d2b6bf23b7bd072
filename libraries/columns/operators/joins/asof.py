"""As-of joins of two streams of columns: left rows with their nearest right rows.

Each left row comes out at its own time, when that is complete: with a row of the same time, or, running, of all right rows
that have come by then. Right rows that come later do not reach it, whatever their place in the order is. What is near is
looked up in an index (`kernels.ordered_rows`), and Polars chooses among that. (`asof_changes` has joins that later
right rows do reach.)
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from math import ceil
from typing import Any, Literal, get_args

import polars as pl

from libraries.columns.kernels.ordered_rows import moments
from libraries.columns.kernels.rows import KeyedFrame
from libraries.columns.kernels.sorted_rows import sorted_rows
from libraries.columns.operators.joins.joining import RIGHT, Joining, Watermarked
from libraries.columns.state import OrderedRowsState
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
    """Sides whose rows are kept."""

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
