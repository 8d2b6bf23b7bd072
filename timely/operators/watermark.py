"""Event-time watermarks, equal on every worker and in every replay.

A watermark says that records with earlier event times are no longer waited for. Here it moves only when an epoch is
complete, to the greatest event time that *any* worker has met up to that epoch, minus the allowed lateness. Whether a
record is late depends on its epoch and event time, and on nothing that a schedule could change: the records of an epoch
are judged by the watermark of the epochs before it. (Akidau et al., *The Dataflow Model*, VLDB 2015, section 2.3, has
watermarks by wall-clock progress; those differ from run to run.)

Two operators make it: `EventTimes`, where each worker tells all others the greatest event time of an epoch, and `Lateness`
behind it. Rows that windows combine go to the worker of their key after both.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

from timely.data.batch import Batch
from timely.data.span import in_few_batches
from timely.errors import OperatorError, shown
from timely.operators.base import Context, Operator
from timely.operators.keyed import pairs_of
from timely.operators.stateless import operator_error
from timely.operators.window_shapes import LagOf, marked
from timely.state import KeyedState, Parts, TimedBatches, TimedValues
from timely.state.moving import everywhere
from timely.time import Time

_MARK = "mark"

ON_TIME, LATE, WATERMARKS = 0, 1, 2
"""Output ports of `Lateness`."""


class EventTimes(Operator):
    """Port 0: rows with event times. Port 1: the greatest event time of each epoch."""

    repeats_over = "time"

    def __init__(self) -> None:
        self._greatest = TimedValues()
        self.state = self._greatest

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        stamped, greatest = self._stamped(ctx, batch)
        ctx.send(stamped)
        self._reaches(time, greatest)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        ctx.send(list(self._greatest.pop(time).values()), 1)

    def _reaches(self, time: Time, at: Any) -> None:
        """Raise the greatest event time of an epoch to `at`."""
        _raise_to(self._greatest, time, at)

    def _stamped(self, ctx: Context, batch: Batch) -> tuple[Batch, Any]:
        """Rows made from `batch` for port 0, and its greatest event time."""
        raise NotImplementedError


class RecordTimes(EventTimes):
    """Port 0: (key, event time, value) for each pair (key, value)."""

    def __init__(self, time_of: Callable[[Any], Any], datetimes: bool) -> None:
        super().__init__()
        self._time_of = time_of
        self._datetimes = datetimes

    def _stamped(self, ctx: Context, batch: Batch) -> tuple[Batch, Any]:
        pairs = pairs_of(batch)
        times = self._times(ctx, pairs)
        return [(key, at, value) for at, (key, value) in zip(times, pairs)], max(times)

    def _times(self, ctx: Context, pairs: Sequence[tuple[Any, Any]]) -> list[Any]:
        time_of, normal = self._time_of, _instant if self._datetimes else _number
        try:
            times = [time_of(value) for _, value in pairs]
            if not self._datetimes and set(map(type, times)) == {int}:
                return times
            return [normal(at) for at in times]
        except Exception:
            for pair in pairs:
                try:
                    normal(time_of(pair[1]))
                except Exception as error:
                    what = f"the event time of {ctx.name!r}"
                    raise operator_error(what, ctx.site, ctx.time, error, shown(pair), None) from error
            raise


def _number(at: Any) -> Any:
    if isinstance(at, float):
        if not isfinite(at):
            raise OperatorError(f"{at} is no event time: filter such records out before window()")
        return at
    if isinstance(at, int):
        return at
    if hasattr(at, "item") and isinstance(at.item(), int | float):
        return _number(at.item())
    hint = ": give lengths, and lateness=, as timedeltas" if isinstance(at, dt.datetime) else ""
    raise OperatorError(
        f"lengths of windows, and lateness=, are numbers, but an event time is {shown(at)} ({type(at).__name__}){hint}"
    )


def _instant(at: Any) -> dt.datetime:
    if isinstance(at, dt.datetime):
        return at if at.tzinfo is None else at.astimezone(dt.UTC)
    raise OperatorError(
        f"lengths of windows, and lateness=, are timedeltas, but an event time is {shown(at)} ({type(at).__name__}), not a "
        "datetime"
    )


def _raise_to(greatest: TimedValues, time: Time, at: Any) -> None:
    held = greatest.at(time)
    if _MARK not in held or held[_MARK] < at:
        held[_MARK] = at


class Lateness(Operator):
    """Holds the records of an epoch until it is complete, and splits late ones off.

    Port 0 takes records with event times, port 1 the greatest event times of all workers. Out go the records on time, the late
    ones as they first came, and the watermark whenever it moves.
    """

    repeats_over = "time"

    def __init__(self, allowed: Any) -> None:
        self._allowed = allowed
        self._records = TimedBatches()
        self._greatest = TimedValues()
        self._watermark = everywhere(KeyedState())
        self.state = Parts(self._records, self._greatest, self._watermark)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        if port == 0:
            self._records.add(time, batch)
        else:
            _raise_to(self._greatest, time, max(batch))
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        watermark = self._watermark.read(time).get(_MARK)
        for batch in in_few_batches(self._records.pop(time)):
            on_time, late = self._part(batch, watermark)
            ctx.send(on_time, ON_TIME)
            ctx.send(late, LATE)
        self._raise(ctx, time, watermark)

    def _raise(self, ctx: Context, time: Time, watermark: Any) -> None:
        """Raise the watermark, so far `watermark`, by the event times of `time`."""
        for greatest in self._greatest.pop(time).values():
            reached = marked(greatest, self._allowed)
            if watermark is None or reached > watermark:
                self._watermark.write(time, {_MARK: reached})
                ctx.send([reached], WATERMARKS)

    def _marks(self, times: Sequence[Time]) -> list[Any]:
        """Watermarks in force at each of several complete times."""
        watermark = self._watermark.read(times[0]).get(_MARK)
        found = []
        for time in times:
            found.append(watermark)
            for greatest in self._greatest.at(time).values():
                reached = marked(greatest, self._allowed)
                watermark = reached if watermark is None else max(watermark, reached)
        return found

    def _part(self, batch: Batch, watermark: Any) -> tuple[Batch, Batch]:
        """Split a batch into rows on time and late ones; `watermark` is None at first."""
        raise NotImplementedError


class RecordLateness(Lateness):
    """`Lateness` for records (key, event time, value).

    Late ones leave as (key, value).

    A record of which some windows have closed and some have not is both.
    """

    def __init__(self, lag: LagOf, allowed: Any) -> None:
        super().__init__(allowed)
        self._lag = lag

    def _part(self, batch: Batch, watermark: Any) -> tuple[Batch, Batch]:
        if watermark is None:
            return batch, []
        on_time = [record for record in batch if not record[1] < watermark]
        if len(on_time) == len(batch):
            return batch, []
        lag_of = self._lag
        on_time = []
        late: list[Any] = []
        for record in batch:
            lag = lag_of(record[1], watermark) if record[1] < watermark else 0
            if lag:
                late.append((record[0], record[2]))
            if lag < 2:
                on_time.append(record)
        return on_time, late
