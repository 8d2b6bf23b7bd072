"""Dense parts of a graph, with edges (a, b) in either direction.

Duplicate edges count once, edges from a node to itself not at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from libraries.differential import Collection, delta_join
from libraries.differential.collection import LIMIT, feedback
from libraries.differential.rows import as_key
from libraries.graph.nodes import bare, of_edges


def _simple(edges: Collection) -> Collection:
    """Distinct edges, from the lesser node to the greater."""
    return edges.filter_pairs(lambda a, b: a != b).map_pairs(_rising).distinct()


def _rising(a: Any, b: Any) -> Any:
    return (np.minimum(a, b), np.maximum(a, b)) if isinstance(a, np.ndarray) else (min(a, b), max(a, b))


@of_edges
def k_core(edges: Collection, k: int, limit: int = LIMIT, name: str | None = None) -> Collection:
    """Nodes of the k-core: the largest part with `k` or more neighbours for each node.

    >>> from falkirk import differential, graph
    >>> flow = falkirk.Dataflow()
    >>> edges = differential.from_records(flow.source("edges", falkirk.Iterable([(0, 1), (1, 2), (2, 0), (3, 4)])))
    >>> seen = graph.k_core(edges, 2).capture("out")
    >>> sorted(differential.snapshot(falkirk.run(flow).captured("out")))
    [0, 1, 2]
    """
    one_way = _simple(edges)
    both = one_way.concat(one_way.map_pairs(lambda a, b: (b, a))).arrange()
    ends = both.map_pairs(lambda a, b: as_key(a))
    nodes = ends.concat(ends.distinct())  # once more than they have neighbours: so none is forgotten in the loop
    scope = edges.stream.graph.add_scope(name, edges.scope)
    close, gone = feedback(scope, edges.stream.graph, f"{scope.name}-feedback")
    lost = both.join(gone, lambda a, b, _: as_key(b), columns=True)
    left = nodes.enter(scope).minus(lost).count()
    close(left.filter_pairs(lambda _, count: count <= k).map_pairs(lambda node, _: as_key(node)), limit)
    return bare(left.filter_pairs(lambda _, count: count > k).map_pairs(lambda node, _: as_key(node)).leave())


@of_edges
def triangles(edges: Collection) -> Collection:
    """Triples (a, b, c) of nodes, rising, with an edge between each two.

    >>> from falkirk import differential, graph
    >>> flow = falkirk.Dataflow()
    >>> edges = differential.from_records(flow.source("edges", falkirk.Iterable([(0, 1), (1, 2), (2, 0), (3, 4)])))
    >>> seen = graph.triangles(edges).capture("out")
    >>> differential.snapshot(falkirk.run(flow).captured("out"))
    {(0, 1, 2): 1}
    """
    ordered = _simple(edges)
    if edges.scope.parent is None:
        return delta_join((ordered, "ab"), (ordered, "bc"), (ordered, "ac"))
    ordered = ordered.arrange()
    wedges = ordered.join(ordered, lambda a, b, c: ((b, c), a)).filter(lambda wedge: wedge[0][0] < wedge[0][1])
    closing = ordered.map(lambda edge: (edge, None))
    return wedges.join(closing, lambda ends, a, _: (a, *ends))
