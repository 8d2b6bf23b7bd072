"""Permanently open gates: those of regions without movement between workers.

The graph has a gate in front of each exchange in a gated region, since it does not know of workers yet. With one worker, or
where all that must meet is on one worker already (`local_exchanges`), such an exchange sends nobody anything: then
what is in front of the gate and what is behind it can be persisted together. A region keeps all of its gates if something
leaves it and comes back, which has to wait for what is persisted in front of the gate by which it left.
"""

from __future__ import annotations

from collections.abc import Sequence

from timely.dataflow.graph import Edge, Graph, Region
from timely.operators.channels import PIPELINE


def standing_open(graph: Graph, workers: int, stays: frozenset[int]) -> frozenset[int]:
    """Permanently open gates, by node index.

    `stays`: the edges whose exchange moves nothing.
    """
    incoming, outgoing = graph.incoming(), graph.outgoing()
    within: dict[Region, list[int]] = {}
    shut: set[Region] = set()
    for gate in graph.of_kind("gate"):
        (into,) = incoming[gate.index]
        region = graph.nodes[into.source.node].region
        assert region is not None
        followers = [graph.nodes[edge.target.node] for edge in outgoing[gate.index]]
        if any(node.region is not region for node in followers):
            if _leads_to(graph, outgoing, gate.index, region):
                shut.add(region)
            continue
        within.setdefault(region, []).append(gate.index)
        if workers > 1 and any(e.channel != PIPELINE and e.index not in stays for e in outgoing[gate.index]):
            shut.add(region)
    return frozenset(gate for region, gates in within.items() if region not in shut for gate in gates)


def _leads_to(graph: Graph, outgoing: Sequence[Sequence[Edge]], start: int, region: Region) -> bool:
    """True if a path from a node leads into `region`."""
    todo, seen = [start], {start}
    while todo:
        for edge in outgoing[todo.pop()]:
            if graph.nodes[edge.target.node].region is region:
                return True
            if edge.target.node not in seen:
                seen.add(edge.target.node)
                todo.append(edge.target.node)
    return False
