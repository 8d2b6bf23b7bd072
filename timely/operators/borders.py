"""Borders of scopes and regions: enter, leave, feedback and gates.

Entering adds a coordinate to times, leaving drops it, feedback advances it.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any

from timely.data.batch import Batch, is_columns
from timely.errors import OperatorError
from timely.operators.base import Context, Operator
from timely.time import INF, Time


class Enter(Operator):
    """Brings a stream into a scope, at coordinate 0 or at `at(record)`.

    Coordinates given by `at` count from the start of the job and must not be reused for other work: under the product
    order nothing says that (1, 0) comes after (0, 100).
    """

    repeats_over = "record"

    def __init__(self, at: Callable[[Any], int] | None = None) -> None:
        self.at = at
        self.keeps_batches = at is None

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        if self.at is None:
            ctx.out.append((0, (*time, 0), batch))
            return
        if is_columns(batch) or not isinstance(batch, list):
            raise OperatorError(f"{ctx.name!r} ({ctx.site}): enter(at=...) takes records; use to_records() first")
        parts: dict[int, list[Any]] = {}
        for record in batch:
            coordinate = index(self.at(record))
            if coordinate < 0:
                raise ValueError(f"enter(at=...) must give coordinates from 0 up, not {coordinate} for {record!r:.200}")
            parts.setdefault(coordinate, []).append(record)
        for coordinate, records in parts.items():
            ctx.out.append((0, (*time, coordinate), records))


class Leave(Operator):
    """Takes a stream out of its scope: drops the innermost coordinate of its times."""

    repeats_over = "record"

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        ctx.out.append((0, time[:-1], batch))


class Feedback(Operator):
    """Sends a stream round again, `delay` iterations later.

    What would begin iteration `limit` or a later one is dropped, and what is sent when the loop is over, at iteration INF:
    it only leaves.
    """

    repeats_over = "record"

    def __init__(self, limit: int | None = None, delay: int = 1) -> None:
        self._limit = limit
        self._delay = delay

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        after = time[-1] + self._delay
        if after <= INF and (self._limit is None or after < self._limit):
            ctx.out.append((0, (*time[:-1], after), batch))


class Gate(Operator):
    """Passes every batch on unchanged."""

    repeats_over = "record"
    keeps_batches = True

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        ctx.out.append((0, time, batch))
