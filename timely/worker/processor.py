"""Processor on a worker: its operator, context and input queues."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from timely.data.batch import Batch
from timely.data.messages import Effect, Message
from timely.dataflow.graph import Node
from timely.dataflow.plan import Processor
from timely.errors import OperatorError
from timely.operators.base import Context, Operator
from timely.operators.ends import CaptureEnd, HeldEnd, SinkEnd, StagedEnd
from timely.operators.stateless import Stateless, operator_error
from timely.progress.tracker import Rank
from timely.state.interface import State, without_past, written_in
from timely.time import Time

Letter = tuple[int, int, Time, "Batch | Message"]
"""Entry of an input queue: (edge, sending worker, sender's event time, content)."""


class Runtime:
    """Processor on this worker: its operator, context and input queues."""

    __slots__ = (
        "ctx",
        "follower",
        "has_receivers",
        "mail",
        "node",
        "operator",
        "port",
        "processor",
        "rank",
        "routes",
        "settled",
        "spans",
    )

    def __init__(self, processor: Processor, operator: Operator, ctx: Context) -> None:
        self.processor = processor
        self.node = processor.node
        self.operator = operator
        self.ctx = ctx
        self.rank: Rank = processor.rank
        self.routes = [
            [(route.way, route.processor, route.port, route) for route in routes] for routes in processor.routes
        ]
        self.follower: Runtime | None = None
        """Sole receiver of all output, called directly on its input `port`.

        See `Processor.follower`.
        """
        self.port = 0
        self.has_receivers = any(processor.routes)
        """False if no processor receives the output."""
        self.mail: dict[tuple[int, Time], list[Letter]] = {}
        self.spans = False
        """True if the operator takes batches and notifications of several times together."""
        self.settled: State | None = None
        """State without history, exempt from `on_watermark` calls; else None."""

    def tell_state(self) -> None:
        """Make the state of user operators record the event of each write, for rollback.

        Other operators write at the event's own time. Operators that undo spans track their several times themselves.
        """
        if (self.node.ahead or self.node.kind in ("unary", "binary")) and not self.operator.undoes_spans:
            written_in(self.operator.state, self.ctx)

    def settle(self) -> None:
        """Prepare for a run without recovery: the state keeps no history."""
        self._settle()
        self.spans = self.operator.spans and self.node.scope.depth == 1 and self.operator.state is self.settled

    def take_spans_back(self) -> None:
        """Accept spans under recovery if the operator can undo them."""
        self.spans = self.operator.spans and self.operator.undoes_spans and self.node.scope.depth == 1

    def _settle(self) -> None:
        state = self.operator.state
        if state is None or not without_past(state) or self.node.scope.depth > 1:
            return
        if type(self.operator).on_watermark is Operator.on_watermark:
            self.settled = state

    def blame(self, time: Time, error: BaseException, batch: Batch | None) -> OperatorError:
        """Error for the user about an exception raised by the operator's code."""
        node = self.node
        return operator_error(f"{node.kind} {node.name!r}", node.site, time, error, None, batch)


def build_operator(processor: Processor, effects: list[Effect], staged: Container[int] | None = None) -> Operator:
    """Create the operator of `processor`; sinks and captures append to `effects`.

    `staged`: nodes of sinks and captures that hold their output until it is released; None without recovery.
    """
    node = processor.node
    if node.stages:
        return Stateless(processor.stages)
    if node.factory is not None:
        return node.factory()
    if staged is not None and node.index in staged:
        return StagedEnd(node.index, node.kind == "capture", effects)
    if node.kind == "sink":
        return SinkEnd(node.index, effects) if staged is None else HeldEnd(node.index, effects)
    if node.kind == "capture":
        return CaptureEnd(node.index, effects)
    return Entrance() if node.kind == "source" else Operator()


class Entrance(Operator):
    """Operator of a source: passes its records on."""

    repeats_over = "record"
    keeps_batches = True
    spans = undoes_spans = True


def follow(runtimes: Sequence[Runtime]) -> None:
    """Connect each processor to its follower, if it has one."""
    for runtime in runtimes:
        if route := runtime.processor.follower:
            runtime.follower, runtime.port = runtimes[route.processor], route.port


def acquaint(runtimes: Sequence[Runtime], of_node: Mapping[int, int]) -> None:
    """Connect operators to the operators providing state to them."""
    for runtime in runtimes:
        if nodes := runtime.processor.node.reads:
            runtime.operator.read([runtimes[of_node[node]].operator for node in nodes])


def no_such_output(node: Node, port: int) -> OperatorError:
    """Error about a send on an output missing from the operator."""
    return OperatorError(
        f"{node.kind} {node.name!r} ({node.site}) sent on output {port}, but it has {node.outputs}; declare them with "
        "outputs=n"
    )
