"""Check of obligations: operators given the batches that they repeat over.

The records of a time are the same when it is done again, as far as sources and operators repeat; its *division* into batches
need not be. A stream is *whole* if at most one batch of each time comes on it at a worker, in the order of times: nothing can
merge, part or reorder those. Every other stream may be divided otherwise, for exchanges, logs, sources that gather, queues
and `concat` merge and part batches. An operator that needs equal batches to repeat
does so only behind a whole stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from timely.dataflow.graph import Edge, Graph, Node
from timely.io.interface import whole_epochs
from timely.operators.base import Operator
from timely.operators.channels import PIPELINE
from timely.operators.obligations import Obligation, obligations

Spreads = Callable[[Edge], bool]
"""True for an edge from every worker to every worker."""


def between_workers(edge: Edge) -> bool:
    """True for an edge between workers, if there are several."""
    return edge.channel != PIPELINE


@dataclass(frozen=True, slots=True)
class Divided:
    """Input of `node`, from `stream`, with other batches when it is redone."""

    node: Node
    stream: Node
    reason: str

    def __str__(self) -> str:
        return (
            f"it repeats only over the same batches, and those of the {self.stream.kind} {self.stream.name!r} may be divided "
            f"otherwise when a time is done again ({self.reason})"
        )


def obligation_of(node: Node, operator: Operator | None, port: int = 0) -> Obligation:
    """Division of an input port needed by `node`, run by `operator`, to repeat.

    Raises:
        GraphError: the operator declares none of those there are.
    """
    if node.stages:
        return min(obligations(stage.repeats_over, 1, node)[0] for stage in node.stages)
    if operator is None:  # a source has no input; a sink, a capture and a probe give nothing
        return Obligation.RECORD
    return obligations(operator.repeats_over, node.inputs, node)[port]


def divided(graph: Graph, spreads: Spreads, operators: Mapping[int, Operator]) -> dict[int, Divided]:
    """Nodes repeating over equal batches only, without a guarantee of these.

    They are by index.

    `operators` has the operator of each node with a factory.

    Raises:
        GraphError: an operator declares no obligation that there is.
    """
    incoming = graph.incoming()
    whole: set[int] = set()
    before = -1
    while before < len(whole):  # most nodes follow those that lead to them, so one pass finds nearly all
        before = len(whole)
        for node in graph.nodes:
            if node.index not in whole and _leaves_whole(
                node, incoming[node.index], whole, spreads, operators.get(node.index)
            ):
                whole.add(node.index)
    found = {}
    for node in graph.nodes:
        operator = operators.get(node.index)
        for edge in incoming[node.index]:
            if obligation_of(node, operator, edge.target.port) > Obligation.BATCH:
                continue
            reason = _parted(incoming[node.index], edge, whole, spreads)
            if reason:
                found[node.index] = Divided(node, graph.nodes[edge.source.node], reason)
                break
    return found


def _leaves_whole(node: Node, edges: list[Edge], whole: set[int], spreads: Spreads, operator: Operator | None) -> bool:
    """True if at most one batch of each time leaves `node` at a worker, in order."""
    if node.source is not None:
        return whole_epochs(node.source) and not getattr(node.policy, "anew", False)
    if operator is not None and operator.one_batch and not node.ahead:
        return True
    keeps = bool(node.stages) or (operator is not None and operator.keeps_batches)
    return keeps and len(edges) == 1 and not _parted(edges, edges[0], whole, spreads)


def _parted(edges: list[Edge], edge: Edge, whole: set[int], spreads: Spreads) -> str:
    """Reason for other batches on `edge` when a time is redone; empty if the same.

    `edges` are all that lead to the node.
    """
    if spreads(edge):
        return "they come from several workers"
    if len(edges) > 1:
        return "they come by several ways"
    if edge.source.node not in whole:
        return "nothing keeps its batches as they were"
    return ""
