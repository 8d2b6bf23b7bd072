"""Who is behind whom, and who is joined with whom: held against networkx."""

from __future__ import annotations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from recovery.reachability import behind, joined

COUNT = 9
EDGES = st.lists(st.tuples(st.integers(0, COUNT - 1), st.integers(0, COUNT - 1)), max_size=20)


@given(EDGES, st.sets(st.integers(0, COUNT - 1)))
def test_what_is_behind_is_what_networkx_finds_below_each_start(edges: list[tuple[int, int]], starts: set[int]) -> None:
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(COUNT))
    graph.add_edges_from(edges)
    assert behind(edges, starts) == set().union(*(nx.descendants(graph, start) for start in starts))


@given(EDGES)
def test_joined_are_the_weakly_connected_components(edges: list[tuple[int, int]]) -> None:
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(COUNT))
    graph.add_edges_from(edges)
    assert joined(COUNT, edges) == sorted(map(sorted, nx.weakly_connected_components(graph)))
