"""Base of joins: both inputs wait until a time is complete; then their rows meet.

Null keys match nothing; NaN matches NaN. Rows come out in the order of the left input, so that a replay gives the same batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from libraries.columns.kernels.row_store import ColumnList, joined, take, take_or_null
from libraries.columns.kernels.rows import Matches
from libraries.columns.state import OrderedRowsState, RowsState
from timely.data.batch import Batch, as_polars, concat
from timely.data.kernels.series import frame_of
from timely.errors import CodecError, OperatorError
from timely.operators.base import Context, Operator
from timely.operators.obligations import Declared
from timely.operators.stateless import operator_error
from timely.state import Parts, TimedBatches, TimedValues
from timely.time import Frontier, Time, visible

CHANGE = "change"
"""Sign column of changes: 1 for an added row, -1 for a row taken back."""

LEFT, RIGHT = 0, 1

REFUSALS = (TypeError, ValueError, KeyError, CodecError, OperatorError, pl.exceptions.PolarsError)
"""Errors of a join by its rows."""


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

    hidden: tuple[str, ...] = ()
    """Columns left out of the joined rows."""

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
        self.state = self._parts(kept)

    def _parts(self, kept: Sequence[RowsState | OrderedRowsState]) -> Parts:
        return Parts(*self._pending, *kept)

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
        coded = [key for key, kind in kinds.items() if is_coded(kind)]
        return frame.with_columns(pl.col(coded).cast(pl.String)) if coded else frame

    def on_notify(self, ctx: Context, time: Time) -> None:
        new_left, new_right = (_whole(pending.pop(time)) for pending in self._pending)
        try:
            found = self._meet(time, new_left, new_right)
        except REFUSALS as error:
            raise self._blame(ctx, time, error, new_left if new_left is not None else new_right) from error
        if found:
            ctx.send(stacked(found))

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
        others = [column for column in right if column.name not in self._on and column.name not in self.hidden]
        if self.hidden:
            left = [column for column in left if column.name not in self.hidden]
        return frame_of(
            left + [column.alias(column.name + self._suffix) if column.name in taken else column for column in others]
        )

    def _looked_up(self, left: ColumnList, met: Matches | None, there: pl.DataFrame | None) -> pl.DataFrame:
        """All left rows with their matches on the right, or nulls.

        The right columns are those of `there`.
        """
        count = len(left[0])
        if met is None:
            return self._beside(left, self._known(RIGHT, there).clear(count).get_columns())
        unmatched = np.flatnonzero(~marked(met, count))
        places = np.concatenate([met.places, unmatched])
        order = np.argsort(places, kind="stable")
        rows = np.where(order < len(met.rows), order, -1)
        return self._beside(take(left, places[order]), take_or_null(met.columns, rows))


class Watermarked(Joining):
    """Base of joins with old rows dropped, by watermarks from inputs 2 and on.

    Late rows are split off before, on the worker that has read them, so no row of a side comes before its watermark.
    Dropping changes no result: it waits until nothing will be rolled back behind the watermark.
    """

    transient = ("_reached",)

    def _parts(self, kept: Sequence[RowsState | OrderedRowsState]) -> Parts:
        self._marks = TimedValues()
        self._reached: list[tuple[Time, int, int]] = []
        """Revocable watermarks: time, side and mark."""
        return Parts(*self._pending, self._marks, *kept)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        if port > RIGHT:
            self._marks.at(time)[port - RIGHT - 1] = batch[0]
            ctx.notify_at(time)
        else:
            super().on_batch(ctx, port, time, batch)

    def on_notify(self, ctx: Context, time: Time) -> None:
        self._reached += [(time, side, mark) for side, mark in self._marks.pop(time).items()]
        super().on_notify(ctx, time)

    def on_watermark(self, frontier: Frontier) -> None:
        super().on_watermark(frontier)
        final = dict(sorted((side, mark) for time, side, mark in self._reached if time in frontier))  # the last counts
        if final:
            self._reached = [each for each in self._reached if each[0] not in frontier]
        for side, mark in final.items():
            self._passed(side, mark)

    def _passed(self, side: int, mark: int) -> None:
        """Drop rows out of reach of all rows of `side` to come."""
        raise NotImplementedError


def is_coded(kind: pl.DataType) -> bool:
    """True for types with a dictionary of their own in each batch."""
    return isinstance(kind, pl.Categorical | pl.Enum)


def stacked(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Rows of several frames as one."""
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


def marked(met: Matches | None, count: int) -> npt.NDArray[np.bool_]:
    """Mask of `count` rows: True for those with a match."""
    marks = np.zeros(count, np.bool_)
    if met is not None:
        marks[met.places] = True
    return marks


def _whole(batches: Sequence[Batch]) -> pl.DataFrame | None:
    return as_polars(concat(batches)) if batches else None
