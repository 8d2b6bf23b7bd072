"""Sinks and captures: ends of the dataflow.

They do no I/O; they ask the worker's driver to do it.
"""

from __future__ import annotations

from timely.data.batch import Batch, concat
from timely.data.messages import Captured, CommitSink, Effect, WriteSink
from timely.data.span import Span
from timely.operators.base import Context, Operator
from timely.state import TimedBatches
from timely.time import Frontier, Time


class SinkEnd(Operator):
    """Hands every batch, with its epoch, to the sink, and commits complete epochs."""

    def __init__(self, node: int, effects: list[Effect]) -> None:
        self._node = node
        self._effects = effects

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self._effects.append(WriteSink(self._node, time[0], batch))
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        self._effects.append(CommitSink(self._node, time[0]))


class HeldEnd(Operator):
    """End of a sink under recovery: hands an epoch over only when it is complete.

    Output that the driver had been given of an epoch that is then rolled back could not be taken from it again.
    """

    def __init__(self, node: int, effects: list[Effect]) -> None:
        self._node = node
        self._effects = effects
        self._held = TimedBatches()
        self.state = self._held

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self._held.add(time, batch)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        self._effects += [WriteSink(self._node, time[0], batch) for batch in self._held.pop(time)]
        self._effects.append(CommitSink(self._node, time[0]))


class CaptureEnd(Operator):
    """Hands every batch, with its time, to the caller of the run."""

    spans = True

    def __init__(self, node: int, effects: list[Effect]) -> None:
        self._node = node
        self._effects = effects

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self._effects.append(Captured(self._node, time, batch))

    def on_span(self, ctx: Context, port: int, span: Span) -> None:
        self._effects += [Captured(self._node, time, batch) for time, batch in span.parts()]


class Staged(TimedBatches):
    """Batches held until they may leave the dataflow.

    They outlive their time's completion, so they are saved with it.
    """

    transient = False

    def take(self, frontier: Frontier) -> list[tuple[Time, Batch]]:
        """Take out all times in `frontier`, in order, each with its batches as one."""
        return [(time, concat(self.pop(time))) for time in sorted(self.times()) if time in frontier]


class StagedEnd(Operator):
    """Holds batches until they can never be rolled back, then hands them over by time.

    An output that was seen outside cannot be rolled back. So the batches of a time go out when the low-watermark contains
    it (Isard and Abadi, *Falkirk Wheel*, section 4.3); after a failure they may go out again, as one and the same.
    """

    state: Staged

    def __init__(self, node: int, capture: bool, effects: list[Effect]) -> None:
        self._node = node
        self._capture = capture
        self._effects = effects
        self.state = Staged()

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self.state.add(time, batch)

    def on_watermark(self, frontier: Frontier) -> None:
        for time, batch in self.state.take(frontier):
            if self._capture:
                self._effects.append(Captured(self._node, time, batch))
            else:
                self._effects += [WriteSink(self._node, time[0], batch), CommitSink(self._node, time[0])]
