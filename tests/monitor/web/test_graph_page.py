"""The picture as data: each field of each node, box and edge, whatever is folded."""

from __future__ import annotations

from typing import Any

import pytest

import falkirk
from falkirk import Batch, Dataflow, Ephemeral, Lazy
from libraries import spark
from monitor.web.fold import FoldGroup, Folding, fold, group_tree
from monitor.web.graph_page import edges_of, graph_page, sizes_of, tree_of
from recovery.layout import Layout, lay_out
from tests.monitor.web.asked import ask
from tests.monitor.web.standing import StandingJob
from tests.recovery.layouts import layout
from timely.dataflow.plan import compile_plan


def steps() -> Layout:
    """A loop, a scope within it, regions of three policies, a region on Spark, outputs of two kinds."""
    flow = Dataflow("steps")
    with flow.region("front", policy=Ephemeral()):
        numbers = flow.source("numbers", falkirk.Rate(int, 100, 100, epoch_every=10)).filter(bool, name="real")
    with flow.region("rings", policy=Lazy(every=2)):
        outer = flow.scope("outer")
        inner = flow.scope("inner", outer)
        loop, again = flow.feedback(outer, name="round")
        begun = numbers.enter(outer, name="into").concat(again).enter(inner, name="deeper")
        counts = begun.key_by(str, name="by-text").count(name="counts").records().leave(name="back-out")
        odd, even = counts.branch(lambda pair: pair[1] % 2, name="split")
        even.map(len, name="halve").connect_loop(loop)
        result = odd.leave(name="out")
    with flow.region("logs", policy=Batch(log_outputs=True)):
        rows = result.map(lambda pair: {"n": pair[1]}, name="rows")
    table = rows.to_columns({"n": int}, name="table")
    spark.batch(table, "select sum(n) as n from input", name="sum").capture("totals")
    rows.to(falkirk.FileSink("out"), name="files")
    return lay_out(compile_plan(flow.graph, 2))


NODES = """
numbers          source      source    front  Ephemeral  chain
real             filter      operator  front  Ephemeral
round            feedback    operator  rings  Lazy       small
into             enter       operator  rings  Lazy       small
deeper           enter       operator  rings  Lazy       small
ones-1           ones        operator  rings  Lazy
counts           count       operator  rings  Lazy       chain
back-out         leave       operator  rings  Lazy       small
split            branch      operator  rings  Lazy
halve            map         operator  rings  Lazy
out              leave       operator  rings  Lazy       small
rows             map         operator  logs   Batch      chain
table            to_columns  operator  -      Lazy
sum-spill-input  unary       operator  -      Batch      chain
sum-gather       unary       operator  -      Lazy       chain
sum              unary       operator  -      Batch      chain
sum-read         unary       operator  -      Lazy
totals           capture     capture   -      Lazy       chain
files            sink        sink      -      Lazy       chain
"""

EDGES = """
numbers real
real into
round deeper
into deeper
deeper ones-1
ones-1 counts exchanged
counts back-out
back-out split
split out
split halve
halve round back
out rows
rows table logged
rows files logged
table sum-spill-input
sum-spill-input sum-gather exchanged logged
sum-gather sum logged
sum sum-read exchanged logged
sum-read totals
"""


def nodes_of(page: Any) -> dict[str, Any]:
    """All that a node says, but for its place, by its name."""
    return {
        node["key"]: {field: value for field, value in node.items() if field not in ("key", "x", "y", "w", "h")}
        for node in page["nodes"]
    }


def expected_nodes() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for operator, line in enumerate(NODES.strip().splitlines()):
        name, kind, role, region, policy, *flags = line.split()
        found[name] = {
            "operator": operator,
            "name": name,
            "kind": kind,
            "role": role,
            "small": "small" in flags,
            "count": 1,
            "policy": policy,
            "region": None if region == "-" else region,
            "chain": "chain" in flags,
        }
    return found


def expected_edges() -> list[tuple[str, str, set[str]]]:
    return [(source, target, set(flags)) for source, target, *flags in map(str.split, EDGES.strip().splitlines())]


def edges_as_told(page: Any) -> list[tuple[str, str, set[str], int, list[int]]]:
    names = [node["key"] for node in page["nodes"]]
    return [
        (
            names[edge["source"]],
            names[edge["target"]],
            {flag for flag, field in (("exchanged", "spread"), ("logged", "logged"), ("back", "back")) if edge[field]},
            edge["count"],
            edge["edges"],
        )
        for edge in page["edges"]
    ]


@pytest.fixture(scope="module")
def program() -> Layout:
    return steps()


