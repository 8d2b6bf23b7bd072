"""Picture of a folded layout, as data for the page. Pure.

It is computed only when layout or folding change.
"""

from __future__ import annotations

from typing import Any

from monitor.web.fold import FoldGroup, Folding
from monitor.web.layout import Curve, Drawing, Rect, Tree, draw
from recovery.layout import Layout

SMALL = ("enter", "leave", "feedback")
"""Kinds of operators drawn small: they only pass times on."""

Between = dict[tuple[int, int, bool], list[int]]


def tree_of(folding: Folding) -> Tree:
    """Boxes of a folding, for `monitor.web.layout`."""

    def visit(group: FoldGroup) -> Tree:
        tree = Tree(group.key, group.label)
        for child in group.children:
            if isinstance(child, FoldGroup) and child.key in folding.open:
                tree.children.append(visit(child))
            else:
                first = child if isinstance(child, int) else child.members()[0]
                tree.children.append(folding.of[first])
        return tree

    return visit(folding.root)


def edges_of(layout: Layout, folding: Folding) -> Between:
    """Layout's edges between nodes, by (source, target, True if it leads back).

    None within a node.

    What leads to a feedback leads back: so a loop has one way back, and its head stands at its top.
    """
    heads = {edge.source for edge in layout.edges if edge.feedback}
    found: Between = {}
    for index, edge in enumerate(layout.edges):
        source, target = folding.of[edge.source], folding.of[edge.target]
        if source != target:
            found.setdefault((source, target, edge.target in heads), []).append(index)
    for source, target, back in list(found):
        if back and (source, target, False) in found:
            found[source, target, False] += found.pop((source, target, True))
    return found


def sizes_of(layout: Layout, folding: Folding) -> list[tuple[float, float]]:
    """Width and height of each node."""
    bars = min(layout.workers, 64) * 3.0 + 40.0
    wide = max(190.0, bars)
    sizes = []
    for members, group in zip(folding.nodes, folding.folded):
        small = group is None and layout.processors[members[0]].kind in SMALL
        sizes.append((164.0, 30.0) if small else (wide, 70.0))
    return sizes


def graph_page(layout: Layout, folding: Folding, across: bool = False) -> dict[str, Any]:
    """Placed nodes, boxes and edges as plain data; top down, or `across`."""
    between = edges_of(layout, folding)
    drawing = draw(tree_of(folding), list(between), sizes_of(layout, folding), across)
    kinds = {group.key: group.kind for group in folding.root.groups()}
    return {
        "width": drawing.width,
        "height": drawing.height,
        "nodes": [
            {
                "x": rect.x,
                "y": rect.y,
                "w": rect.width,
                "h": rect.height,
                **_node(layout, members, group),
            }
            for rect, members, group in zip(drawing.nodes, folding.nodes, folding.folded)
        ],
        "boxes": [
            {
                "key": box.key,
                "label": box.label,
                "kind": kinds[box.key],
                "depth": box.depth,
                "x": box.rect.x,
                "y": box.rect.y,
                "w": box.rect.width,
                "h": box.rect.height,
            }
            for box in drawing.boxes
        ]
        + _frames(layout, folding, drawing),
        "edges": [
            {
                "source": curve.source,
                "target": curve.target,
                "back": curve.back,
                "path": svg_path(curve),
                "count": len(indices),
                "edges": indices[:20],
                "logged": any(layout.edges[index].logged for index in indices),
                "spread": any(layout.edges[index].spread for index in indices),
            }
            for curve, indices in zip(drawing.curves, between.values())
        ],
    }


def fits_better_across(down: dict[str, Any], across: dict[str, Any], width: float, height: float) -> bool:
    """True if a window shows the second picture clearly larger."""

    def scale(page: dict[str, Any]) -> float:
        return min(1.0, width / float(page["width"]), height / float(page["height"]))

    return scale(across) > 1.1 * scale(down)


_AROUND, _ABOVE = 9.0, 24.0
"""Room between a frame and its nodes; at the top for its label."""


def _frames(layout: Layout, folding: Folding, drawing: Drawing) -> list[dict[str, Any]]:
    """Frames around regions without foreign nodes between their own."""
    members: dict[str, list[Rect]] = {}
    regions = [_region(layout, operators) for operators in folding.nodes]
    for region, rect in zip(regions, drawing.nodes):
        if region is not None:
            members.setdefault(region, []).append(rect)
    found: list[dict[str, Any]] = []
    taken: list[Rect] = []
    for name, rects in sorted(members.items()):
        frame = _around(rects)
        others = [rect for region, rect in zip(regions, drawing.nodes) if region != name]
        boxes = [box.rect for box in drawing.boxes if not _contains(box.rect, frame)]
        if len(rects) < 2 or any(_meet(frame, other) for other in [*others, *boxes, *taken]):
            continue
        taken.append(frame)
        place = {"x": frame.x, "y": frame.y, "w": frame.width, "h": frame.height}
        found.append({"key": "", "label": name, "kind": "frame", "depth": 0, **place})
    return found


def _region(layout: Layout, operators: tuple[int, ...]) -> str | None:
    """Region of all of some operators; None if there are several, or none."""
    regions = {layout.processors[index].region for index in operators}
    return regions.pop() if len(regions) == 1 else None


def _around(rects: list[Rect]) -> Rect:
    left, top = min(rect.x for rect in rects) - _AROUND, min(rect.y for rect in rects) - _ABOVE
    right, bottom = max(rect.x + rect.width for rect in rects), max(rect.y + rect.height for rect in rects)
    return Rect(left, top, round(right + _AROUND - left, 1), round(bottom + _AROUND - top, 1))


def _meet(a: Rect, b: Rect) -> bool:
    return a.x < b.x + b.width and b.x < a.x + a.width and a.y < b.y + b.height and b.y < a.y + a.height


def _contains(outer: Rect, inner: Rect) -> bool:
    right, bottom = outer.x + outer.width, outer.y + outer.height
    return (
        outer.x <= inner.x
        and outer.y <= inner.y
        and inner.x + inner.width <= right
        and inner.y + inner.height <= bottom
    )


def _node(layout: Layout, members: tuple[int, ...], group: FoldGroup | None) -> dict[str, Any]:
    infos = [layout.processors[member] for member in members]
    policies = {info.policy for info in infos}
    regions = {info.region for info in infos if info.region is not None}
    first = infos[0]
    return {
        "operator": members[0] if group is None else None,
        "key": first.name if group is None else group.key,
        "name": first.name if group is None else group.label,
        "kind": first.kind if group is None else group.kind,
        "role": first.role if group is None else "group",
        "small": group is None and first.kind in SMALL,
        "count": len(members),
        "policy": policies.pop() if len(policies) == 1 else "mixed",
        "region": regions.pop() if len(regions) == 1 else None,
        "chain": any(info.chain for info in infos),
    }


def svg_path(curve: Curve) -> str:
    """Curve as an SVG path.

    >>> svg_path(Curve(0, 1, False, ((5.0, 0.0), (5.0, 10.0), (5.0, 20.0, 9.5, 20.0, 9.5, 30.0))))
    'M5 0L5 10C5 20 9.5 20 9.5 30'
    """
    parts = []
    for number, segment in enumerate(curve.segments):
        letter = "M" if number == 0 else "L" if len(segment) == 2 else "C"
        parts.append(letter + " ".join(f"{value:g}" for value in segment))
    return "".join(parts)
