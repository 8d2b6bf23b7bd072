"""The drawing: never too much, every operator in one place, and what a reader has chosen."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.web.fold import MOST_CHILDREN, MOST_DRAWN, FoldGroup, Folding, fold, group_tree
from recovery.layout import Layout
from tests.monitor.web.programs import example_layout, wide_layout


def is_a_partition(layout: Layout, folding: Folding) -> bool:
    everything = sorted(member for members in folding.nodes for member in members)
    return everything == list(range(len(layout.processors))) and all(
        member in folding.nodes[folding.of[member]] for member in everything
    )


@pytest.mark.parametrize(("operators", "width"), [(100, 6), (400, 3), (1000, 6), (1000, 200), (1500, 1)])
def test_never_more_is_drawn_than_can_be_read(operators: int, width: int) -> None:
    layout = wide_layout(operators, width=width)
    folding = fold(layout, group_tree(layout))
    assert is_a_partition(layout, folding)
    assert len(folding.nodes) <= MOST_DRAWN
    assert len(folding.nodes) > 20 or operators < 100


@pytest.mark.parametrize("name", ["flights", "mixed_policies"])
def test_a_small_program_is_drawn_whole(name: str) -> None:
    layout = example_layout(name)
    folding = fold(layout, group_tree(layout))
    assert folding.nodes == tuple((p,) for p in sorted(range(len(layout.processors)), key=folding.of.__getitem__))
    assert {group.key for group in folding.root.groups()} <= folding.open


def test_a_folded_loop_is_one_node() -> None:
    layout = example_layout("flights")
    tree = group_tree(layout)
    folding = fold(layout, tree, closed=["hand-on"])
    inside = [p for p, info in enumerate(layout.processors) if info.scope == ("hand-on",)]
    assert len({folding.of[p] for p in inside}) == 1
    assert len(folding.nodes) == len(layout.processors) - len(inside) + 1
    assert fold(layout, tree, opened=["hand-on"], closed=["hand-on"]).nodes == fold(layout, tree).nodes


@given(st.data())
def test_what_a_reader_has_opened_is_open_with_all_around_it(data: st.DataObject) -> None:
    layout = wide_layout(300)
    tree = group_tree(layout)
    groups = list(tree.groups())
    wanted = data.draw(st.sets(st.sampled_from([group.key for group in groups]), max_size=4))
    unwanted = data.draw(st.sets(st.sampled_from([group.key for group in groups]), max_size=4)) - wanted
    folding = fold(layout, tree, sorted(wanted), sorted(unwanted), most=20)
    assert is_a_partition(layout, folding)
    assert wanted <= folding.open
    around = {group.key for group in (tree, *groups) for inner in group.groups() if inner.key in wanted}
    assert not (unwanted - around) & folding.open


# Groups


WIDE = [(40, 6), (100, 6), (400, 3), (1000, 6), (1000, 200), (1500, 1)]


def graph_of(layout: Layout) -> nx.DiGraph[int]:
    """Without what leads back."""
    made: nx.DiGraph[int] = nx.DiGraph()
    made.add_nodes_from(range(len(layout.processors)))
    made.add_edges_from((edge.source, edge.target) for edge in layout.edges if not edge.feedback)
    return made


@pytest.mark.parametrize(("operators", "width"), WIDE)
def test_groups_are_few_enough_to_read_and_each_is_what_its_kind_says(operators: int, width: int) -> None:
    layout = wide_layout(operators, width=width)
    graph, root = graph_of(layout), group_tree(layout)
    groups = [root, *root.groups()]
    assert len({group.key for group in groups}) == len(groups)
    assert root.members() == list(range(operators))
    for group in groups:
        members = group.members()
        assert len(group.children) <= MOST_CHILDREN
        assert group is root or len(group.children) > 1
        if group.kind == "region":
            assert {layout.processors[p].region for p in members} == {group.label}
        elif group.kind == "chain":
            steps = list(pairwise(members))
            assert all(graph.has_edge(*step) for step in steps)
            assert all(graph.out_degree(a) == graph.in_degree(b) == 1 for a, b in steps)
            assert len(members) >= 3
        elif group.kind == "scope" and group is not root:
            assert {layout.processors[p].scope[-1] for p in members} == {group.label}
        elif group.kind == "part":
            where = dict.fromkeys(members, -1)
            quotient = nx.DiGraph((where.get(a, a), where.get(b, b)) for a, b in graph.edges)
            quotient.remove_edges_from([(-1, -1)])
            assert nx.is_directed_acyclic_graph(quotient), "what leaves it comes back"


@pytest.mark.parametrize(
    ("operators", "width", "measured"),
    [
        (40, 6, (40, 1, 0, 0, 0, 0)),
        (100, 6, (100, 8, 2, 5, 0, 0)),
        (400, 3, (65, 11, 9, 5, 64, 0)),
        (1000, 6, (29, 1, 24, 5, 106, 82)),
        (1000, 200, (25, 1, 20, 5, 0, 216)),
        (1500, 1, (42, 1, 37, 5, 40, 0)),
    ],
)
def test_as_much_is_open_as_is_good_to_look_at(operators: int, width: int, measured: tuple[int, ...]) -> None:
    """Nodes, open groups, and groups of each kind. Where this fails, look at the page: if it is better, write that down."""
    layout = wide_layout(operators, width=width)
    root = group_tree(layout)
    folding = fold(layout, root)
    kinds = Counter(group.kind for group in root.groups())
    found = len(folding.nodes), len(folding.open), *(kinds[kind] for kind in ("scope", "region", "chain", "part"))
    assert found == measured


def test_a_reader_folds_what_was_open_and_opens_what_is_within_what_was_folded() -> None:
    layout = wide_layout(1000)
    root = group_tree(layout)
    parents = {
        child.key: group for group in (root, *root.groups()) for child in group.children if isinstance(child, FoldGroup)
    }
    deep = max(parents, key=lambda key: sum(1 for _ in around(key, parents)))
    assert len(list(around(deep, parents))) > 1
    folding = fold(layout, root, opened=[deep])
    assert {deep, *around(deep, parents)} <= folding.open
    first = next(key for key in sorted(folding.open) if key and key != deep and key not in set(around(deep, parents)))
    assert first not in fold(layout, root, closed=[first]).open
    assert all(
        (group is None) == (len(members) == 1 and not isinstance(group, FoldGroup))
        and (group is None or members == tuple(group.members()))
        for members, group in zip(folding.nodes, folding.folded)
    )


def around(key: str, parents: dict[str, FoldGroup]) -> list[str]:
    """The groups around one, but for the outermost."""
    found = []
    while key in parents and parents[key].key:
        key = parents[key].key
        found.append(key)
    return found