@pytest.mark.parametrize("folded", ["", "outer/inner", "outer"])
def test_each_node_and_each_edge_says_what_it_is(program: Layout, folded: str) -> None:
    """A group that is folded is one node, and all that leads to any of its operators leads there."""
    inside = [info.name for info in program.processors if "/".join(info.scope).startswith(folded) and folded]
    nodes = {name: node for name, node in expected_nodes().items() if name not in inside}
    if folded:
        label = folded.rpartition("/")[2]
        group = {"operator": None, "name": label, "kind": "scope", "role": "group", "small": False}
        nodes[folded] = group | {"count": len(inside), "policy": "Lazy", "region": "rings", "chain": True}
    edges = [
        (ends[0], ends[1], flags, 1, [number])
        for number, (source, target, flags) in enumerate(expected_edges())
        if len(set(ends := [folded if name in inside else name for name in (source, target)])) == 2
    ]
    page = ask(StandingJob(program), f"/api/graph?close={folded}").value
    assert nodes_of(page) == nodes
    assert edges_as_told(page) == edges
    boxes = {"outer": ("outer", "scope", 0), "outer/inner": ("inner", "scope", 1)}
    shown = {key: box for key, box in boxes.items() if not folded or not key.startswith(folded)}
    assert {box["key"]: (box["label"], box["kind"], box["depth"]) for box in page["boxes"] if box["key"]} == shown
    frames = [(box["label"], box["kind"]) for box in page["boxes"] if not box["key"]]
    assert ("front", "frame") in frames
    names = [node["key"] for node in page["nodes"]]
    operators = [info.name for info in program.processors]
    assert [names[node] for node in page["of"]] == [folded if name in inside else name for name in operators]


@pytest.mark.parametrize("folded", ["", "outer/inner"])
def test_nodes_stand_in_their_boxes_and_edges_begin_and_end_at_their_nodes(program: Layout, folded: str) -> None:
    page = ask(StandingJob(program), f"/api/graph?close={folded}").value
    boxes = {box["key"]: box for box in page["boxes"] if box["key"]}
    for p, info in enumerate(program.processors):
        node = page["nodes"][page["of"][p]]
        around = ["/".join(info.scope[:depth]) for depth in range(1, len(info.scope) + 1)]
        for box in (boxes[key] for key in around if key in boxes):
            assert box["x"] < node["x"]
            assert box["y"] < node["y"]
            assert node["x"] + node["w"] < box["x"] + box["w"]
            assert node["y"] + node["h"] < box["y"] + box["h"]
    for edge in page["edges"]:
        source, target = page["nodes"][edge["source"]], page["nodes"][edge["target"]]
        x, y = map(float, edge["path"][1:].replace("C", "L").split("L")[0].split())
        assert source["x"] < x < source["x"] + source["w"]
        assert y == source["y"] + source["h"]
        *_, x, y = map(float, edge["path"][1:].replace("C", " ").replace("L", " ").split())
        assert target["x"] < x < target["x"] + target["w"]
        assert y == target["y"]


def folding_of(plan: Layout, *nodes: tuple[int, ...]) -> Folding:
    """Nodes of one or of several operators; those of several are groups of their own."""
    names = [info.name for info in plan.processors]
    groups = [FoldGroup(f"+{names[each[0]]}", names[each[0]], "part", [*each]) for each in nodes]
    children: list[FoldGroup | int] = [each[0] if len(each) == 1 else group for each, group in zip(nodes, groups)]
    of = tuple(next(at for at, each in enumerate(nodes) if p in each) for p in range(len(names)))
    folded = tuple(child if isinstance(child, FoldGroup) else None for child in children)
    return Folding(FoldGroup("", "job", "scope", children), frozenset([""]), nodes, folded, of)


RING = layout(
    "read source, enter any, first any2, again any2, fork any2, leave any2",
    "read>enter, enter>in>first, first>fork, fork>again, again>back>first, fork>leave",
)
READ, ENTER, FIRST, AGAIN, FORK, LEAVE = range(6)


def test_what_leads_to_a_feedback_leads_back_and_the_feedback_forwards() -> None:
    alone = folding_of(RING, *((p,) for p in range(6)))
    assert edges_of(RING, alone) == {
        (READ, ENTER, False): [0],
        (ENTER, FIRST, False): [1],
        (FIRST, FORK, False): [2],
        (FORK, AGAIN, True): [3],
        (AGAIN, FIRST, False): [4],
        (FORK, LEAVE, False): [5],
    }


def test_two_nodes_are_joined_by_one_edge_that_leads_forwards_if_any_does() -> None:
    together = folding_of(RING, (READ,), (ENTER, FIRST), (FORK,), (AGAIN, LEAVE))
    assert edges_of(RING, together) == {
        (0, 1, False): [0],
        (1, 2, False): [2],
        (2, 3, False): [5, 3],
        (3, 1, False): [4],
    }
    back = folding_of(RING, (READ,), (ENTER, FIRST), (FORK,), (AGAIN,), (LEAVE,))
    assert (2, 3, True) in edges_of(RING, back)


