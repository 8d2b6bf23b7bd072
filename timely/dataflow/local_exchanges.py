"""Exchanges to leave out: rows of a key and time are on one worker already.

An operator that keeps nothing from one time to the next needs the rows of a key *and a time* at one worker
(`Exchange.within_time`). A source may deal out whole epochs (`timely.io.interface.deals_epochs`): then all rows of epoch e
are on worker e mod W, and what stateless steps make of them is, too. So its exchange sends nobody anything. Results of a
key are then on another worker in each epoch, which matters only to who keeps something by key: where such an operator
follows without an exchange of its own, all is exchanged as before.

The graph has a gate in front of each exchange in a gated region, since it does not know of workers yet. With one worker, or
where such an exchange is left out, what is in front of the gate and what is behind it can be persisted together: it stands
open. A region keeps all of its gates if something leaves it and comes back, which has to wait for what is persisted in front
of the gate by which it left.
"""

from __future__ import annotations

from collections.abc import Sequence

from timely.dataflow.graph import Edge, Graph, Node, Region
from timely.io.interface import deals_epochs
from timely.operators.channels import PIPELINE, Exchange

_ENDS = ("sink", "capture", "probe")


def staying(graph: Graph, workers: int) -> frozenset[int]:
    """Indices of exchanges to leave out, as batches stay on their worker."""
    if workers == 1:
        return frozenset()
    incoming, outgoing = graph.incoming(), graph.outgoing()
    refused: set[int] = set()

    def within_time(node: Node) -> bool:
        channels = [edge.channel for edge in incoming[node.index]]
        exchanges = [channel for channel in channels if isinstance(channel, Exchange) and channel.within_time]
        return bool(channels) and len(exchanges) == len(channels)

    def whole_epochs() -> set[int]:
        """Nodes with all output of epoch e on worker e mod W."""
        found: set[int] = set()
        for node in graph.nodes:
            if node.scope is not graph.root or node.ahead or getattr(node.policy, "anew", False):
                continue
            before = incoming[node.index]
            if node.source is not None:
                fits = deals_epochs(node.source)
            elif node.stages:
                fits = bool(before) and all(edge.channel == PIPELINE for edge in before)
            else:
                fits = within_time(node) and node.index not in refused
            if fits and all(edge.source.node in found for edge in before):
                found.add(node.index)
        return found

    def relied_on(node: Node) -> bool:
        """True if a node downstream of `node` may keep state by key, without an exchange."""
        todo, seen = [node.index], {node.index}
        while todo:
            for edge in outgoing[todo.pop()]:
                target = graph.nodes[edge.target.node]
                if target.kind in _ENDS or edge.channel != PIPELINE or target.index in seen:
                    continue
                if not target.stages:
                    return True
                seen.add(target.index)
                todo.append(target.index)
        return False

    while True:
        whole = whole_epochs()
        stay = [node for node in graph.nodes if node.index in whole and within_time(node)]
        more = {node.index for node in stay if relied_on(node)}
        if not more:
            return frozenset(edge.index for node in stay for edge in incoming[node.index])
        refused |= more


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
