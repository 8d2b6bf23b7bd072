"""Bringing an operator back by its full history: every event once more, with what it sends thrown away.

This needs no checkpoint code, only determinism: the same events in the same order lead to the same state (Isard and Abadi,
*Falkirk Wheel*, section 4.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from recovery.recorder import NOTIFICATION, RESULT, Event
from timely.operators.base import Context, Operator
from timely.order import Time
from timely.plan import Processor
from timely.runtime import build_operator
from timely.state.interface import Run


class _Silent:
    """An engine that lets an operator ask for anything, and does nothing."""

    def request(self, op: int, event: Time, time: Time) -> None:
        """It asked already, in its first life: what is outstanding is armed again by the worker."""

    def hold(self, op: int, time: Time, diff: int) -> None:
        """Capabilities of complete times were given back."""

    def start(self, op: int, time: Time, job: Callable[..., Any], context: bool) -> None:
        """The result is in the history."""


def replay(processor: Processor, runs: Iterable[Run], events: Iterable[Event], worker: int, workers: int) -> Operator:
    """A new operator of `processor` that has the state `runs`, and has seen `events` since, in their order."""
    node = processor.node
    operator = build_operator(processor, [])
    if operator.state is not None:
        operator.state.restore(runs)
    ctx = Context(_Silent(), processor.index, node.name, node.site, worker, workers)
    for event in events:
        ctx.time = event.time
        if event.port == NOTIFICATION:
            ctx.pending.pop(event.time, None)
            operator.on_notify(ctx, event.time)
        elif event.port == RESULT:
            operator.on_result(ctx, event.time, event.what)
        else:
            operator.on_batch(ctx, event.port, event.time, event.what)
        ctx.out.clear()
    return operator
