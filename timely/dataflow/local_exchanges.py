"""Exchanges to leave out: rows of a key and time are on one worker already.

An operator that keeps nothing from one time to the next needs the rows of a key *and a time* at one worker
(`Exchange.within_time`). A source may deal out whole epochs (`timely.io.interface.deals_epochs`): then all rows of epoch e
are on worker e mod W, and what stateless steps make of them is, too. So its exchange sends nobody anything. Results of a
key are then on another worker in each epoch, which matters only to who keeps something by key: where such an operator
follows without an exchange of its own, all is exchanged as before.
"""

from __future__ import annotations

from timely.dataflow.graph import Graph, Node
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
