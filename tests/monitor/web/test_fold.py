"""The drawing: never too much, every operator in one place, and what a reader has chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import count, pairwise
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.web.fold import MOST_CHILDREN, MOST_DRAWN, FoldGroup, Folding, fold, group_tree
from recovery.layout import EdgeInfo, GroupInfo, Layout, ProcessorInfo
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
    assert len(folding.nodes) > 10 or operators < 100
    regions = {group.key for group in group_tree(layout).groups() if group.kind == "region"}
    assert operators < 200 or not regions & folding.open, "of 200 operators on regions begin folded"


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
        (400, 3, (14, 1, 9, 5, 64, 0)),
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
    folding = fold(layout, root, opened=[deep], most=80)
    assert {deep, *around(deep, parents)} <= folding.open
    first = next(key for key in sorted(folding.open) if key and key != deep and key not in set(around(deep, parents)))
    assert first not in fold(layout, root, closed=[first], most=80).open
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


# Shapes


def plan_of(
    count: int,
    edges: Iterable[tuple[int, int]],
    regions: Mapping[int, str] | None = None,
    scopes: Mapping[int, tuple[str, ...]] | None = None,
    back: Iterable[tuple[int, int]] = (),
) -> Layout:
    """Operators p0, p1, ... and what joins them; what is in `back` leads back."""
    infos = [
        ProcessorInfo(
            *(f"p{p}", "map", "app.py:1", (regions or {}).get(p), "Lazy", 1, False, 0, "operator"),
            scope=(scopes or {}).get(p, ()),
        )
        for p in range(count)
    ]
    steps = [*((edge, 0) for edge in edges), *((edge, 1) for edge in back)]
    joined = [EdgeInfo(a, 0, b, 0, number, False, False, 1, (step,), ()) for number, ((a, b), step) in enumerate(steps)]
    return Layout("job", "f", "{}", 1, tuple(infos), tuple(joined), (GroupInfo(None, 1.0),))


def line(first: int, last: int) -> list[tuple[int, int]]:
    return list(pairwise(range(first, last + 1)))


def ladder(layers: int, width: int = 2) -> list[tuple[int, int]]:
    """Layers, from each operator of which an edge leads to each of the next one."""
    return [
        (layer * width + a, layer * width + width + b)
        for layer in range(layers - 1)
        for a in range(width)
        for b in range(width)
    ]


def samples(group: FoldGroup) -> list[tuple[str, str, str, list[int]] | int]:
    """The children of a group: operators, and key, label, kind and members of groups."""
    return [
        child if isinstance(child, int) else (child.key, child.label, child.kind, child.members())
        for child in group.children
    ]


def test_forty_eight_are_left_as_they_are() -> None:
    assert MOST_CHILDREN == 48
    for edges in ([], line(0, 47), ladder(24)):
        assert samples(group_tree(plan_of(48, edges))) == list(range(48))
    assert len(group_tree(plan_of(49, line(0, 48))).children) == 2, "a chain of 48, and one more"
    assert len(group_tree(plan_of(49, [])).children) == 25


def test_of_one_operator_no_region_is_made_nor_of_all_of_them() -> None:
    regions = dict.fromkeys(range(10, 40), "many") | {40: "two", 41: "two", 42: "one"}
    root = group_tree(plan_of(60, [], regions))
    assert samples(root) == [
        *range(10),
        (":many", "many", "region", list(range(10, 40))),
        (":two", "two", "region", [40, 41]),
        *range(42, 60),
    ]
    everything = group_tree(plan_of(60, line(0, 59), dict.fromkeys(range(60), "all")))
    assert {child.kind for child in everything.groups()} == {"chain"}


def test_a_scope_is_divided_by_its_regions_like_all_the_rest() -> None:
    scopes = dict.fromkeys(range(2, 102), ("loop",))
    regions = {p: "begin" if p < 52 else "end" for p in range(2, 102)}
    plan = plan_of(104, line(0, 103), regions, scopes)
    root = group_tree(plan)
    assert samples(root) == [0, 1, ("loop", "loop", "scope", list(range(2, 102))), 102, 103]
    (loop,) = (group for group in root.groups() if group.key == "loop")
    assert [child[:3] for child in samples(loop) if not isinstance(child, int)] == [
        ("loop:begin", "begin", "region"),
        ("loop:end", "end", "region"),
    ]


def test_scopes_are_within_those_around_them() -> None:
    scopes = {1: ("a",), 2: ("a", "b"), 3: ("a", "b", "c"), 4: ("a", "c")}
    root = group_tree(plan_of(5, line(0, 4), scopes=scopes))
    inside = {group.key: samples(group) for group in (root, *root.groups())}
    assert inside == {
        "": [0, ("a", "a", "scope", [1, 2, 3, 4])],
        "a": [1, ("a/b", "b", "scope", [2, 3]), ("a/c", "c", "scope", [4])],
        "a/b": [2, ("a/b/c", "c", "scope", [3])],
        "a/b/c": [3],
        "a/c": [4],
    }


def test_a_chain_is_what_has_no_fork_beside_scopes_and_across_what_leads_back() -> None:
    """Its key and its label are of its first and of its last operator."""
    scopes = {5: ("inner",), 6: ("inner",)}
    edges = [*line(0, 3), (0, 4), *line(7, 40), *((40, p) for p in range(41, 90))]
    root = group_tree(plan_of(90, edges, scopes=scopes, back=[(30, 20), (3, 0)]))
    chains = [each for each in samples(root) if not isinstance(each, int) and each[2] == "chain"]
    found = [group for group in root.groups() if group.kind == "chain"]
    assert [(each.key, each.label, each.children) for each in found] == [
        (":p1..", "p1 … p3", [1, 2, 3]),
        (":p7..", "p7 … p40", list(range(7, 41))),
    ]
    assert len(chains) <= 2


@pytest.mark.parametrize(
    ("layers", "height"), [(25, 2), (48, 2), (49, 2), (60, 2), (96, 2), (97, 3), (144, 3), (145, 4)]
)
def test_bands_are_of_as_many_layers_each_and_no_more_than_they_must(layers: int, height: int) -> None:
    """At most 48 of them; at least two layers each, as what stands in one layer does not hang together."""
    root = group_tree(plan_of(2 * layers, ladder(layers)))
    bands = [range(2 * at, min(2 * (at + height), 2 * layers)) for at in range(0, layers, height)]
    expected: list[Any] = []
    for band in bands:
        part = f":p{band[0]}+", f"p{band[0]} and {len(band) - 1} more", "part", list(band)
        expected += [part] if len(band) > 2 else list(band)
    assert samples(root) == expected


@pytest.mark.parametrize("count", [49, 96, 97, 100, 2304])
def test_many_small_things_side_by_side_are_taken_together_in_order(count: int) -> None:
    root = group_tree(plan_of(count, []))
    size = -(-count // MOST_CHILDREN)
    bundles = [list(range(at, min(at + size, count))) for at in range(0, count, size)]
    assert samples(root) == [
        (f":p{each[0]}+", f"p{each[0]} and {len(each) - 1} more", "part", each) if len(each) > 1 else each[0]
        for each in bundles
    ]


def test_a_part_is_named_after_the_first_operator_in_it() -> None:
    """Of the first thing in it, be that a group."""
    scopes = {p: (f"s{p // 2}",) for p in range(200)}
    root = group_tree(plan_of(200, [(p, p + 1) for p in range(0, 200, 2)], scopes=scopes))
    assert samples(root)[:2] == [
        (":p0+", "p0 and 2 more", "part", list(range(6))),
        (":p6+", "p6 and 2 more", "part", list(range(6, 12))),
    ]


SHAPES = {
    "a star": (1001, [(0, p) for p in range(1, 1001)]),
    "a star to one": (1001, [(p, 1000) for p in range(1000)]),
    "a star of very many": (3000, [(0, p) for p in range(1, 3000)]),
    "all with all": (200, ladder(2, 100)),
    "all with all, in many layers": (800, ladder(100, 8)),
    "a comb": (400, [*line(0, 199), *((p, 200 + p) for p in range(200))]),
    "one with its next but one": (300, [(p, q) for p in range(300) for q in (p + 1, p + 2) if q < 300]),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shape", SHAPES)
def test_whatever_its_shape_a_program_is_shown_with_few_nodes_each_group_with_few_children(shape: str) -> None:
    count, edges = SHAPES[shape]
    plan = plan_of(count, edges)
    root = group_tree(plan)
    assert root.members() == list(range(count))
    groups = [root, *root.groups()]
    assert len({group.key for group in groups}) == len(groups)
    assert all(1 < len(group.children) <= MOST_CHILDREN for group in groups)
    assert len(fold(plan, root).nodes) <= MOST_DRAWN
    graph = graph_of(plan)
    for group in groups[:50]:
        where = dict.fromkeys(group.members(), -1)
        around = nx.DiGraph((where.get(a, a), where.get(b, b)) for a, b in graph.edges)
        around.remove_edges_from([(-1, -1)])
        assert nx.is_directed_acyclic_graph(around), "what leaves it comes back"


def test_a_knot_is_divided_too() -> None:
    """Between two operators of a region stand a hundred others, so none can be above or below it."""
    edges = [*((0, p) for p in range(2, 102)), *((p, 1) for p in range(2, 102))]
    root = group_tree(plan_of(102, edges, {0: "ends", 1: "ends"}))
    assert all(1 < len(group.children) <= MOST_CHILDREN for group in (root, *root.groups()))
    assert len(fold(plan_of(102, edges), root, most=60).nodes) <= 60


# What is open, computed plainly


def trees(most: int = 40) -> st.SearchStrategy[FoldGroup]:
    """Groups within groups."""

    def build(shape: Any) -> FoldGroup:
        numbers, keys = count(), count()

        def group(inner: Any) -> FoldGroup:
            made = FoldGroup(f"g{next(keys)}", "g", "scope")
            made.children = [group(each) if isinstance(each, list) else next(numbers) for each in inner]
            return made

        root = group(shape)
        root.key = ""
        return root

    leaf: st.SearchStrategy[Any] = st.none()
    shape = st.recursive(leaf, lambda inner: st.lists(inner, min_size=1, max_size=6), max_leaves=most)
    return st.lists(shape, min_size=1, max_size=6).map(build)


def shown(group: FoldGroup, is_open: Collection[str]) -> list[tuple[int, ...]]:
    """The nodes of a group, if these are open."""
    found: list[tuple[int, ...]] = []
    for child in group.children:
        if isinstance(child, int):
            found.append((child,))
        elif child.key in is_open:
            found += shown(child, is_open)
        else:
            found.append(tuple(child.members()))
    return found


@given(trees(), st.data())
def test_levels_are_opened_from_outside_as_long_as_there_is_room(root: FoldGroup, data: st.DataObject) -> None:
    """All groups of a level, or none; the small ones first, where else there were almost nothing. A reader's word counts."""
    groups = list(root.groups())
    keys = st.sets(st.sampled_from([group.key for group in groups]), max_size=3) if groups else st.just(set[str]())
    opened, closed = data.draw(keys), data.draw(keys)
    most = data.draw(st.integers(1, 45))
    parents = {
        child.key: group for group in (root, *groups) for child in group.children if isinstance(child, FoldGroup)
    }
    wanted = {around for key in opened for around in (key, *around_of(key, parents))}
    is_open = {"", *wanted}
    level = [child for child in root.children if isinstance(child, FoldGroup)]
    while level:
        more = [g for g in level if parents[g.key].key in is_open and g.key not in is_open | (closed - wanted)]
        after = is_open | {group.key for group in more}
        if len(shown(root, after)) <= most:
            is_open = after
        elif len(shown(root, is_open)) < most / 4:
            for group in sorted(more, key=lambda group: (len(group.children), group.key)):
                if len(shown(root, is_open | {group.key})) <= most:
                    is_open |= {group.key}
        level = [child for group in level for child in group.children if isinstance(child, FoldGroup)]
    plan = plan_of(len(root.members()), [])
    folding = fold(plan, root, sorted(opened), sorted(closed), most)
    assert folding.nodes == tuple(shown(root, is_open))
    assert all(p in folding.nodes[folding.of[p]] for p in root.members())
    assert folding.open == {group.key for group in (root, *groups) if group.key in is_open}


def test_all_groups_of_a_level_are_opened_or_none_while_enough_is_shown() -> None:
    """Opening one of two alike would show less than there is room for, and more than the other."""
    groups: list[FoldGroup | int] = [
        FoldGroup(key, key, "scope", [3 * at, 3 * at + 1, 3 * at + 2]) for at, key in enumerate("ab")
    ]
    root = FoldGroup("", "job", "scope", groups)
    plan = plan_of(6, [])
    shown_of = [len(fold(plan, root, most=most).nodes) for most in range(1, 12)]
    assert shown_of == [2, 2, 2, 2, 2, 6, 6, 6, 6, 6, 6]


def around_of(key: str, parents: Mapping[str, FoldGroup]) -> list[str]:
    return [parents[key].key, *around_of(parents[key].key, parents)] if key in parents else []
