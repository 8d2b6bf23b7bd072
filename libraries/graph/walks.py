"""Walks along edges: reachable nodes and distances."""

from __future__ import annotations

from libraries.differential import Collection
from libraries.differential.collection import LIMIT, grow
from libraries.differential.rows import as_key
from libraries.graph.nodes import bare, each, of_edges


@of_edges
def reach(edges: Collection, roots: Collection, limit: int = LIMIT, name: str | None = None) -> Collection:
    """Nodes reachable from any of `roots` along edges (from, to), roots included.

    >>> from falkirk import differential, graph
    >>> flow = falkirk.Dataflow()
    >>> edges = differential.from_records(flow.source("edges", falkirk.Iterable([(0, 1), (1, 2), (2, 0), (3, 4)])))
    >>> roots = differential.from_records(flow.source("roots", falkirk.Iterable([0])))
    >>> seen = graph.reach(edges, roots).capture("out")
    >>> differential.snapshot(falkirk.run(flow).captured("out"))
    {0: 1, 1: 1, 2: 1}
    """
    begun = roots.as_keys()

    def further(known: Collection) -> Collection:
        return edges.join(known, lambda a, b, _: as_key(b), columns=True).concat(begun).distinct()

    return bare(grow(further, edges, limit, name))


@of_edges
def distances(edges: Collection, roots: Collection, limit: int = LIMIT, name: str | None = None) -> Collection:
    """Pairs (node, least number of edges (from, to) from any of `roots`).

    >>> from falkirk import differential, graph
    >>> flow = falkirk.Dataflow()
    >>> edges = differential.from_records(flow.source("edges", falkirk.Iterable([(0, 1), (1, 2), (2, 0), (3, 4)])))
    >>> roots = differential.from_records(flow.source("roots", falkirk.Iterable([0])))
    >>> seen = graph.distances(edges, roots).capture("out")
    >>> differential.snapshot(falkirk.run(flow).captured("out"))
    {(0, 0): 1, (1, 1): 1, (2, 2): 1}
    """
    begun = roots.as_keys().map_pairs(lambda root, _: (root, each(root, 0)))
    return grow(
        lambda known: edges.join(known, lambda a, b, steps: (b, steps + 1), columns=True).concat(begun).min(),
        edges,
        limit,
        name,
    )


@of_edges
def shortest_paths(edges: Collection, roots: Collection, limit: int = LIMIT, name: str | None = None) -> Collection:
    """Pairs (node, least weight from any of `roots`), for edges (from, (to, weight)).

    A cycle of negative weight has no end: an error after `limit` iterations.

    >>> from falkirk import differential, graph
    >>> flow = falkirk.Dataflow()
    >>> edges = differential.from_records(flow.source("edges", falkirk.Iterable([(0, (1, 5)), (0, (2, 9)), (1, (2, 1))])))
    >>> roots = differential.from_records(flow.source("roots", falkirk.Iterable([0])))
    >>> seen = graph.shortest_paths(edges, roots).capture("out")
    >>> differential.snapshot(falkirk.run(flow).captured("out"))
    {(0, 0): 1, (1, 5): 1, (2, 6): 1}
    """
    begun = roots.map(lambda root: (root, 0))
    return grow(
        lambda known: edges.join(known, lambda a, edge, far: (edge[0], far + edge[1])).concat(begun).min(),
        edges,
        limit,
        name,
    )
