"""Connected components."""

from __future__ import annotations

from typing import Any

import numpy as np

from libraries.differential import Collection
from libraries.differential.collection import LIMIT, feedback
from libraries.differential.rows import as_key
from libraries.graph.nodes import nodes_of, of_edges

_HALF = 31
"""Bits of each of two numbers packed into one."""

_APART = 256
"""Iterations between the entry of labels of one bit length and the next.

It is more than most diameters; for larger ones only time is lost.
"""


@of_edges
def components(
    edges: Collection, nodes: Collection | None = None, limit: int = LIMIT, name: str | None = None
) -> Collection:
    """Pairs (node, least node of its component) for edges (a, b) in either direction.

    `nodes`, distinct, are those that there are; by default those that have edges. Labels that are integers enter the loop by
    their lengths in bits, the shortest first: so a node seldom has a label that another one takes away from it.

    >>> from falkirk import differential, graph
    >>> flow = falkirk.Dataflow()
    >>> edges = differential.from_records(flow.source("edges", falkirk.Iterable([(0, 1), (1, 2), (2, 0), (3, 4)])))
    >>> seen = graph.components(edges).capture("out")
    >>> sorted(differential.snapshot(falkirk.run(flow).captured("out")))
    [(0, 0), (1, 0), (2, 0), (3, 3), (4, 3)]
    """
    both = edges.concat(edges.map_pairs(lambda a, b: (b, a)))
    nodes = both.map_pairs(lambda a, b: as_key(a)).distinct() if nodes is None else nodes.as_keys()
    return _spread(both, nodes, limit, name)


def _spread(edges: Collection, nodes: Collection, limit: int = LIMIT, name: str | None = None) -> Collection:
    """Pairs (node, least node with a walk to it along edges (from, to))."""
    graph = edges.stream.graph
    scope = graph.add_scope(name, edges.scope)
    close, known = feedback(scope, graph, f"{scope.name}-feedback")
    own = nodes.map_pairs(lambda node, _: (node, node)).enter_at(scope, lambda node, label: _APART * _length(label))
    labels = edges.join(known, lambda a, b, label: (b, label), columns=True).concat(own).min()
    close(labels, limit)
    return labels.leave()


@of_edges
def strong_components(edges: Collection, limit: int = LIMIT, name: str | None = None) -> Collection:
    """Pairs (node, least node of its strongly connected component), edges (from, to).

    >>> from falkirk import differential, graph
    >>> flow = falkirk.Dataflow()
    >>> edges = differential.from_records(flow.source("edges", falkirk.Iterable([(0, 1), (1, 2), (2, 0), (3, 4)])))
    >>> seen = graph.strong_components(edges).capture("out")
    >>> sorted(differential.snapshot(falkirk.run(flow).captured("out")))
    [(0, 0), (1, 0), (2, 0), (3, 3), (4, 4)]
    """
    nodes = nodes_of(edges)

    def turned(inner: Collection) -> Collection:
        return inner.map_pairs(lambda a, b: (b, a))

    within = edges.distinct().iterate(lambda inner: _same(turned(_same(turned(inner)))), limit, name)
    return _spread(within.concat(turned(within)), nodes)


def _same(edges: Collection) -> Collection:
    """Edges with both ends reached from the same least node."""
    edges = edges.arrange()
    least = _spread(edges, edges.map_pairs(lambda a, b: as_key(b)).distinct()).arrange()
    begins = edges.join(least, lambda a, b, label: _both(b, a, label), columns=True)
    return begins.join(least, _alike, columns=True).filter_pairs(_is_kept)


def _both(key: Any, a: Any, b: Any) -> Any:
    """Key with two nodes as one value, packed into one number if they fit."""
    if isinstance(key, np.ndarray):
        fit = min(a.min(), b.min()) >= 0 and max(a.max(), b.max()) >> _HALF == 0
        return (key, a << _HALF | b) if fit else NotImplemented
    fit = type(a) is int and type(b) is int and min(a, b) >= 0 and max(a, b) >> _HALF == 0
    return key, a << _HALF | b if fit else (a, b)


def _alike(end: Any, begun: Any, label: Any) -> Any:
    """Edge to `end` if its start has the same label; otherwise the void edge (-1, -1)."""
    if isinstance(end, np.ndarray):
        alike = begun & (1 << _HALF) - 1 == label
        return np.where(alike, begun >> _HALF, -1), np.where(alike, end, -1)
    begin, other = begun if isinstance(begun, tuple) else (begun >> _HALF, begun & (1 << _HALF) - 1)
    return (begin, end) if other == label else (-1, -1)


def _is_kept(a: Any, b: Any) -> Any:
    return (a != -1) | (b != -1) if isinstance(a, np.ndarray) else (a, b) != (-1, -1)


@of_edges
def odd_components(edges: Collection, limit: int = LIMIT, name: str | None = None) -> Collection:
    """Nodes of non-bipartite components: those with a closed walk of odd length.

    In a graph with two copies of each node, in which each edge leads from one copy to the other, such a walk joins the copies.

    >>> from falkirk import differential, graph
    >>> flow = falkirk.Dataflow()
    >>> edges = differential.from_records(flow.source("edges", falkirk.Iterable([(0, 1), (1, 2), (2, 0), (3, 4)])))
    >>> seen = graph.odd_components(edges).capture("out")
    >>> differential.snapshot(falkirk.run(flow).captured("out"))
    {0: 1, 1: 1, 2: 1}
    """
    cover = edges.map_pairs(lambda a, b: (_copy(a, 0), _copy(b, 1))).concat(
        edges.map_pairs(lambda a, b: (_copy(a, 1), _copy(b, 0)))
    )
    labels = components(cover, limit=limit, name=name)
    copies = labels.map_pairs(lambda copy, label: (_copied(copy), label)).distinct()
    return copies.count().filter_pairs(lambda _, copies: copies == 1).map_pairs(lambda node, _: node)


def _copy(node: Any, side: int) -> Any:
    """Copy 0 or 1 of a node: an integer for an integer, a pair for others."""
    return 2 * node + side if type(node) is int or isinstance(node, np.ndarray) else (node, side)


def _copied(copy: Any) -> Any:
    return copy[0] if type(copy) is tuple else copy // 2


def _length(label: Any) -> Any:
    """Bit length of an integer label, 0 for others; elementwise for an array."""
    if not isinstance(label, np.ndarray):
        return label.bit_length() if type(label) is int else 0
    size = np.abs(label)
    upper = size >> 32 if len(size) and size.max() >> 32 else np.zeros_like(size)  # 64 bits are more than a float has
    return np.where(upper > 0, 32 + np.frexp(upper)[1], np.frexp(size & 0xFFFFFFFF)[1]).astype(np.int64)
