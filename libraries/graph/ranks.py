"""PageRank."""

from __future__ import annotations

from libraries.differential import Collection
from libraries.differential.collection import LIMIT, grow
from libraries.graph.nodes import each, nodes_of, of_edges


@of_edges
def pagerank(
    edges: Collection, damping: float = 0.85, unit: float = 1e-6, limit: int = LIMIT, name: str | None = None
) -> Collection:
    """Pairs (node, PageRank), in whole numbers of `unit`.

    A rank is (1 - damping) plus damping times the shares along edges (from, to).

    A node shares its rank among its edges; that of a node without any goes nowhere, so divide by the sum where shares are
    wanted. In whole units ranks only grow from nothing, and come to rest; they are too small by about a unit an edge.

    >>> from falkirk import differential, graph
    >>> flow = falkirk.Dataflow()
    >>> edges = differential.from_records(flow.source("edges", falkirk.Iterable([(0, 1), (1, 0)])))
    >>> seen = graph.pagerank(edges).capture("out")
    >>> ranks = differential.snapshot(falkirk.run(flow).captured("out"))
    >>> sorted((node, round(units * 1e-6, 3)) for node, units in ranks)
    [(0, 1.0), (1, 1.0)]
    """
    base, parts = round((1 - damping) / unit), 1 << 16
    factor = round(damping * parts)
    edges = edges.arrange()
    own = nodes_of(edges).map_pairs(lambda node, _: (node, each(node, base)))
    degrees = edges.count()

    def step(ranks: Collection) -> Collection:
        shares = ranks.join(degrees, lambda node, rank, degree: (node, rank * factor // (degree * parts)), columns=True)
        return edges.join(shares, lambda a, b, share: (b, share), columns=True).concat(own).sum()

    return grow(step, edges, limit, name)
