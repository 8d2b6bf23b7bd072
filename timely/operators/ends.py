"""Where records leave the dataflow: sinks and captures. They do no I/O; they ask the worker's driver to do it."""

from __future__ import annotations

from timely.batch import Batch
from timely.messages import Captured, CommitSink, Effect, WriteSink
from timely.operators.base import Context, Operator
from timely.order import Time


class SinkEnd(Operator):
    """Hands every batch, with its epoch, to the sink, and commits an epoch when it is complete."""

    def __init__(self, node: int, effects: list[Effect]) -> None:
        self._node = node
        self._effects = effects

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self._effects.append(WriteSink(self._node, time[0], batch))
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        self._effects.append(CommitSink(self._node, time[0]))


class CaptureEnd(Operator):
    """Hands every batch, with its time, to whoever runs the dataflow."""

    def __init__(self, node: int, effects: list[Effect]) -> None:
        self._node = node
        self._effects = effects

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self._effects.append(Captured(self._node, time, batch))
