"""Walks along edges: nodes that are reached, and how far away they are."""

from __future__ import annotations

from libraries.differential import Collection
from libraries.differential.collection import LIMIT, grow


def reach(edges: Collection, roots: Collection, limit: int = LIMIT, name: str | None = None) -> Collection:
    """The nodes that a walk along edges (from, to) leads to from any of `roots`, these included."""
    return grow(
        lambda known: edges.join(known, lambda a, b, _: b, columns=True).concat(roots).distinct(), edges, limit, name
    )


def distances(edges: Collection, roots: Collection, limit: int = LIMIT, name: str | None = None) -> Collection:
    """Pairs (node, number of edges (from, to) on the shortest walk from any of `roots`)."""
    begun = roots.map_pairs(lambda root, _: (root, root * 0))
    return grow(
        lambda known: edges.join(known, lambda a, b, steps: (b, steps + 1), columns=True).concat(begun).min(),
        edges,
        limit,
        name,
    )


def shortest_paths(edges: Collection, roots: Collection, limit: int = LIMIT, name: str | None = None) -> Collection:
    """Pairs (node, least sum of weights on a walk from any of `roots`), for edges (from, (to, weight)).

    A cycle of negative weight has no end: an error after `limit` iterations.
    """
    begun = roots.map(lambda root: (root, 0))
    return grow(
        lambda known: edges.join(known, lambda a, edge, far: (edge[0], far + edge[1])).concat(begun).min(),
        edges,
        limit,
        name,
    )
