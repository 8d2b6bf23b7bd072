"""Dense parts of a graph. Edges are (a, b) in either direction; one that comes twice counts once, one from a node to itself not
at all."""

from __future__ import annotations

from libraries.differential import Collection
from libraries.differential.collection import LIMIT


def _simple(edges: Collection) -> Collection:
    """Each edge once, from the lesser node to the greater."""
    return edges.filter(lambda edge: edge[0] != edge[1]).map(lambda edge: (min(edge), max(edge))).distinct()


def k_core(edges: Collection, k: int, limit: int = LIMIT, name: str | None = None) -> Collection:
    """The nodes of the largest part in which each node has at least `k` neighbours."""
    one_way = _simple(edges)
    both = one_way.concat(one_way.map_pairs(lambda a, b: (b, a)))

    def fewer(left: Collection) -> Collection:
        stay = left.count().filter(lambda pair: pair[1] >= k).map_pairs(lambda node, _: node)
        return left.semijoin(stay).map_pairs(lambda a, b: (b, a)).semijoin(stay)

    return both.iterate(fewer, limit, name).map_pairs(lambda a, b: a).distinct()


def triangles(edges: Collection) -> Collection:
    """Triples (a, b, c) of nodes, rising, with an edge between each two."""
    ordered = _simple(edges)
    wedges = ordered.join(ordered, lambda a, b, c: ((b, c), a)).filter(lambda wedge: wedge[0][0] < wedge[0][1])
    closing = ordered.map(lambda edge: (edge, None))
    return wedges.join(closing, lambda ends, a, _: (a, *ends))
