"""As-of joins of two streams of columns: each left row with the right row that is nearest to it in an order.

Each left row comes out at its own time, when that is complete: with a row of the same time, or, running, of all right rows
that have come by then. Right rows that come later do not reach it, whatever their place in the order is. What is near is
looked up in an index (`timely.data.kernels.ordered_rows`), and Polars chooses among that.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import polars as pl

from timely.data.kernels.content import in_content_order
from timely.data.kernels.ordered_rows import moments
from timely.data.kernels.rows import KeyedFrame
from timely.errors import GraphError, user_site
from timely.operators.column_join import RIGHT, Joining
from timely.state import OrderedRowsState
from timely.time import Time

Strategy = Literal["backward", "forward", "nearest"]

Tolerance = str | int | float | dt.timedelta


def check_asof(on: Any, by: Any, strategy: str) -> tuple[str, ...]:
    """The columns `by`, if all is as it should be."""
    keys = () if by is None else (by,) if isinstance(by, str) else tuple(by)
    if not isinstance(on, str) or not all(isinstance(key, str) for key in keys):
        raise GraphError(f"{user_site()}: join_asof(on=..., by=...) takes names of columns, not {on!r} and {by!r}")
    if strategy not in get_args(Strategy):
        kinds = ", ".join(f"strategy={known!r}" for known in get_args(Strategy))
        raise GraphError(f"{user_site()}: join_asof has {kinds}, not {strategy!r}")
    return keys


class AsofJoin(Joining):
    """Joins each row of input 0 with at most one of input 1. Emits Polars frames, in the order of `on`.

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
        for frame in (new_left, new_right):
            if frame is not None:
                if self._at not in frame.columns:
                    raise KeyError(f"no column {self._at!r}; there are {', '.join(map(repr, frame.columns))}")
                moments(frame[self._at])
        if new_right is not None:  # of rows at one place one is the last, whichever came last
            new_right = in_content_order(new_right)
        near = new_right
        if self._kept is not None:
            if new_right is not None:
                self._kept.append(time, KeyedFrame(new_right, self._on))
            near = (
                None if new_left is None else self._kept.rows(time).near(KeyedFrame(new_left, self._on), self._strategy)
            )
        if new_left is None:
            return []
        found = new_left.sort(self._at, maintain_order=True).join_asof(
            self._known(RIGHT, near).sort(self._at, maintain_order=True),
            on=self._at,
            by=self._on or None,
            strategy=self._strategy,
            tolerance=self._tolerance,
            suffix=self._suffix,
            check_sortedness=False,
        )
        return [found]
