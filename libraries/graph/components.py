"""Connected components."""

from __future__ import annotations

from typing import Any

import numpy as np

from libraries.differential import Collection
from libraries.differential.collection import LIMIT, feedback

_APART = 256
"""Iterations between the labels of one length and the next. More than most diameters; where it is not, only time is lost."""


def components(
    edges: Collection, nodes: Collection | None = None, limit: int = LIMIT, name: str | None = None
) -> Collection:
    """Pairs (node, least node of its component) for edges (a, b) in either direction; nodes are integers from 0 up.

    `nodes`, distinct, are those that there are; by default those that have edges. Labels enter the loop by their lengths in
    bits, the shortest first: so a node seldom has a label that another one takes away from it.
    """
    both = edges.concat(edges.map_pairs(lambda a, b: (b, a)))
    if nodes is None:
        nodes = both.map_pairs(lambda a, b: a).distinct()
    graph = edges.stream.graph
    scope = graph.add_scope(name, edges.scope)
    close, known = feedback(scope, graph, f"{scope.name}-feedback")
    own = nodes.map_pairs(lambda node, _: (node, node)).enter_at(scope, lambda node, label: _APART * _length(label))
    labels = both.join(known, lambda node, other, label: (other, label), columns=True).concat(own).min()
    close(labels, limit)
    return labels.leave()


def _length(label: Any) -> Any:
    """The bits of a natural number; of an array, those of each."""
    return label.bit_length() if isinstance(label, int) else np.frexp(label.astype(np.float64))[1].astype(np.int64)
