"""Equi-joins of two streams of columns, per time or running.

Per time, the rows of one time meet the rows of the same time: "inner", "left" with nulls for left rows without a match, "semi"
for left rows that have one, without the right columns, and "anti" for those that have none.
Running, rows are kept along the innermost coordinate:

- inner: every pair of a left and a right row comes out once, at the time of the later of the two. With dL and dR new at
  a time, L before it and R up to it, that is dL ⋈ R and L ⋈ dR.
- semi: every left row that has a match comes out once, at its own time or, later, at that of its first match: dL ⋉ R, and of
  L those that match a key in dR which R had not before. Of the right side only keys are kept, each once.
- lookup: every left row comes out at its own time, with all right rows known when that time is complete, or with nulls.
  Right rows that come later do not reach it.
- left, right, full and anti, as changes: rows have a sign in a last column, `CHANGE`. Every left row without a match (of a
  right join every right row, of a full one both) comes out at its own time, with nulls but in an anti join, and is taken back
  when its first match comes; pairs come out as those of an inner join.

Null keys match nothing; NaN matches NaN. Rows come out in the order of the left input, so that a replay gives the same batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from libraries.columns.kernels.row_store import ColumnList, joined, take, take_or_null
from libraries.columns.kernels.rows import KeyedFrame, Met
from libraries.columns.state import OrderedRowsState, RowsState
from timely.data.batch import Batch, as_polars, concat, divide
from timely.data.kernels.series import frame_of, series_of
from timely.data.span import Span
from timely.errors import CodecError, GraphError, OperatorError, user_site
from timely.operators.base import Context, Operator, notify_of
from timely.operators.obligations import Declared
from timely.operators.stateless import operator_error
from timely.state import Parts, TimedBatches
from timely.time import Time, visible

CHANGE = "change"
"""Sign column of changes: 1 for an added row, -1 for a row taken back."""

LEFT, RIGHT = 0, 1

_PASSES = 3
"""Number of passes over the pairs of a time.

