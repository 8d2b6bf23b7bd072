"""The drawing: never too much, every operator in one place, and what a reader has chosen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.web.fold import MOST_DRAWN, Folding, fold, group_tree
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
