"""Equi-joins of two streams of columns, per time or running.

Per time, the rows of one time meet the rows of the same time: "inner", "left" with nulls for left rows without a match, "semi"
for left rows that have one, without the right columns, and "anti" for those that have none.
Running, "inner", "semi", "anti" and "lookup" are those of `running`. "left", "right" and "full" give changes: rows have a sign
in a last column, `CHANGE`. Every left row without a match (of a right join every right row, of a full one both) comes out at
its own time, with nulls, and is taken back when its first match comes; pairs come out as those of an inner join.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from libraries.columns.kernels.row_store import ColumnList, take
from libraries.columns.kernels.rows import KeyedFrame, Matches
from libraries.columns.operators.joins.joining import LEFT, REFUSALS, RIGHT, is_coded, marked, signed, stacked
from libraries.columns.operators.joins.running import How, RunningJoin
from libraries.columns.state import RowsState
from timely.data.kernels.series import frame_of
from timely.data.span import Span
from timely.errors import GraphError, user_site
from timely.operators.base import Context, notify_of
from timely.time import Time

_PASSES = 3
"""Number of passes over the pairs of a time.

The first has the pairs of its left rows, the second those of its right rows with left rows that are kept, the third
those of its right rows with left rows of earlier times that are not kept yet.
"""

_OF_KEPT, _OF_EARLIER = 1, 2

_TAKING_BACK = (("left", "full"), ("right", "full"))
"""Kinds of joins with unmatched rows taken back: left ones, and right ones."""


def check_join(how: str, running: bool, changes: bool = False) -> None:
    """Refuse an unknown or unsupported kind of join."""
    if how not in get_args(How):
        kinds = ", ".join(f"how={known!r}" for known in get_args(How))
        raise GraphError(f"{user_site()}: join has {kinds}, not {how!r}")
    takes_back = how in ("left", "right", "full", "anti") and running
    if takes_back and not changes:
        kind, rows = ("an anti", "rows") if how == "anti" else (f"a {how}", "its nulls")
        raise GraphError(
            f"{user_site()}: {kind} join that runs on would have to take back {rows} when a match comes later; say "
            "over='time' to join within each time, how='lookup' for every left row with what is known at its time, or "
            "changes=True for rows with a sign"
        )
    if changes and not takes_back:
        raise GraphError(
            f"{user_site()}: changes=True is for left, right, full and anti joins that run on; others take nothing back"
        )
    if how == "lookup" and not running:
        raise GraphError(f"{user_site()}: how='lookup' looks at all that came so far; within a time it is how='left'")


class ColumnJoin(RunningJoin[RowsState]):
    """Joins input 0 with input 1 on equal keys.

    Emits Polars frames: left columns, then right ones without the keys.

    Args:
        how: "inner", "semi", "left", "right", "full" or "anti", or "lookup" (running).
        over: "time" or "scope" (running).
        changes: of those that take rows back when they run on: `CHANGE` is the last column.

    Raises:
        GraphError: for no key, or a `how` that is not supported.
    """

    undoes_spans = True

    def __init__(
        self,
        on: Sequence[str],
        how: How = "inner",
        over: Literal["time", "scope"] = "scope",
        right: Mapping[str, Any] | None = None,
        suffix: str = "_right",
        changes: bool = False,
        left: Mapping[str, Any] | None = None,
    ) -> None:
        if not on:
            raise GraphError("join needs at least one key column: join(other, on=...)")
        check_join(how, over == "scope", changes)
        kept = (RowsState(on), RowsState(on)) if over == "scope" else ()
        super().__init__(on, how, kept, right, suffix, left)
        self.spans = how == "inner" and over == "scope"
        if over == "scope" and how in ("inner", "semi"):
            self.repeats_over = "record"

    def on_span(self, ctx: Context, port: int, span: Span) -> None:
        try:
            plain = not any(is_coded(span.get_column(key).dtype) for key in self._on)
        except (TypeError, pl.exceptions.PolarsError):  # one of the times has no such column, or another one
            plain = False
        if not plain:
            super().on_span(ctx, port, span)
            return
        self._pending[port].add_span(span)
        notify_of(ctx, span.times)

    def on_notify_several(self, ctx: Context, times: Sequence[Time]) -> None:
        try:
            mine, theirs = spans = [pending.span(times) for pending in self._pending]
            some = [span for span in spans if span is not None]
            for span in some:
                span.check_types()
        except TypeError:  # of different columns, which may be an error, at one of the times
            super().on_notify_several(ctx, times)
            return
        for pending in self._pending:
            pending.drop(times)
        try:
            ctx.spans += self._meet_several(times, mine, theirs)
        except REFUSALS as error:
            time = max(span.times[0] for span in some)  # from then on both sides are known
            raise self._blame(ctx, time, error, some[0].frame) from error

    def _meet_several(self, times: Sequence[Time], mine: Span | None, theirs: Span | None) -> list[Span]:
        """Pairs of a running inner join at several times, in the order of `_meet`."""
        upto = times[-1]
        before = len(self._kept[RIGHT].rows(upto))
        new = self._as_kept(upto, mine), self._as_kept(upto, theirs)
        met = of_mine, of_theirs = self._both(upto, *new)
        found = self._pairs(*new, *met)
        orders: list[npt.NDArray[np.intp]] = []
        if mine is not None and of_mine is not None:
            at = mine.numbers(times)[of_mine.places]
            order = at * _PASSES
            if theirs is not None:
                rows = np.flatnonzero(of_mine.rows >= before)
                other = theirs.numbers(times)[of_mine.rows[rows] - before]
                later = other > at[rows]
                order[rows[later]] = other[later] * _PASSES + _OF_EARLIER
            orders.append(order)
        if theirs is not None and of_theirs is not None:
            orders.append(theirs.numbers(times)[of_theirs.places] * _PASSES + _OF_KEPT)
        if not found:
            return []
        frame, order = stacked(found), np.concatenate(orders)
        if not (order[1:] >= order[:-1]).all():
            sorting = order.argsort(kind="stable")
            frame, order = frame_of(take(frame.get_columns(), sorting)), order[sorting]
        return [Span.cut(frame, times, order // _PASSES)]

    def _among(self, side: int, time: Time, rows: KeyedFrame, by_row: bool = False) -> Matches | None:
        return self._kept[side].rows(time).meet(rows, by_row)

    def _meet(self, time: Time, new_left: pl.DataFrame | None, new_right: pl.DataFrame | None) -> list[pl.DataFrame]:
        if not self._kept:
            return self._join(new_left, new_right)
        if self.how in ("left", "right", "full"):
            return self._changes(time, self._as_kept(time, new_left), self._as_kept(time, new_right))
        return super()._meet(time, new_left, new_right)

    def _changes(self, time: Time, mine: KeyedFrame | None, theirs: KeyedFrame | None) -> list[pl.DataFrame]:
        """Changes of a running join: rows taken back, new pairs, new rows without a match."""
        new = (mine, theirs)
        sides = [side for side in (LEFT, RIGHT) if self.how in _TAKING_BACK[side]]
        found: list[pl.DataFrame] = []
        for side in sides:
            others = new[1 - side]
            keys = None if others is None else self._new_keys(time, 1 - side, others)
            if keys is not None and (waiting := self._among(side, time, keys, by_row=True)) is not None:
                found.append(self._unmatched(time, side, waiting.columns, others, -1))
        before = len(self._kept[RIGHT].rows(time))
        met = self._both(time, mine, theirs)
        found += [signed(pairs, 1) for pairs in self._pairs(mine, theirs, *met)]
        matched = [marked(each, 0 if rows is None else rows.count) for each, rows in zip(met, new, strict=True)]
        if (of_mine := met[LEFT]) is not None:
            matched[RIGHT][of_mine.rows[of_mine.rows >= before] - before] = True
        for side in sides:
            rows = new[side]
            if rows is not None and not matched[side].all():
                unmatched = rows.take(np.flatnonzero(~matched[side]))
                found.append(self._unmatched(time, side, unmatched, new[1 - side], 1))
        return found

    def _unmatched(self, time: Time, side: int, rows: ColumnList, others: KeyedFrame | None, sign: int) -> pl.DataFrame:
        """Unmatched rows of a side, with nulls for the other side and a sign."""
        there = others.frame if others is not None else self._kept[1 - side].rows(time).columns()
        holes = self._known(1 - side, there).clear(len(rows[0])).get_columns()
        return signed(self._beside(rows, holes) if side == LEFT else self._beside(self._keyed(holes, rows), rows), sign)

    def _keyed(self, holes: ColumnList, rows: ColumnList) -> ColumnList:
        """Nulls, with the keys of `rows`."""
        keys = {column.name: column for column in rows if column.name in self._on}
        return [keys.get(column.name, column) for column in holes]

    def _join(self, left: pl.DataFrame | None, right: pl.DataFrame | None) -> list[pl.DataFrame]:
        """Join of the rows of one time."""
        if (left is None and self.how not in ("right", "full")) or (
            right is None and self.how in ("inner", "semi", "right")
        ):
            return []
        if right is None and self.how == "anti":
            return [] if left is None else [left]
        left, right = self._known(LEFT, left), self._known(RIGHT, right)
        if self.how in ("semi", "anti"):
            joined = left.join(right, on=self._on, how=self.how)  # in the order of the left side, as Polars promises
        else:
            assert self.how != "lookup"
            joined = left.join(
                right,
                on=self._on,
                how=self.how,
                suffix=self._suffix,
                coalesce=True,
                maintain_order="right" if self.how == "right" else "left_right",
            )
            if self.how == "right":  # Polars has the keys last
                joined = joined.select(*left.columns, pl.exclude(left.columns))
        return [joined] if len(joined) else []