The first has the pairs of its left rows, the second those of its right rows with left rows that are kept, the third
those of its right rows with left rows of earlier times that are not kept yet.
"""

_OF_KEPT, _OF_EARLIER = 1, 2

_TAKING_BACK = (("left", "full", "anti"), ("right", "full"))
"""Kinds of joins with rows taken back: of the left side, and of the right side."""

_REFUSALS = (TypeError, ValueError, KeyError, CodecError, OperatorError, pl.exceptions.PolarsError)

How = Literal["inner", "left", "right", "full", "semi", "anti", "lookup"]


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


class Joining(Operator):
    """Base of joins: holds both inputs until a time is complete, then joins them.

    Input 0 is left, input 1 is right.

    Args:
        on: key columns, of the same names and types on both sides. Both inputs must be exchanged by them.
        right: columns and types of the right input. Without them, left rows that come before any right row cannot be given its
            columns, and are an error.
        suffix: appended to right columns whose names the left side has too.
        left: the same of the left input, for right rows that come out with nulls.
        kept: what is held of each side from time to time; nothing, if each time is joined by itself.
    """

    repeats_over: Declared = "time"
    moves_by_key = True

    verb = "join"

    def __init__(
        self,
        on: Sequence[str],
        right: Mapping[str, Any] | None,
        suffix: str,
        kept: Sequence[RowsState | OrderedRowsState],
        left: Mapping[str, Any] | None = None,
    ) -> None:
        self._on = list(on)
        self._suffix = suffix
        self._named = (left, right)
        self._schemas: list[pl.DataFrame | None] = [None, None]
        """Columns of each side, once asked for or shown by a batch."""
        self._pending = (TimedBatches(), TimedBatches())
        self.state = Parts(*self._pending, *kept)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        try:
            frame = as_polars(batch)
            columns = frame.columns
            missing = [key for key in self._on if key not in columns]
            if missing:
                raise KeyError(f"no key column {missing[0]!r}; this batch has {', '.join(map(repr, columns))}")
        except (TypeError, KeyError) as error:
            raise operator_error(f"join {ctx.name!r}", ctx.site, time, error, None, batch) from error
        self._pending[port].add(time, self._plain(frame))
        ctx.notify_at(time)

    def _plain(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Frame with categorical keys cast to text.

        Each batch may bring a dictionary of its own.
        """
        columns = frame.columns
        kinds = {key: frame.get_column(key).dtype for key in self._on if key in columns}
        coded = [key for key, kind in kinds.items() if _is_coded(kind)]
        return frame.with_columns(pl.col(coded).cast(pl.String)) if coded else frame

    def on_notify(self, ctx: Context, time: Time) -> None:
        new_left, new_right = (_whole(pending.pop(time)) for pending in self._pending)
        try:
            found = self._meet(time, new_left, new_right)
        except _REFUSALS as error:
            raise self._blame(ctx, time, error, new_left if new_left is not None else new_right) from error
        if found:
            ctx.send(_stacked(found))

    @staticmethod
    def _blame(ctx: Context, time: Time, error: Exception, sample: pl.DataFrame | None) -> OperatorError:
        """Error of this join for an error raised inside it."""
        if isinstance(error, OperatorError):
            return OperatorError(f"join {ctx.name!r} ({ctx.site}) at {visible(time)}: {error}")
        return operator_error(f"join {ctx.name!r}", ctx.site, time, error, None, sample)

    def _meet(self, time: Time, new_left: pl.DataFrame | None, new_right: pl.DataFrame | None) -> list[pl.DataFrame]:
        """Rows emitted at `time`."""
        raise NotImplementedError

    def _known(self, side: int, known: pl.DataFrame | None) -> pl.DataFrame:
        """Known rows of a side, or an empty frame with its columns.

        The columns are those seen, or those that the user has named.
        """
        named, schema = self._named[side], self._schemas[side]
        if schema is None and (named is not None or known is not None):
            schema = known.clear() if named is None and known is not None else self._plain(pl.DataFrame(schema=named))
            self._schemas[side] = schema
        if known is not None:
            return known
        if schema is not None:
            return schema
        if side == RIGHT:
            raise OperatorError(
                "left rows came before any right row, so the right columns are not known; name them: "
                f'{self.verb}(..., right={{"column": pl.Int64, ...}})'
            )
        raise OperatorError(
            "right rows came before any left row, so the left columns are not known; use a source that says them "
            "(Columns.schema), or to_columns(schema)"
        )

    def _beside(self, left: ColumnList, right: ColumnList) -> pl.DataFrame:
        """Joined pairs: left columns, then right ones without the keys."""
        taken = {column.name for column in left}
        others = [column for column in right if column.name not in self._on]
        return frame_of(
            left + [column.alias(column.name + self._suffix) if column.name in taken else column for column in others]
        )

    def _looked_up(self, left: ColumnList, met: Met | None, there: pl.DataFrame | None) -> pl.DataFrame:
        """All left rows with their matches on the right, or nulls.

        The right columns are those of `there`.
        """
        count = len(left[0])
        if met is None:
            return self._beside(left, self._known(RIGHT, there).clear(count).get_columns())
        alone = np.flatnonzero(~marked(met, count))
        places = np.concatenate([met.places, alone])
        order = np.argsort(places, kind="stable")
        rows = np.where(order < len(met.rows), order, -1)
        return self._beside(take(left, places[order]), take_or_null(met.columns, rows))


