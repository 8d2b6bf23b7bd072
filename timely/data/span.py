"""Spans: rows of several times, one time after the other, in one frame.

An operator that takes a span does in one pass what it would do once a time, and says of the rows that come out where each time
ends. What few rows cost is mostly by the call, so that is where many small epochs gain.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from timely.data.kernels.columns import Numbers
from timely.data.kernels.series import frame_of, stacked_of
from timely.time import Time


class Span:
    """The rows of `times`, which rise: those of the first end before row `ends[0]`, and so on. Each time has some.

    >>> import polars as pl
    >>> span = Span.of([((0,), pl.DataFrame({"n": [1, 2]})), ((3,), pl.DataFrame({"n": [3]}))])
    >>> [(time, frame["n"].to_list()) for time, frame in span.parts()]
    [((0,), [1, 2]), ((3,), [3])]
    """

    __slots__ = ("_frame", "_frames", "ends", "times")

    def __init__(self, frame: pl.DataFrame, times: Sequence[Time], ends: Sequence[int]) -> None:
        self._frame: pl.DataFrame | None = frame
        self._frames: Sequence[pl.DataFrame] = (frame,)
        """Its rows, one frame after the other, as many as times where there are several."""
        self.times = times
        self.ends = ends

    def __len__(self) -> int:
        """The number of rows."""
        return self.ends[-1]

    @classmethod
    def of(cls, parts: Sequence[tuple[Time, pl.DataFrame]]) -> Span:
        """The rows of parts, none of which is empty, and whose times never fall.

        Raises:
            TypeError: if they are not of the same columns.
        """
        first = parts[0][1]
        times, frames = [parts[0][0]], [first]
        columns = first.columns
        for time, frame in parts[1:]:
            if frame.columns != columns:
                raise TypeError("the columns of batches differ")
            if time == times[-1]:
                frames[-1] = frames[-1].vstack(frame)
            else:
                times.append(time)
                frames.append(frame)
        span = cls(frames[0], times, list(accumulate(map(len, frames))))
        if len(frames) > 1:
            span._frame, span._frames = None, frames
        return span

    @property
    def frame(self) -> pl.DataFrame:
        """All rows.

        Raises:
            TypeError: if times have columns of different types.
        """
        if self._frame is None:
            self._frame = frame_of([self.get_column(name) for name in self.columns])
        return self._frame

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self._frames[0].columns

    def get_column(self, name: str) -> pl.Series:
        """A column, in one piece of memory.

        Raises:
            TypeError: if times have it in different types.
        """
        if self._frame is not None:
            return self._frame.get_column(name)
        try:
            return stacked_of(self._frames, name)
        except pl.exceptions.PolarsError as error:
            raise TypeError(f"the column {name!r} is not of one type") from error

    @classmethod
    def cut(cls, frame: pl.DataFrame, times: Sequence[Time], numbers: npt.NDArray[np.integer]) -> Span:
        """Rows, one at least, of which each is of the time with its number, and the numbers never fall."""
        ends = np.bincount(numbers, minlength=len(times)).cumsum().tolist()
        return cls(frame, times, ends)._without_empty()

    def kept(self, frame: pl.DataFrame, masks: Sequence[npt.NDArray[np.bool_]]) -> list[Span]:
        """`frame`, which has the rows that masks keep of this span, one mask after the other; nothing if there are none."""
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
        if len(self._frames) == len(self.times):
            yield from zip(self.times, self._frames, strict=True)
            return
        frame = self.frame
        for time, (begin, end) in zip(self.times, pairwise((0, *self.ends)), strict=True):
            yield time, frame.slice(begin, end - begin)

    def numbers(self, times: Sequence[Time]) -> Numbers:
        """Of each row, the number of its time among `times`, all of which are there."""
        place = {time: number for number, time in enumerate(times)}
        lengths = [end - begin for begin, end in pairwise((0, *self.ends))]
        return np.repeat(np.array([place[time] for time in self.times]), lengths)

    def divided(self, time: Time) -> tuple[Span | None, Span | None]:
        """The rows of times up to `time`, and the others; None: there are none."""
        few = sum(each <= time for each in self.times)
        if few in (0, len(self.times)):
            return (self, None) if few else (None, self)
        end = self.ends[few - 1]
        return (
            Span(self.frame.slice(0, end), self.times[:few], self.ends[:few]),
            Span(self.frame.slice(end), self.times[few:], [each - end for each in self.ends[few:]]),
        )
