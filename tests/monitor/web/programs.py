"""Layouts to draw: those of the examples, and made-up large ones."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from unittest.mock import patch

from monitor.web.fold import fold, group_tree
from monitor.web.graph_page import edges_of, sizes_of, tree_of
from monitor.web.layout import Drawing, Tree, draw
from recovery.layout import EdgeInfo, GroupInfo, Layout, ProcessorInfo, lay_out
from timely.dataflow.plan import compile_plan

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def example_layout(name: str, workers: int = 2) -> Layout:
    """The layout of an example program."""
    with patch.object(sys, "path", [str(EXAMPLES), *sys.path]):
        module = importlib.import_module(name)
    made = module.build() if hasattr(module, "build") else module.flow
    return lay_out(compile_plan(made.graph, workers))


def wide_layout(operators: int, workers: int = 2, loop_every: int = 40, width: int = 6) -> Layout:
    """`operators` in `width` chains that exchange, meet and part, with a loop of five here and there."""
    processors: list[ProcessorInfo] = []
    edges: list[EdgeInfo] = []
    ends: list[int] = []

    def add(kind: str, scope: tuple[str, ...] = (), chain: bool = False) -> int:
        number = len(processors)
        region = f"region {number * 5 // operators}"
        depth = 1 + bool(scope) - (kind == "enter")
        role = "source" if kind == "source" else "operator"
        processors.append(
            ProcessorInfo(
                f"{kind}-{number}", kind, f"app.py:{number + 1}", region, "Lazy", depth, chain, 0, role, scope=scope
            )
        )
        return number

    def join(source: int, target: int, port: int = 0, append: tuple[int, ...] = (), back: bool = False) -> None:
        depth = processors[source].depth
        kept = depth - (processors[source].kind == "leave")
        step = (0,) * (kept - 1) + (1,) if back else (0,) * kept
        edges.append(EdgeInfo(source, 0, target, port, len(edges), number_spread(target), False, depth, step, append))

    def number_spread(target: int) -> bool:
        return processors[target].kind in ("count", "join")

    for _ in range(width):
        ends.append(add("source", chain=True))
    while len(processors) < operators:
        lane = len(processors) % width
        if len(processors) % loop_every == 0 and len(processors) + 5 <= operators:
            scope = (f"loop {len(processors)}",)
            feedback, enter = add("feedback", scope), add("enter", scope)
            body, leave = add("join", scope, chain=True), add("leave", scope)
            step = add("map", scope)
            join(ends[lane], enter)
            join(enter, body, append=(0,))
            join(feedback, body, 1, back=True)
            join(body, step)
            join(step, feedback)
            join(body, leave)
            ends[lane] = leave
            continue
        stateful = len(processors) % 7 == 0
        new = add("count" if stateful else "map", chain=stateful)
        join(ends[lane], new)
        if len(processors) % 11 == 0:
            join(ends[(lane + 1) % width], new, 1)
        ends[lane] = new
    return Layout("wide", "f" * 8, "{}", workers, tuple(processors), tuple(edges), (GroupInfo(None, 1.0),))


def drawn(layout: Layout) -> tuple[Tree, list[tuple[int, int, bool]], Drawing]:
    """A layout folded as much as it must be, and drawn."""
    folding = fold(layout, group_tree(layout))
    tree, edges = tree_of(folding), edges_of(layout, folding)
    return tree, list(edges), draw(tree, list(edges), sizes_of(layout, folding))
