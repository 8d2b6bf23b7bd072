"""A processor on a worker: its operator, its context, and what waits for it."""

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
"""An entry of an input's queue: (edge, sending worker, time of the event that sent it, what it sent)."""


class Runtime:
    """A processor on this worker: its operator, its context, and what waits for it."""

    __slots__ = (
        "ctx",
        "follower",
        "heard",
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
        """The processor that gets all that this one sends, at once, on its input `port` (`Processor.follower`)."""
        self.port = 0
        self.heard = any(processor.routes)
        """False: nobody listens to what it sends."""
        self.mail: dict[tuple[int, Time], list[Letter]] = {}
        self.spans = False
        """Batches and notifications of several times are handed to the operator together."""
        self.settled: State | None = None
        """The operator's state, if nothing of it is ever compacted, since nobody goes back and it has one scope."""

    def tell_state(self) -> None:
        """Let the state of an operator of the user's know in which event it is written, for somebody may go back.

        What others write is of the event's time. Spans are of several times, and whoever takes them back answers for that.
        """
        if (self.node.ahead or self.node.kind in ("unary", "binary")) and not self.operator.undoes_spans:
            written_in(self.operator.state, self.ctx)

    def settle(self) -> None:
        """Nobody will ever go back: let the state do without what that would take."""
        self._settle()
        self.spans = self.operator.spans and self.node.scope.depth == 1 and self.operator.state is self.settled

    def take_spans_back(self) -> None:
        """Somebody may go back, and says that what the operator does is known by what comes and goes at each time alone."""
        self.spans = self.operator.spans and self.operator.undoes_spans and self.node.scope.depth == 1

    def _settle(self) -> None:
        state = self.operator.state
        if state is None or not without_past(state) or self.node.scope.depth > 1:
            return
        if type(self.operator).on_watermark is Operator.on_watermark:
            self.settled = state

    def blame(self, time: Time, error: BaseException, batch: Batch | None) -> OperatorError:
        """The error for the user, when the operator's code has raised `error`."""
        node = self.node
        return operator_error(f"{node.kind} {node.name!r}", node.site, time, error, None, batch)


def build_operator(processor: Processor, effects: list[Effect], staged: Container[int] | None = None) -> Operator:
    """The operator that runs `processor`; sinks and captures put what they ask of the driver into `effects`.

    Those in `staged`, by node, do so only when they are told to release it; None: there is no recovery.
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
    """The place at which a source's records enter."""

    repeats_over = "record"
    keeps_batches = True
    spans = undoes_spans = True


def follow(runtimes: Sequence[Runtime]) -> None:
    """Tell each of the processors that have one follower which one that is."""
    for runtime in runtimes:
        if route := runtime.processor.follower:
            runtime.follower, runtime.port = runtimes[route.processor], route.port


def acquaint(runtimes: Sequence[Runtime], of_node: Mapping[int, int]) -> None:
    """Tell operators that read the state of others which ones these are."""
    for runtime in runtimes:
        if nodes := runtime.processor.node.reads:
            runtime.operator.read([runtimes[of_node[node]].operator for node in nodes])


def no_such_output(node: Node, port: int) -> OperatorError:
    """The error of an operator that sent on an output that it does not have."""
    return OperatorError(
        f"{node.kind} {node.name!r} ({node.site}) sent on output {port}, but it has {node.outputs}; declare them with "
        "outputs=n"
    )
