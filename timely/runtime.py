"""A processor on a worker: its operator, its context, and what waits for it."""

from __future__ import annotations

from timely.batch import Batch
from timely.messages import Effect, Message
from timely.operators.base import Context, Operator
from timely.operators.ends import CaptureEnd, SinkEnd
from timely.operators.stateless import Stateless
from timely.order import Time
from timely.plan import Processor
from timely.progress import Rank


class Runtime:
    """A processor on this worker: its operator, its context, and what waits for it."""

    __slots__ = ("ctx", "mail", "operator", "processor", "rank", "routes")

    def __init__(self, processor: Processor, operator: Operator, ctx: Context) -> None:
        self.processor = processor
        self.operator = operator
        self.ctx = ctx
        self.rank: Rank = processor.rank
        self.routes = [
            [(route.way, route.processor, route.port, route) for route in reversed(routes)]
            for routes in processor.routes
        ]
        self.mail: dict[tuple[int, Time], list[Batch | Message]] = {}


def build_operator(processor: Processor, effects: list[Effect]) -> Operator:
    """The operator that runs `processor`; sinks and captures put what they ask of the driver into `effects`."""
    node = processor.node
    if node.stages:
        return Stateless(processor.stages)
    if node.factory is not None:
        return node.factory()
    if node.kind == "sink":
        return SinkEnd(node.index, effects)
    if node.kind == "capture":
        return CaptureEnd(node.index, effects)
    return Operator()
