"""Execution of `RollbackOrders` on recorder, checkpoints, operators and engine.

It is the one place where a rollback changes a worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recovery.checkpoint.attributes import Attributes
from recovery.checkpoint.checkpoints import Checkpoints
from recovery.checkpoint.operator_memory import OperatorMemory
from recovery.memory.recorder import WorkerRecorder
from recovery.memory.records import NOTIFICATION, RESULT
from recovery.metadata import to_frontier
from recovery.rollback.orders import Replay, RollbackOrders
from timely.data.messages import Frame
from timely.operators.base import Operator, give_back
from timely.state.interface import written_in
from timely.time import Time
from timely.worker import restoring
from timely.worker.processor import Runtime, build_operator
from timely.worker.worker import Worker


def carry_out(
    orders: RollbackOrders,
    worker: Worker,
    recorder: WorkerRecorder,
    checkpoints: Checkpoints,
    attributes: Attributes,
    operator_memory: OperatorMemory,
) -> dict[int, Frame]:
    """Roll a worker back; return its first frames of the generation, by receiver."""
    restored: dict[int, restoring.RestoredProcessor] = {}
    for p, order in orders.restored.items():
        recorder.restored(p, order.bound, order.requests if order.from_store else None, order.held)
        if order.from_store:
            checkpoints.came_back(p, order.bound)
        elif order.replay is None and p in orders.fresh and worker.runtimes[p].operator.state is not None:
            recorder.since[p] = order.bound  # a new operator gets the state as one run, for all times up to there
        checkpoints.used_ahead += order.loaded is not None
        operator = None if order.replay is None else replay(worker.runtimes[p], order.replay, operator_memory)
        restored[p] = restoring.RestoredProcessor(
            *(to_frontier(order.bound), order.runs, order.requests, order.held, operator, order.forgets, order.loaded)
        )
    checkpoints.apply(orders.generation, orders.bounds)
    frames = restoring.rewind(
        worker,
        restoring.Orders(
            orders.generation,
            restored,
            orders.stays,
            orders.inputs,
            orders.local,
            orders.remote,
            orders.fresh,
            orders.has,
        ),
    )
    attributes.look()
    checkpoints.forget_payloads()
    return frames


class _Silent:
    """Engine for replay: accepts every request of an operator and ignores it."""

    def request(self, op: int, event: Time, time: Time, again: bool = False) -> None:
        """Ignore: outstanding requests are armed again by the worker."""

    def hold(self, op: int, time: Time, diff: int, own: bool = False) -> None:
        """Ignore: the recorder has counted the capabilities held in the end."""

    def start(self, op: int, time: Time, job: Callable[..., Any], context: bool, own: bool = False) -> None:
        """Ignore: the result is in the history."""

    def keeps(self, op: int, event: Time, time: Time) -> None:
        """Ignore: it was allowed when the event was first handled."""


def replay(runtime: Runtime, order: Replay, operator_memory: OperatorMemory) -> Operator:
    """New operator with a history replayed on it, its outputs thrown away.

    This needs no checkpoint code, only determinism: the same events in the same order lead to the same state (Isard and
    Abadi, *Falkirk Wheel*, section 4.1). Its capabilities belong to the context of `runtime`. Of each event it is noted once
    more whether the operator keeps more than its `state` after it.
    """
    ctx, p = runtime.ctx, runtime.processor.index
    operator = build_operator(runtime.processor, [])
    operator_memory.made(p, operator)
    looks = p in operator_memory.of and operator.state is not None
    if operator.state is not None:
        restoring.load(runtime.processor.node, operator.state, order.runs)
        written_in(operator.state, ctx)
    if order.held:
        give_back(operator, ctx, order.held)
    engine, ctx.engine = ctx.engine, _Silent()
    ctx.pending = {}
    for event in order.events:
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
            event.beside = operator_memory.keeps(p, operator)
    ctx.engine = engine
    return operator
