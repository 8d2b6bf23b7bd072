"""Graph with other policies of its regions, as the program would build it.

Gates come and go with a policy, so nodes and edges are added anew, in the order of the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from timely.dataflow.graph import Graph, Input, Node, Output, Region

OUTSIDE = ""
"""Name in place of a region's for the operators in none.

Those with a policy of their own are left out."""


def with_policies(graph: Graph, policies: Mapping[str, object]) -> Graph:
    """Copy of `graph` with other policies, by the names of regions.

    Operators with a policy of their own keep it. What is `OUTSIDE` of all regions becomes one.
    """
    regions: dict[Region | None, Region] = {region: _region(region, policies) for region in graph.regions}
    if OUTSIDE in policies:
        regions[None] = _region(Region(OUTSIDE), policies)
    found = Graph(graph.name)
    found.scopes[:] = graph.scopes
    found.regions = list(regions.values())
    feeding = {edge.target.node: edge.source for edge in graph.edges if graph.nodes[edge.target.node].kind == "gate"}
    nodes = [node for node in graph.nodes if node.kind != "gate"]
    edges = [edge for edge in graph.edges if edge.target.node not in feeding]
    number: dict[int, int] = {}
    upcoming = iter([(feeding.get(edge.source.node, edge.source), edge) for edge in edges])
    coming = next(upcoming, None)
    for node in nodes:
        number[node.index] = _add(found, node, regions, number)
        while coming is not None and coming[0].node in number and coming[1].target.node in number:
            source, edge = coming
            found.add_edge(
                Output(number[source.node], source.port),
                Input(number[edge.target.node], edge.target.port),
                edge.channel,
            )
            coming = next(upcoming, None)
    for edge in reversed(found.edges):  # a gate is made where the program makes the first that follows it
        gate = found.nodes[edge.source.node]
        if gate.kind == "gate":
            site = found.nodes[edge.target.node].site
            found.nodes[gate.index] = found._names[gate.name] = replace(gate, site=site)
    for output, schema in graph._schemas.items():
        if output.node in number:
            found.set_schema(Output(number[output.node], output.port), schema)
    return found


def _region(region: Region, policies: Mapping[str, object]) -> Region:
    if region.name not in policies:
        return region
    policy = policies[region.name]
    return replace(region, policy=policy, gated=bool(getattr(policy, "gated", False)))


def _add(graph: Graph, node: Node, regions: Mapping[Region | None, Region], number: Mapping[int, int]) -> int:
    """Add a node of another graph; returns its index."""
    index = len(graph.nodes)
    of: dict[str, Any] = {"index": index, "reads": tuple(number[each] for each in node.reads)}
    if node.region in regions and (node.region is not None or node.policy is None):
        region = regions[node.region]
        of["region"] = region
        if node.region is None or node.policy is node.region.policy:
            of["policy"] = region.policy
    added = graph._names[node.name] = replace(node, **of)
    graph.nodes.append(added)
    return index
