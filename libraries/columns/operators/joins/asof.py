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
from libraries.columns.operators.joins.equi import RIGHT, Joining
from libraries.columns.state import OrderedRowsState
from timely.data.batch import Batch
from timely.errors import GraphError, user_site
from timely.operators.base import Context
from timely.state import Parts, TimedValues
from timely.time import Frontier, Time

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


def nearest(
    left: pl.DataFrame,
    right: pl.DataFrame,
    on: str,
    by: Sequence[str],
    strategy: Strategy,
    tolerance: Tolerance | None,
    suffix: str,
) -> pl.DataFrame:
    """Rows of `left` in the order of `on`, each with its nearest row of `right`."""
    return left.sort(on, maintain_order=True).join_asof(
        right.sort(on, maintain_order=True),
        on=on,
        by=list(by) or None,
        strategy=strategy,
        tolerance=tolerance,
        suffix=suffix,
        check_sortedness=False,
    )


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

    def __init__(
        self,
        on: str,
        by: Sequence[str] = (),
        strategy: Strategy = "backward",
        tolerance: Tolerance | None = None,
        over: Literal["time", "scope"] = "scope",
        right: Mapping[str, Any] | None = None,
        suffix: str = "_right",
    ) -> None:
        self._at = on
        self._strategy: Strategy = strategy
        self._tolerance = tolerance
        self._kept = OrderedRowsState(by, on) if over == "scope" else None
        super().__init__(by, right, suffix, () if self._kept is None else (self._kept,))

    def _meet(self, time: Time, new_left: pl.DataFrame | None, new_right: pl.DataFrame | None) -> list[pl.DataFrame]:
        check_places(self._at, new_left, new_right)
        if new_right is not None:
            new_right = in_order_at_a_place(new_right, self._at, self._on)
        near = new_right
        if self._kept is not None:
            if new_right is not None:
                self._kept.append(time, KeyedFrame(new_right, self._on))
            near = (
                None if new_left is None else self._kept.rows(time).near(KeyedFrame(new_left, self._on), self._strategy)
            )
        if new_left is None:
            return []
        there = self._known(RIGHT, near)
        return [nearest(new_left, there, self._at, self._on, self._strategy, self._tolerance, self._suffix)]


_MARK = "mark"

_UNITS = {"ms": Fraction(1, 1000), "us": Fraction(1), "ns": Fraction(1000)}
"""Units in a microsecond, for each unit of datetimes."""


class ExpiringAsofJoin(AsofJoin):
    """Running `AsofJoin` in the root scope, with expiry of right rows.

    Input 2 is the watermark of input 0, in microseconds or as a number.

    Late rows are split off before it, on the worker that has read them, so no left row comes before the
    watermark of the left side. Of each key the right rows behind the watermark are kept, and the newest that is not behind
    it, as far as the strategy and the tolerance ask for them. Dropping changes no result: it waits until nothing will be
    rolled back behind the watermark, nor behind the row for which another one is dropped.
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
