"""Spans: rows of several times in one frame, one time after the other.

An operator that takes a span does in one pass what it would do once a time, and says of the rows that come out where each time
ends. What few rows cost is mostly by the call, so that is where many small epochs gain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import cast

import numpy as np
import numpy.typing as npt
import polars as pl

from timely.data.batch import AnyBatch, Batch, alike, runs_of, same_types
from timely.data.kernels.columns import Numbers
from timely.data.kernels.series import frame_of, series_of, stacked_of
from timely.time import Time


class Span:
    """Rows of ascending `times`, split at `ends`; no time is empty.

    >>> import polars as pl
    >>> span = Span.of([((0,), pl.DataFrame({"n": [1, 2]})), ((3,), pl.DataFrame({"n": [3]}))])
    >>> [(time, frame["n"].to_list()) for time, frame in span.parts()]
    [((0,), [1, 2]), ((3,), [3])]
    """

    __slots__ = ("_frame", "_frames", "_made", "_stacked", "ends", "times")

    def __init__(self, frame: pl.DataFrame, times: Sequence[Time], ends: Sequence[int]) -> None:
        self._frame: pl.DataFrame | None = frame
        self._frames: Sequence[pl.DataFrame] = ()
        """One frame a time, if there is no frame of all rows."""
        self._made: Mapping[str, pl.Series | None] | None = {}
        """Columns by name over `_frames`; None for a column of the frames.

        None as a whole: those of the frames, of which nobody has checked yet that they are the same.
        """
        self._stacked: dict[str, pl.Series] = {}
        """Cache of columns of the frames in one piece."""
        self.times = times
        self.ends = ends

    def __len__(self) -> int:
        """Number of rows."""
        return self.ends[-1]

    @classmethod
    def of(cls, parts: Sequence[tuple[Time, pl.DataFrame]]) -> Span:
        """Span of non-empty parts in time order.

        Raises:
            TypeError: if those of one time are not of the same columns and types. Of several it is raised when columns are
                asked for.
        """
        times, frames = [], []
        for time, of_time in groupby(parts, itemgetter(0)):
            times.append(time)
            same = [frame for _, frame in of_time]
            if len(same) > 1:
                _check_types(same)
            frames.append(_in_one_piece(same))
        span = cls(frames[0], times, list(accumulate(frame.height for frame in frames)))
        if len(frames) > 1:
            span._frame, span._frames, span._made = None, frames, None
        return span

    def having(self, columns: Mapping[str, pl.Series | None]) -> Span:
        """Span of the same rows with these columns, in this order.

        None stands for the present column of that name.

        What nobody looks at is not copied.

        Raises:
            TypeError: if times have other columns.
        """
        span = Span.__new__(Span)
        span.times, span.ends = self.times, self.ends
        span._frame, span._frames, span._made, span._stacked = None, self._frames, columns, self._stacked
        if self._frames:
            mine = self._columns()
            if any(mine.get(name) is not None for name in columns):
                span._made = {name: mine.get(name) if column is None else column for name, column in columns.items()}
        else:
            assert self._frame is not None
            of = self._frame.get_column
            span._frame = frame_of(
                [of(name) if column is None else series_of(name, column) for name, column in columns.items()]
            )
        return span

    def beside(self, column: pl.Series) -> Span:
        """Span with one column more."""
        return self.having({**dict.fromkeys(self.columns), column.name: column})

    def _columns(self) -> Mapping[str, pl.Series | None]:
        """Columns of a span without a frame of all rows."""
        if self._made is None:
            _check_names(self._frames)
            self._made = dict.fromkeys(self._frames[0].columns)
        return self._made

    @property
    def frame(self) -> pl.DataFrame:
        """All rows as a frame.

        Raises:
            TypeError: if times have columns of different types.
        """
        if self._frame is None:
            self._frame = frame_of([self.get_column(name) for name in self._columns()])
        return self._frame

    def check_types(self) -> None:
        """Raise TypeError if column names or types differ between times."""
        if self._frame is None:
            _check_types(self._frames)

    @property
    def columns(self) -> list[str]:
        """Column names."""
        return list(self._columns()) if self._frame is None else self._frame.columns

    def get_column(self, name: str) -> pl.Series:
        """One column, in one piece of memory.

        Raises:
            TypeError: if times have it in different types.
            pl.exceptions.ColumnNotFoundError: if there is none.
        """
        if self._frame is not None:
            return self._frame.get_column(name)
        columns = self._columns()
        if name not in columns:
            raise pl.exceptions.ColumnNotFoundError(name)
        if (made := columns[name]) is not None:
            return series_of(name, made)
        stacked = self._stacked.get(name)
        if stacked is None:
            try:
                stacked = self._stacked[name] = stacked_of(self._frames, name)
            except pl.exceptions.PolarsError as error:
                raise TypeError(f"the column {name!r} is not of one type") from error
        return stacked

    @classmethod
    def cut(cls, frame: pl.DataFrame, times: Sequence[Time], numbers: npt.NDArray[np.integer]) -> Span:
        """Span of rows with ascending time numbers; at least one row."""
        ends = np.bincount(numbers, minlength=len(times)).cumsum().tolist()
        return cls(frame, times, ends)._without_empty()

    def kept(self, frame: pl.DataFrame, masks: Sequence[npt.NDArray[np.bool_]]) -> list[Span]:
        """Span of `frame`, the rows kept by successive masks; empty if none are."""
        if not frame.height:
            return []
        ends = np.asarray(self.ends)
        for mask in masks:
            ends = np.cumsum(mask)[ends - 1] * (ends > 0)
        return [Span(frame, self.times, ends.tolist())._without_empty()]

    def _without_empty(self) -> Span:
        begins = [0, *self.ends[:-1]]
        if any(begin == end for begin, end in zip(begins, self.ends, strict=True)):
            some = [number for number, end in enumerate(self.ends) if end > begins[number]]
            self.times, self.ends = [self.times[each] for each in some], [self.ends[each] for each in some]
        return self

    def parts(self) -> Iterator[tuple[Time, pl.DataFrame]]:
        """Each time with its rows."""
        if self._frames and self._made is None:
            yield from zip(self.times, self._frames, strict=True)
            return
        bounds = pairwise((0, *self.ends))
        if self._frames:
            columns = self._columns()
            names, there = list(columns), self._frames[0].columns
            made = [(place, column) for place, column in enumerate(columns.values()) if column is not None]
            if names[: len(there)] == there:
                put = [(place, series_of(names[place], column)) for place, column in made]
                new = [column for place, column in put if place >= len(there)]
                put = put[: len(put) - len(new)]
                for time, frame, (begin, end) in zip(self.times, self._frames, bounds, strict=True):
                    if put:
                        frame = frame.clone()
                        for place, column in put:
                            frame.replace_column(place, column.slice(begin, end - begin))
                    yield time, frame.hstack([column.slice(begin, end - begin) for column in new]) if new else frame
                return
            if len(made) < len(names):
                for time, frame, (begin, end) in zip(self.times, self._frames, bounds, strict=True):
                    of = {name: frame.get_column(name) for name, column in columns.items() if column is None}
                    of |= {names[place]: series_of(names[place], column)[begin:end] for place, column in made}
                    yield time, frame_of([of[name] for name in names])
                return
        frame = self.frame
        for time, (begin, end) in zip(self.times, bounds, strict=True):
            yield time, frame.slice(begin, end - begin)

    def numbers(self, times: Sequence[Time]) -> Numbers:
        """Index into `times` of each row's time."""
        place = {time: number for number, time in enumerate(times)}
        lengths = [end - begin for begin, end in pairwise((0, *self.ends))]
        return np.repeat(np.array([place[time] for time in self.times]), lengths)

    def divided(self, time: Time) -> tuple[Span | None, Span | None]:
        """Split at `time`: rows of times up to it, and the others; None if empty."""
        few = sum(each <= time for each in self.times)
        if few in (0, len(self.times)):
            return (self, None) if few else (None, self)
        end = self.ends[few - 1]
        return (
            Span(self.frame.slice(0, end), self.times[:few], self.ends[:few]),
            Span(self.frame.slice(end), self.times[few:], [each - end for each in self.ends[few:]]),
        )


