"""Nodes of a graph, which may be anything that can be hashed. Those that are pairs travel as keys: see `Collection.as_keys`."""

from __future__ import annotations

from typing import Any

import numpy as np

from libraries.differential import Collection
from libraries.differential.rows import as_key


def nodes_of(edges: Collection) -> Collection:
    """The nodes that have an edge, each once, as keys."""
    return edges.map_pairs(lambda a, b: as_key(a)).concat(edges.map_pairs(lambda a, b: as_key(b))).distinct()


def bare(nodes: Collection) -> Collection:
    """Nodes that are keys as records."""
    return nodes.map_pairs(lambda node, _: node)


def each(node: Any, number: int) -> Any:
    """`number`; for an array of nodes as many of it."""
    return np.full(len(node), number) if isinstance(node, np.ndarray) else number
