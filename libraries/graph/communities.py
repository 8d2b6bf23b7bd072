"""Communities: groups of nodes with more edges inside than to others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from libraries.differential import Collection
from libraries.differential.rows import as_key
from libraries.graph.nodes import of_edges
from timely.errors import GraphError, user_site


@of_edges
def label_propagation(edges: Collection, rounds: int = 5) -> Collection:
    """Pairs (node, label) after `rounds` of synchronous label propagation.

    In each round all nodes take the most frequent label of their neighbours.

    A node begins with itself as its label; of equally frequent labels the least wins. Edges (a, b) count once and in both
    directions. (Raghavan, Albert and Kumara, *Near linear time algorithm to detect community structures*, 2007, synchronously.)

    Raises:
        GraphError: `rounds` is no whole number from 0 up.

    >>> from falkirk import differential, graph
    >>> flow = falkirk.Dataflow()
    >>> pairs = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 3)]
    >>> edges = differential.from_records(flow.source("edges", falkirk.Iterable(pairs)))
    >>> seen = graph.label_propagation(edges, rounds=4).capture("out")
    >>> sorted(differential.snapshot(falkirk.run(flow).captured("out")))
    [(0, 0), (1, 0), (2, 0), (3, 2), (4, 2), (5, 2)]
    """
    if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 0:
        raise GraphError(f"{user_site()}: label_propagation takes a number of rounds from 0 up, not {rounds!r}")
    apart = edges.filter_pairs(lambda a, b: a != b)
    both = apart.concat(apart.map_pairs(lambda a, b: (b, a))).distinct().arrange()
    labels = both.map_pairs(lambda a, b: as_key(a)).distinct().map_pairs(lambda node, _: (node, node))
    for _ in range(rounds):
        of_neighbors = both.join(labels, lambda a, b, label: (b, label), columns=True)
        labels = of_neighbors.reduce(_most_frequent)
    return labels


def _most_frequent(node: Any, of_neighbors: Sequence[tuple[Any, int]]) -> list[Any]:
    return [min(of_neighbors, key=lambda each: (-each[1], each[0]))[0]]
