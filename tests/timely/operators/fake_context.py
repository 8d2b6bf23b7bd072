"""A context that hands an operator its events and keeps what it sends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.recovery.fixed_point.times import MaximalTimes
from timely.data.batch import Batch, length
from timely.operators.base import Operator
from timely.time import Time


class FakeContext:
    """Stands in for `timely.operators.base.Context`."""

    def __init__(self, workers: int = 1) -> None:
        self.name, self.site, self.worker, self.workers = "under test", "here.py:1", 0, workers
        self.time: Time = ()
        self.sent: list[tuple[Time, Any]] = []
        self.asked: set[Time] = set()

    def send(self, batch: Batch, port: int = 0) -> None:
        if length(batch):
            self.sent.append((self.time, batch))

    def notify_at(self, time: Time | None = None) -> None:
        self.asked.add(self.time if time is None else time)


def feed(
    operator: Operator, events: Iterable[tuple[int, Time, Batch]], compact: bool = True, workers: int = 1
) -> list[tuple[Time, Any]]:
    """Deliver (port, time, batch) events, then each notification asked for, least time first; what was sent."""
    ctx: Any = FakeContext(workers)
    for port, time, batch in events:
        ctx.time = time
        operator.on_batch(ctx, port, time, batch)
    for time in sorted(ctx.asked):
        ctx.time = time
        operator.on_notify(ctx, time)
        if compact and operator.state is not None:
            operator.state.compact(MaximalTimes.of([time]).to_frontier())
    return ctx.sent  # type: ignore[no-any-return]