FORKED = layout(
    "read source, a any, b chain, c any, d chain, out sink",
    "read>a, read=>b, read|c, a>d, b=>d, c>d, d>out",
)


@pytest.mark.parametrize(
    ("inside", "flags"),
    [
        ((1,), set()),
        ((1, 2), {"spread"}),
        ((1, 3), {"spread", "logged"}),
        ((2,), {"spread"}),
        ((1, 2, 3), {"spread", "logged"}),
    ],
)
def test_an_edge_of_several_is_exchanged_and_logged_if_any_of_them_is(inside: tuple[int, ...], flags: set[str]) -> None:
    others = [(p,) for p in range(1, 6) if p not in inside]
    page = graph_page(FORKED, folding_of(FORKED, (0,), inside, *others))
    edge = next(edge for edge in page["edges"] if (edge["source"], edge["target"]) == (0, 1))
    assert {field for field in ("spread", "logged", "back") if edge[field]} == flags
    assert edge["count"] == len(inside)
    assert edge["edges"] == [p - 1 for p in inside]
    node = page["nodes"][1]
    assert (node["count"], node["chain"]) == (len(inside), 2 in inside)


def test_an_edge_names_at_most_twenty_of_those_that_it_stands_for() -> None:
    many = ", ".join(f"n{at} any" for at in range(22))
    plan = layout(f"read source, {many}", ", ".join(f"read>n{at}" for at in range(22)))
    page = graph_page(plan, folding_of(plan, (0,), tuple(range(1, 23))))
    assert [(edge["count"], edge["edges"]) for edge in page["edges"]] == [(22, list(range(20)))]


def test_a_group_has_a_policy_and_a_region_if_all_in_it_have_the_same(program: Layout) -> None:
    names = [info.name for info in program.processors]

    def group(*of: str) -> tuple[str, str | None]:
        chosen = tuple(names.index(name) for name in of)
        others = [(p,) for p in range(len(names)) if p not in chosen]
        node = graph_page(program, folding_of(program, chosen, *others))["nodes"][0]
        return node["policy"], node["region"]

    assert group("numbers", "real") == ("Ephemeral", "front")
    assert group("real", "into") == ("mixed", None)
    assert group("sum", "sum-gather") == ("mixed", None)
    assert group("table", "files") == ("Lazy", None)
    assert group("split", "files") == ("Lazy", "rings"), "those of no region are of no other"


@pytest.mark.parametrize(
    ("workers", "wide"), [(1, 190.0), (50, 190.0), (51, 193.0), (64, 232.0), (65, 232.0), (500, 232.0)]
)
def test_a_node_is_as_wide_as_its_bars_and_what_passes_times_on_is_small(workers: int, wide: float) -> None:
    plan = layout("read source, enter any, out sink", "read>enter, enter>out", workers=workers)
    infos = [*plan.processors]
    kinds = "source", "enter", "sink"
    kind = type(infos[0])
    made = tuple(
        kind(**{name: getattr(info, name) for name in info.__struct_fields__} | {"kind": of})
        for info, of in zip(infos, kinds)
    )
    plan = Layout("job", "f", "{}", workers, made, plan.edges, plan.groups)
    alone = folding_of(plan, (0,), (1,), (2,))
    assert sizes_of(plan, alone) == [(wide, 70.0), (164.0, 30.0), (wide, 70.0)]
    assert sizes_of(plan, folding_of(plan, (0,), (1, 2))) == [(wide, 70.0), (wide, 70.0)]


def test_a_scope_of_one_operator_is_a_box_or_a_node() -> None:
    """However few they are, the first of them stands for those that are folded."""
    plan = layout("read source, inner any", "read>inner")
    root = FoldGroup("", "job", "scope", [0, FoldGroup("in", "in", "scope", [1])])
    folded = fold(plan, root, closed=["in"])
    assert tree_of(folded).children == [0, 1]
    tree = tree_of(fold(plan, root, opened=["in"]))
    assert [(each.key, each.label, each.children) for each in tree.children if not isinstance(each, int)] == [
        ("in", "in", [1])
    ]


def test_the_tree_of_boxes_is_that_of_open_groups(program: Layout) -> None:
    root = group_tree(program)
    folding = fold(program, root, closed=["outer/inner"])
    tree = tree_of(folding)
    (outer,) = [child for child in tree.children if not isinstance(child, int)]
    assert (outer.key, outer.label) == ("outer", "outer")
    names = [program.processors[folding.nodes[node][0]].name for node in outer.nodes()]
    assert sorted(names) == sorted(["round", "into", "deeper", "split", "halve", "out"])
    assert sorted(tree.nodes()) == list(range(len(folding.nodes)))
