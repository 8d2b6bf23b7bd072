"""Connected components."""

from __future__ import annotations

from typing import Any

import numpy as np

from libraries.differential import Collection
from libraries.differential.collection import LIMIT, feedback

_HALF = 31
"""Bits of each of two numbers that are one."""

_APART = 256
"""Iterations between the labels of one length and the next. More than most diameters; where it is not, only time is lost."""


def components(
    edges: Collection, nodes: Collection | None = None, limit: int = LIMIT, name: str | None = None
) -> Collection:
    """Pairs (node, least node of its component) for edges (a, b) in either direction; nodes are integers from 0 up.

    `nodes`, distinct, are those that there are; by default those that have edges. Labels enter the loop by their lengths in
    bits, the shortest first: so a node seldom has a label that another one takes away from it.

    >>> from falkirk import differential, graph
    >>> flow = falkirk.Dataflow()
    >>> edges = differential.from_records(flow.source("edges", falkirk.Iterable([(0, 1), (1, 2), (2, 0), (3, 4)])))
    >>> seen = graph.components(edges).capture("out")
    >>> sorted(differential.snapshot(falkirk.run(flow).captured("out")))
    [(0, 0), (1, 0), (2, 0), (3, 3), (4, 3)]
    """
    both = edges.concat(edges.map_pairs(lambda a, b: (b, a)))
    if nodes is None:
        nodes = both.map_pairs(lambda a, b: a).distinct()
    return _spread(both, nodes, limit, name)


def _spread(edges: Collection, nodes: Collection, limit: int = LIMIT, name: str | None = None) -> Collection:
    """Pairs (node, least of the nodes from which a walk along edges (from, to) leads to it)."""
    graph = edges.stream.graph
    scope = graph.add_scope(name, edges.scope)
    close, known = feedback(scope, graph, f"{scope.name}-feedback")
    own = nodes.map_pairs(lambda node, _: (node, node)).enter_at(scope, lambda node, label: _APART * _length(label))
    labels = edges.join(known, lambda a, b, label: (b, label), columns=True).concat(own).min()
    close(labels, limit)
    return labels.leave()


def strong_components(edges: Collection, limit: int = LIMIT, name: str | None = None) -> Collection:
    """Pairs (node, least node of its strongly connected component) for edges (from, to); nodes are integers from 0 up.

    >>> from falkirk import differential, graph
    >>> flow = falkirk.Dataflow()
    >>> edges = differential.from_records(flow.source("edges", falkirk.Iterable([(0, 1), (1, 2), (2, 0), (3, 4)])))
    >>> seen = graph.strong_components(edges).capture("out")
    >>> sorted(differential.snapshot(falkirk.run(flow).captured("out")))
    [(0, 0), (1, 0), (2, 0), (3, 3), (4, 4)]
    """
    nodes = edges.map_pairs(lambda a, b: a).concat(edges.map_pairs(lambda a, b: b)).distinct()

    def turned(inner: Collection) -> Collection:
        return inner.map_pairs(lambda a, b: (b, a))

    return components(edges.distinct().iterate(lambda inner: _same(turned(_same(turned(inner)))), limit, name), nodes)


def _same(edges: Collection) -> Collection:
    """The edges whose ends are reached from one and the same least node."""
    edges = edges.arrange()
    least = _spread(edges, edges.map_pairs(lambda a, b: b).distinct()).arrange()
    begins = edges.join(least, lambda a, b, label: _both(b, a, label), columns=True)
    return begins.join(least, _alike, columns=True).filter_pairs(lambda a, _: a >= 0)


def _both(key: Any, a: Any, b: Any) -> Any:
    """A key with two numbers as one value: in one number where they fit."""
    if isinstance(key, int):
        return key, a << _HALF | b if max(a, b) >> _HALF == 0 else (a, b)
    return (key, a << _HALF | b) if max(a.max(), b.max()) >> _HALF == 0 else NotImplemented


def _alike(end: Any, begun: Any, label: Any) -> Any:
    """The edge to `end`, if its beginning has the same label; -1, -1 if not."""
    if not isinstance(end, int):
        alike = begun & (1 << _HALF) - 1 == label
        return np.where(alike, begun >> _HALF, -1), np.where(alike, end, -1)
    begin, other = begun if isinstance(begun, tuple) else (begun >> _HALF, begun & (1 << _HALF) - 1)
    return (begin, end) if other == label else (-1, -1)


def odd_components(edges: Collection, limit: int = LIMIT, name: str | None = None) -> Collection:
    """The nodes of components that are not bipartite: those with a closed walk of an odd number of edges.

    In a graph with two copies of each node, in which each edge leads from one copy to the other, such a walk joins the copies.

    >>> from falkirk import differential, graph
    >>> flow = falkirk.Dataflow()
    >>> edges = differential.from_records(flow.source("edges", falkirk.Iterable([(0, 1), (1, 2), (2, 0), (3, 4)])))
    >>> seen = graph.odd_components(edges).capture("out")
    >>> differential.snapshot(falkirk.run(flow).captured("out"))
    {0: 1, 1: 1, 2: 1}
    """
    cover = edges.map_pairs(lambda a, b: (2 * a, 2 * b + 1)).concat(edges.map_pairs(lambda a, b: (2 * a + 1, 2 * b)))
    labels = components(cover, limit=limit, name=name)
    copies = labels.map_pairs(lambda copy, label: (copy // 2, label)).distinct()
    return copies.count().filter_pairs(lambda _, copies: copies == 1).map_pairs(lambda node, _: node)


def _length(label: Any) -> Any:
    """The bits of a natural number; of an array, those of each."""
    return label.bit_length() if isinstance(label, int) else np.frexp(label.astype(np.float64))[1].astype(np.int64)