class ColumnJoin(Joining):
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
        self.how: How = how
        self._kept = (RowsState(on), RowsState(on)) if over == "scope" else None
        super().__init__(on, right, suffix, self._kept or (), left)
        self.spans = how == "inner" and over == "scope"
        if over == "scope" and how in ("inner", "semi"):
            self.repeats_over = "record"

    def on_span(self, ctx: Context, port: int, span: Span) -> None:
        try:
            plain = not any(_is_coded(span.get_column(key).dtype) for key in self._on)
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
        except _REFUSALS as error:
            time = max(span.times[0] for span in some)  # from then on both sides are known
            raise self._blame(ctx, time, error, some[0].frame) from error

    def _meet_several(self, times: Sequence[Time], mine: Span | None, theirs: Span | None) -> list[Span]:
        """Pairs of a running inner join at several times, in the order of `_meet`."""
        assert self._kept is not None
        left, right = self._kept
        upto = times[-1]
        before = len(right.rows(upto))
        found: list[pl.DataFrame] = []
        orders: list[npt.NDArray[np.intp]] = []
        if theirs is not None:
            came = theirs.numbers(times)
            their = KeyedFrame(theirs, self._on)
            right.append_several(theirs.times, theirs.ends, their)
        if mine is not None:
            my = KeyedFrame(mine, self._on)
            met = right.rows(upto).meet(my)
            if met is not None:
                at = mine.numbers(times)[met.places]
                found.append(self._beside(my.take(met.places), met.columns))
                later = np.zeros(0, np.intp)
                if theirs is not None:
                    new = np.flatnonzero(met.rows >= before)
                    other = came[met.rows[new] - before]
                    later, other = new[other > at[new]], other[other > at[new]]
                order = at * _PASSES
                if len(later):
                    order[later] = other * _PASSES + _OF_EARLIER
                orders.append(order)
        if theirs is not None and (met := left.rows(upto).meet(their, by_row=True)) is not None:
            found.append(self._beside(met.columns, their.take(met.places)))
            orders.append(came[met.places] * _PASSES + _OF_KEPT)
        if mine is not None:
            left.append_several(mine.times, mine.ends, my)
        if not found:
            return []
        frame, order = _stacked(found), np.concatenate(orders)
        if not (order[1:] >= order[:-1]).all():
            sorting = order.argsort(kind="stable")
            frame, order = frame_of(take(frame.get_columns(), sorting)), order[sorting]
        return [Span.cut(frame, times, order // _PASSES)]

    def _meet(self, time: Time, new_left: pl.DataFrame | None, new_right: pl.DataFrame | None) -> list[pl.DataFrame]:
        if self._kept is None:
            return self._join(new_left, new_right)
        left, right = self._kept
        mine = None if new_left is None else KeyedFrame(new_left, self._on)
        theirs = None if new_right is None else KeyedFrame(new_right, self._on)
        if self.how == "semi":
            return self._meet_once(time, mine, theirs)
        if self.how in ("left", "right", "full", "anti"):
            return self._changes(time, mine, theirs)
        if theirs is not None:
            right.append(time, theirs)
        found: list[pl.DataFrame] = []
        if mine is not None:
            met = right.rows(time).meet(mine)
            if met is not None and self.how == "inner":
                found.append(self._beside(mine.take(met.places), met.columns))
            elif self.how == "lookup":
                found.append(self._looked_up(mine.frame.get_columns(), met, right.rows(time).columns()))
        if self.how == "inner":
            if theirs is not None and (met := left.rows(time).meet(theirs, by_row=True)) is not None:
                found.append(self._beside(met.columns, theirs.take(met.places)))
            if mine is not None:
                left.append(time, mine)
        return found

    def _meet_once(self, time: Time, mine: KeyedFrame | None, theirs: KeyedFrame | None) -> list[pl.DataFrame]:
        """Left rows with their first match at `time`.

        Kept are left rows without one, and each right key once.
        """
        assert self._kept is not None
        left, right = self._kept
        found: list[pl.DataFrame] = []
        new_keys = self._new_keys(time, RIGHT, theirs)
        if new_keys is not None:
            waiting = left.rows(time).meet(new_keys, by_row=True)
            found += [] if waiting is None else [frame_of(waiting.columns)]
            right.append(time, new_keys)
        if mine is not None:
            met = right.rows(time).meet(mine)
            matched = series_of("", marked(met, len(mine.frame)))
            some, others = divide(mine.frame, matched)
            found += [as_polars(some)] if len(some) else []
            if len(others):
                left.append(time, KeyedFrame(as_polars(others), self._on))
        return found

    def _new_keys(self, time: Time, side: int, rows: KeyedFrame | None) -> KeyedFrame | None:
        """Keys new to their side, each once; None if there are none."""
        if rows is None or self._kept is None:
            return None
        keys = rows.frame.select(self._on)
        new = keys.filter(~marked(self._kept[side].rows(time).meet(rows), len(keys)))
        new = new.drop_nulls().unique(maintain_order=True)
        return KeyedFrame(new, self._on) if len(new) else None

    def _changes(self, time: Time, mine: KeyedFrame | None, theirs: KeyedFrame | None) -> list[pl.DataFrame]:
        """Changes of a running join: rows taken back, new pairs, new rows without a match."""
        assert self._kept is not None
        new = (mine, theirs)
        sides = [side for side in (LEFT, RIGHT) if self.how in _TAKING_BACK[side]]
        found: list[pl.DataFrame] = []
        for side in sides:
            keys = self._new_keys(time, 1 - side, new[1 - side])
            if keys is not None and (waiting := self._kept[side].rows(time).meet(keys, by_row=True)) is not None:
                found.append(self._alone(time, side, waiting.columns, new[1 - side], -1))
            if self.how == "anti":
                theirs = keys  # of the right side each key once
        left, right = self._kept
        before = len(right.rows(time))
        matched = [np.zeros(0 if rows is None else len(rows.frame), bool) for rows in new]
        if theirs is not None:
            right.append(time, theirs)
            if self.how != "anti" and (met := left.rows(time).meet(theirs, by_row=True)) is not None:
                found.append(signed(self._beside(met.columns, theirs.take(met.places)), 1))
                matched[RIGHT][met.places] = True
        if mine is not None:
            if (met := right.rows(time).meet(mine)) is not None:
                matched[LEFT][met.places] = True
                if self.how != "anti":
                    found.append(signed(self._beside(mine.take(met.places), met.columns), 1))
                    matched[RIGHT][met.rows[met.rows >= before] - before] = True
            left.append(time, mine)
        for side in sides:
            rows = new[side]
            if rows is not None and not matched[side].all():
                alone = rows.take(np.flatnonzero(~matched[side]))
                found.append(self._alone(time, side, alone, new[1 - side], 1))
        return found

    def _alone(self, time: Time, side: int, rows: ColumnList, others: KeyedFrame | None, sign: int) -> pl.DataFrame:
        """Unmatched rows of a side, with nulls for the other side and a sign.

        An anti join has no columns of the other side.
        """
        assert self._kept is not None
        if self.how == "anti":
            return signed(frame_of(rows), sign)
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


def _is_coded(kind: pl.DataType) -> bool:
    return isinstance(kind, pl.Categorical | pl.Enum)


def _stacked(frames: list[pl.DataFrame]) -> pl.DataFrame:
    if len(frames) == 1:
        return frames[0]
    if any(frame.columns != frames[0].columns for frame in frames):
        return as_polars(concat(frames))
    return frame_of(joined([frame.get_columns() for frame in frames]))


def signed(frame: pl.DataFrame, sign: int) -> pl.DataFrame:
    """Rows of `frame` with a sign column; TypeError if its name is taken."""
    refuse_change(frame.columns)
    return frame.with_columns(pl.lit(sign, pl.Int8).alias(CHANGE))


def refuse_change(columns: Sequence[str]) -> None:
    """Raise TypeError if a column has the name of the sign."""
    if CHANGE in columns:
        raise TypeError(f"a column is called {CHANGE!r}, which is the name of the sign of changes: rename it before")


def marked(met: Met | None, count: int) -> npt.NDArray[np.bool_]:
    """Mask of `count` rows: True for those with a match."""
    marks = np.zeros(count, np.bool_)
    if met is not None:
        marks[met.places] = True
    return marks


def _whole(batches: Sequence[Batch]) -> pl.DataFrame | None:
    return as_polars(concat(batches)) if batches else None
