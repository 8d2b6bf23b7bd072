"""Operator of all queries: applies a function to each time's data once complete."""

from __future__ import annotations

from collections.abc import Callable

from timely.data.batch import Batch, concat
from timely.operators.base import Context, Operator
from timely.state import Parts, TimedBatches
from timely.time import Time

EachTimeFunction = Callable[..., Batch]
"""Function of each input's batch, or None for an input without data."""


class EachTime(Operator):
    """Applies `function` to all data of a time, once."""

    repeats_over = "time"

    def __init__(self, inputs: int, function: EachTimeFunction) -> None:
        self._held = tuple(TimedBatches() for _ in range(inputs))
        self._function = function
        self.state = Parts(*self._held)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self._held[port].add(time, batch)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        came = [each.pop(time) for each in self._held]
        ctx.send(self._function(*(concat(batches) if batches else None for batches in came)))
