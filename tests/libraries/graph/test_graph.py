"""Graph algorithms against networkx, after every epoch of random histories of edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries import graph
from libraries.differential import Collection
from libraries.graph.components import _length
from tests.libraries.differential.histories import PATHS, Contents, check, contents, handled, run
from tests.libraries.differential.test_histories import components, edges, histories, reachable, shortest

some = settings(max_examples=settings.default.max_examples // 4)
few = settings(max_examples=max(2, settings.default.max_examples // 20))


def directed(held: Contents) -> nx.DiGraph:
    found = nx.DiGraph()
    found.add_edges_from(held)
    return found


def simple(held: Contents) -> nx.Graph:
    found = nx.Graph()
    found.add_edges_from((a, b) for a, b in held if a != b)
    return found


def strong_parts(held: Contents) -> Contents:
    return {(node, min(part)): 1 for part in nx.strongly_connected_components(directed(held)) for node in part}


def odd(held: Contents) -> Contents:
    found = nx.Graph()
    found.add_edges_from(held)
    parts = (found.subgraph(part) for part in nx.connected_components(found))
    return {node: 1 for part in parts if not nx.is_bipartite(part) for node in part}


def cliques(held: Contents) -> Contents:
    return {tuple(sorted(each)): 1 for each in nx.enumerate_all_cliques(simple(held)) if len(each) == 3}


KINDS: dict[str, Callable[[int], Any]] = {
    "texts": "n{}".format,
    "pairs": lambda n: (n // 3, n % 3),
    "triples": lambda n: (n, -n, "x"),
    "less than 0": lambda n: n - 5,
    "beyond 53 bits": lambda n: (1 << 61) - 7 + n,
    "far apart": lambda n: (n - 3) << 40,
    "equal ones": lambda n: float(n) if n % 2 else n,
}
"""Kinds of nodes, in the order of the numbers of which they are made."""


def weight(a: Any, b: Any) -> int:
    return sum(repr(a).encode()) % 7 + 2 * (sum(repr(b).encode()) % 5)


def weighted(pairs: Collection, roots: Collection) -> Collection:
    return graph.shortest_paths(pairs.map(lambda edge: (edge[0], (edge[1], weight(*edge)))), roots)


def least_weights(held: Contents, roots: Contents) -> Contents:
    found = nx.DiGraph()
    found.add_nodes_from(roots)
    found.add_weighted_edges_from((a, b, weight(a, b)) for a, b in held)
    return dict.fromkeys(nx.multi_source_dijkstra_path_length(found, set(roots)).items(), 1) if roots else {}


def labelled(held: Contents) -> Contents:
    """Three rounds of label propagation, from scratch."""
    found = simple(held)
    labels = {node: node for node in found}
    for _ in range(3):
        heard = {node: Counter(labels[other] for other in found[node]) for node in found}
        labels = {node: min(counts, key=lambda label: (-counts[label], label)) for node, counts in heard.items()}
    return dict.fromkeys(labels.items(), 1)


OF_EDGES: dict[str, tuple[Callable[[Collection], Collection], Callable[[Contents], Contents]]] = {
    "components": (graph.components, components),
    "strong_components": (graph.strong_components, strong_parts),
    "odd_components": (graph.odd_components, odd),
    "k_core": (lambda e: graph.k_core(e, 2), lambda held: dict.fromkeys(nx.k_core(simple(held), 2), 1)),
    "denser k_core": (lambda e: graph.k_core(e, 3), lambda held: dict.fromkeys(nx.k_core(simple(held), 3), 1)),
    "triangles": (graph.triangles, cliques),
    "label_propagation": (lambda e: graph.label_propagation(e, 3), labelled),
}

OF_ROOTS: dict[str, tuple[Callable[..., Collection], Callable[..., Contents]]] = {
    "reach": (graph.reach, reachable),
    "distances": (graph.distances, shortest),
    "shortest_paths": (weighted, least_weights),
}

runs = {"path": st.sampled_from(PATHS), "workers": st.integers(1, 3), "seed": st.integers(0, 1000)}


@pytest.mark.parametrize("name", OF_EDGES)
@some
@given(epochs=histories("e", edges), **runs)
def test_what_edges_say_is_what_networkx_says(name: str, epochs: list[Any], path: int, workers: int, seed: int) -> None:
    check(*OF_EDGES[name], ["e"], epochs, path, workers, seed)


@pytest.mark.parametrize("name", OF_ROOTS)
@some
@given(epochs=histories("e", edges), roots=st.lists(st.integers(0, 6), min_size=1, max_size=3), **runs)
def test_walks_from_roots_are_those_of_networkx(
    name: str, epochs: list[Any], roots: list[int], path: int, workers: int, seed: int
) -> None:
    for number, root in enumerate(roots[: len(epochs)]):
        epochs[number] += [("r", root, 1)]
    check(*OF_ROOTS[name], ["e", "r"], epochs, path, workers, seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*OF_EDGES, *OF_ROOTS])
@few
@given(epochs=histories("e", edges), root=st.integers(0, 6), **runs)
def test_nodes_may_be_of_any_kind(
    name: str, kind: str, epochs: list[Any], root: int, path: int, workers: int, seed: int
) -> None:
    make = KINDS[kind]
    epochs = [[(side, (make(a), make(b)), by) for side, (a, b), by in epoch] for epoch in epochs]
    if name in OF_EDGES:
        check(*OF_EDGES[name], ["e"], epochs, path, workers, seed)
    else:
        epochs[0].append(("r", make(root), 1))
        check(*OF_ROOTS[name], ["e", "r"], epochs, path, workers, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_are_of_nodes_of_any_kind(kind: str) -> None:
    make, pairs = KINDS[kind], [(0, 1), (1, 2), (2, 0), (2, 1)]
    given = [
        run(graph.pagerank, ["e"], [[("e", pair, 1) for pair in found]], 2)
        for found in (pairs, [(make(a), make(b)) for a, b in pairs])
    ]
    assert given[1] == [{(make(node), rank): 1 for node, rank in given[0][0]}]


@few
@given(epochs=histories("e", edges), **runs)
def test_triangles_are_found_in_loops_too(epochs: list[Any], path: int, workers: int, seed: int) -> None:
    def corners(inner: Collection) -> Collection:
        found = graph.triangles(inner)
        return found.flat_map(lambda each: [each[:2], each[1:], each[::2]]).distinct()

    def want(held: Contents) -> Contents:
        return {pair: 1 for a, b, c in cliques(held) for pair in ((a, b), (b, c), (a, c))}

    check(lambda e: e.iterate(corners), want, ["e"], epochs, path, workers, seed)


@given(st.lists(st.integers(-(1 << 62), (1 << 62) - 1) | st.sampled_from([0, 1, (1 << 53) - 1, (1 << 62) - 1])))
def test_labels_of_columns_enter_when_single_ones_do(labels: list[int]) -> None:
    assert _length(np.array(labels, np.int64)).tolist() == [_length(label) for label in labels]


@pytest.mark.parametrize(("path", "workers"), [(PATHS[0], 1), (PATHS[2], 2)])
def test_ranks_are_those_of_networkx_to_a_unit_an_edge(path: int, workers: int) -> None:
    """Every node has an edge to 0, and 0 to all, so that no rank goes nowhere."""
    unit, chance = 1e-4, Random(7)
    first = [("e", edge, 1) for node in range(7) for edge in ((node, 0), (0, node))]
    more = [("e", (chance.randrange(7), chance.randrange(7)), 1) for _ in range(12)]
    epochs = [first, more, [(name, edge, -1) for name, edge, _ in more[:6]]]
    with handled(path):
        given = run(lambda e: graph.pagerank(e, unit=unit), ["e"], epochs, workers)
    for got, held in zip(given, contents(epochs, "e"), strict=True):
        found = nx.DiGraph()
        found.add_weighted_edges_from((a, b, times) for (a, b), times in held.items())
        want = nx.pagerank(found, tol=1e-12, max_iter=1000)
        ranks = {node: rank * unit for node, rank in got}
        assert ranks.keys() == want.keys()
        for node, rank in ranks.items():
            assert rank == pytest.approx(want[node] * len(want), abs=100 * unit)
