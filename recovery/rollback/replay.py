"""Bringing an operator back by its full history: every event once more, with what it sends thrown away.

This needs no checkpoint code, only determinism: the same events in the same order lead to the same state (Isard and Abadi,
*Falkirk Wheel*, section 4.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from recovery.checkpoint.operator_memory import Beside
from recovery.recorder import NOTIFICATION, RESULT, HistoryEvent
from timely.operators.base import Operator, give_back
from timely.state.interface import Run
from timely.time import Time
from timely.worker.processor import Runtime, build_operator


class _Silent:
    """An engine that lets an operator ask for anything, and does nothing."""

    def request(self, op: int, event: Time, time: Time, again: bool = False) -> None:
        """It asked already, in its first life: what is outstanding is armed again by the worker."""

    def hold(self, op: int, time: Time, diff: int, own: bool = False) -> None:
        """Do nothing: capabilities that are held in the end were counted by the recorder."""

    def start(self, op: int, time: Time, job: Callable[..., Any], context: bool, own: bool = False) -> None:
        """The result is in the history."""


def replay(
    runtime: Runtime,
    runs: Iterable[Run],
    held: Iterable[tuple[Time, int]],
    events: Iterable[HistoryEvent],
    beside: Beside,
) -> Operator:
    """A new operator that has the state `runs` and capabilities `held`, and has seen `events` since, in their order.

    Its capabilities belong to the context of `runtime`. Of each event it is noted once more whether the operator keeps more
    than its `state` after it.
    """
    ctx, p = runtime.ctx, runtime.processor.index
    operator = build_operator(runtime.processor, [])
    beside.made(p, operator)
    looks = p in beside.of and operator.state is not None
    if operator.state is not None:
        operator.state.restore(runs)
    if held:
        give_back(operator, ctx, held)
    engine, ctx.engine = ctx.engine, _Silent()
    ctx.pending = {}
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
        if looks:
            event.beside = beside.keeps(p, operator)
    ctx.engine = engine
    return operator