def _in_one_piece(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Concatenated frames of the same columns and types."""
    return frames[0] if len(frames) == 1 else frame_of([stacked_of(frames, name) for name in frames[0].columns])


FEW_ROWS = 2048
"""Row limit for merging small frames: copying is cheaper than a separate batch."""


def in_few_batches(batches: Sequence[AnyBatch]) -> list[AnyBatch]:
    """Merge neighbouring small frames of equal columns."""
    runs = runs_of(batches, lambda one, other: _is_small(one) and _is_small(other) and alike(one, other))
    return [run[0] if len(run) == 1 else cast(AnyBatch, _in_one_piece(cast(list[pl.DataFrame], run))) for run in runs]


def _is_small(batch: Batch) -> bool:
    return isinstance(batch, pl.DataFrame) and batch.height < FEW_ROWS


def _check_names(frames: Sequence[pl.DataFrame]) -> None:
    """Raise TypeError if column names differ between frames."""
    names = frames[0].columns
    if any(frame.columns != names for frame in frames):
        raise TypeError("the columns of batches differ")


def _check_types(frames: Sequence[pl.DataFrame]) -> None:
    """Raise TypeError if column names or types differ between frames."""
    _check_names(frames)
    types = frames[0].dtypes
    if not all(same_types(frame.dtypes, types) for frame in frames):
        raise TypeError("the types of columns differ")
