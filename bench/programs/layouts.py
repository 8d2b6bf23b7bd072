"""Comparison of layout engines over fifty graphs: crossings, lengths, area.

`--part falkirk` draws them as the page does; `elkjs` and `dagre` run `layouts.mjs` with node, which finds the packages of
npm where NODE_PATH leads (`npm install elkjs @dagrejs/dagre`). Graphs: `--size` made-up ones with loops and nested boxes, as
tests of the layout draw them; with `_programs` behind the part, ten examples and forty dataflows; all with one size of nodes,
that of the page's. Crossings are those of the edges' drawn ways; edges with a common end do not count. Edges that go through
a node are counted, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from common import arguments, report

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from monitor.web.fold import fold, group_tree
from monitor.web.graph_page import edges_of, tree_of
from monitor.web.layout import Tree, draw
from tests.monitor.web.programs import example_layout, wide_layout
from tests.monitor.web.test_layout import Edges, made_up, points

WIDE, HIGH = 1012.0, 624.0
"""Room for the drawing in a window of 1440 by 900."""

EXAMPLES = (
    "flights",
    "mixed_policies",
    "payments",
    "pagerank",
    "tolls",
    "trades",
    "orders",
    "family",
    "loop",
    "wordcount",
)

Way = list[tuple[float, float]]


def graphs(count: int) -> list[tuple[Tree, Edges, list[tuple[float, float]]]]:
    """Made-up graphs: half without boxes, half with up to four."""
    found = []
    for seed in range(count):
        tree, edges, sizes = made_up(seed, 0 if seed % 2 else 4, 0.7)
        found.append((tree, edges, [(190.0, 70.0)] * len(sizes)))
    return found


def programs(count: int) -> list[tuple[Tree, Edges, list[tuple[float, float]]]]:
    """Dataflows of the example programs, and made-up ones with exchanges and loops."""
    layouts = [example_layout(name) for name in EXAMPLES]
    layouts += [wide_layout(10 + 2 * at, width=2 + at % 5, loop_every=11) for at in range(count - len(layouts))]
    found = []
    for layout in layouts:
        folding = fold(layout, group_tree(layout))
        edges = list(edges_of(layout, folding))
        found.append((tree_of(folding), edges, [(190.0, 70.0)] * len(folding.nodes)))
    return found


def as_plain(tree: Tree) -> dict[str, Any]:
    """A tree for JSON."""
    return {"key": tree.key, "children": [as_plain(each) if isinstance(each, Tree) else each for each in tree.children]}


def crossings(edges: Edges, ways: list[Way]) -> int:
    """Pairs of edges without a common end whose ways cross."""
    found = 0
    boxes = [(min(x for x, _ in w), max(x for x, _ in w), min(y for _, y in w), max(y for _, y in w)) for w in ways]
    for a, b in combinations(range(len(edges)), 2):
        if {*edges[a][:2]} & {*edges[b][:2]} or not _near(boxes[a], boxes[b]):
            continue
        found += sum(_cross(one, other) for one in pairwise(ways[a]) for other in pairwise(ways[b]))
    return found


def _near(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1] and a[2] <= b[3] and b[2] <= a[3]


def _cross(one: Any, other: Any) -> bool:
    (p, q), (r, s) = one, other
    if max(p[0], q[0]) < min(r[0], s[0]) or max(r[0], s[0]) < min(p[0], q[0]):
        return False
    if max(p[1], q[1]) < min(r[1], s[1]) or max(r[1], s[1]) < min(p[1], q[1]):
        return False

    def side(a: Any, b: Any, c: Any) -> float:
        return float((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))

    return side(p, q, r) * side(p, q, s) < 0 and side(r, s, p) * side(r, s, q) < 0


def through(edges: Edges, ways: list[Way], nodes: list[tuple[float, float]]) -> int:
    """Number of edges drawn through a node other than their ends."""
    found = 0
    for (source, target, _), way in zip(edges, ways):
        found += any(
            x + 1 < px < x + 189 and y + 1 < py < y + 69
            for px, py in dense(way)
            for node, (x, y) in enumerate(nodes)
            if node not in (source, target)
        )
    return found


def dense(way: Way) -> Way:
    """Points along a way, at most 8 pixels apart."""
    found = way[:1]
    for (x, y), (to_x, to_y) in pairwise(way):
        steps = max(1, int((abs(to_x - x) + abs(to_y - y)) // 8))
        found += [(x + (to_x - x) * at / steps, y + (to_y - y) * at / steps) for at in range(1, steps + 1)]
    return found


def main() -> None:
    args = arguments()
    engine, _, kind = args.part.partition("_")
    drawn = programs(args.size) if kind == "programs" else graphs(args.size)
    if engine == "falkirk":
        begin = time.process_time()
        pictures = [draw(*each) for each in drawn]
        seconds = time.process_time() - begin
        results = [
            {
                "width": each.width,
                "height": each.height,
                "nodes": [(rect.x, rect.y) for rect in each.nodes],
                "ways": [points(curve)[::4] + points(curve)[-1:] for curve in each.curves],
            }
            for each in pictures
        ]
    else:
        given = json.dumps([{"tree": as_plain(tree), "edges": edges} for tree, edges, _ in drawn])
        command = ["node", str(Path(__file__).with_name("layouts.mjs")), engine]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=True, env=dict(os.environ))
        answer = json.loads(done.stdout)
        results, seconds = answer["pictures"], answer["seconds"]
    total = {"crossings": 0, "length": 0.0, "area": 0.0, "through": 0, "scale": 0.0}
    for (_, edges, _), picture in zip(drawn, results):
        ways = [[(x, y) for x, y in way] for way in picture["ways"]]
        total["crossings"] += crossings(edges, ways)
        total["length"] += sum(abs(a - c) + abs(b - d) for way in ways for (a, b), (c, d) in pairwise(way))
        total["area"] += picture["width"] * picture["height"] / 1e6
        total["through"] += through(edges, ways, picture["nodes"])
        total["scale"] += min(1.0, WIDE / picture["width"], HIGH / picture["height"]) / len(drawn)
    report(
        total["crossings"],
        system=args.part,
        unit="crossings",
        length=round(total["length"]),
        megapixels=round(total["area"], 1),
        scale=round(total["scale"], 3),
        edges_through_nodes=total["through"],
        ms_each=round(1e3 * seconds / len(drawn), 1),
    )


if __name__ == "__main__":
    main()
