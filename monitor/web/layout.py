"""Picture of a dataflow: places of nodes, boxes around scopes, and edges.

Pure, and deterministic.

Level by level, innermost first: what is in a box is laid out by itself, then the box is one item of the level around it, and
spans as many layers there as its height takes. An edge that crosses a box's border does so at a *port*, an item of no size on
the first or the last layer inside. So edges run between layers, where no node is, and down through layers at points that
keep their distance from nodes like everything else.

>>> drawing = draw(Tree("", "", [0, 1]), [(0, 1, False)], [(100.0, 40.0)] * 2)
>>> [node.y for node in drawing.nodes], drawing.curves[0].segments
([16.0, 102.0], ((66.0, 56.0), (66.0, 102.0)))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from monitor.web.columns import columns
from monitor.web.layers import LayerLink, Layers, ranks, split, turned
from monitor.web.ordering import Conflict, order

GAP = 46.0
"""Distance between two layers, room for edges."""
BESIDE = 26.0
"""Least distance between two nodes of one layer."""
HEADER, FOOTER, SIDE = 38.0, 30.0, 18.0
"""Padding inside a box."""
MARGIN = 16.0
"""Margin around everything."""

_POINT = 12.0
_ENDS = 14.0
"""Most distance between the ends of two edges at one node."""
_ARCH = 0.55 * GAP

Segment = tuple[float, ...]
"""Line to (x, y), or cubic Bezier curve: two control points and its end."""


@dataclass(slots=True)
class Tree:
    """Box, with nodes, by index, and other boxes inside; the outermost is everything."""

    key: str
    label: str
    children: list[Tree | int] = field(default_factory=list)

    def nodes(self) -> list[int]:
        """All nodes inside."""
        return [i for child in self.children for i in ([child] if isinstance(child, int) else child.nodes())]


@dataclass(frozen=True, slots=True)
class Rect:
    """Rectangle: top left corner, width, height, in pixels."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Box:
    """Open group; `depth` is the number of boxes around it."""

    key: str
    label: str
    depth: int
    rect: Rect


@dataclass(frozen=True, slots=True)
class Curve:
    """Edge between two nodes; its first segment is its starting point."""

    source: int
    target: int
    back: bool
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """Positions of everything.

    Nodes and curves are in the order in which they were given.
    """

    width: float
    height: float
    nodes: tuple[Rect, ...]
    boxes: tuple[Box, ...]
    curves: tuple[Curve, ...]


def draw(
    tree: Tree, edges: Sequence[tuple[int, int, bool]], sizes: Sequence[tuple[float, float]], across: bool = False
) -> Drawing:
    """Lay out all nodes, boxes and edges.

    Args:
        tree: which nodes there are, in which boxes.
        edges: (source, target, whether it leads back). No two with the same source and target; none from a node to itself.
        sizes: width and height of each node.
        across: from left to right, in place of top down.
    """
    if across:
        sizes = [(height, width) for width, height in sizes]
    height = max((height for _, height in sizes), default=40.0)
    picture = _Picture(tuple(edges), tuple(sizes), height, _ACROSS if across else _DOWN)
    level = _Level(picture, tree, 0, (), ())
    rects: dict[int, Rect] = {}
    boxes: list[Box] = []
    pieces: dict[int, list[tuple[int, list[Segment]]]] = {edge: [] for edge in range(len(edges))}
    level.emit(MARGIN, MARGIN, rects, boxes, pieces)
    curves = []
    for number, (source, target, back) in enumerate(edges):
        segments: list[Segment] = []
        for _, piece in sorted(pieces[number], key=lambda entry: entry[0]):
            segments += piece[1:] if segments else piece
        curves.append(Curve(source, target, back, tuple(segments)))
    drawing = Drawing(
        level.width + 2 * MARGIN,
        level.height + 2 * MARGIN,
        tuple(rects[node] for node in range(len(sizes))),
        tuple(boxes),
        tuple(curves),
    )
    return turned_over(drawing) if across else drawing


def turned_over(drawing: Drawing) -> Drawing:
    """Mirror a drawing at its diagonal: from top down to left to right."""

    def over(rect: Rect) -> Rect:
        return Rect(rect.y, rect.x, rect.height, rect.width)

    def swapped(segment: Segment) -> Segment:
        return tuple(segment[i ^ 1] for i in range(len(segment)))

    return Drawing(
        drawing.height,
        drawing.width,
        tuple(over(rect) for rect in drawing.nodes),
        tuple(replace(box, rect=over(box.rect)) for box in drawing.boxes),
        tuple(replace(curve, segments=tuple(map(swapped, curve.segments))) for curve in drawing.curves),
    )


@dataclass(frozen=True, slots=True)
class _Padding:
    """Room in a box: before and behind its layers, and at the two sides of each."""

    before: float
    behind: float
    near: float
    far: float


_DOWN = _Padding(HEADER, FOOTER, SIDE, SIDE)
_ACROSS = _Padding(FOOTER, FOOTER, HEADER, SIDE)


@dataclass(frozen=True, slots=True)
class _Picture:
    edges: tuple[tuple[int, int, bool], ...]
    sizes: tuple[tuple[float, float], ...]
    layer: float
    """Height of a layer."""
    padding: _Padding

    def label(self, text: str, across: bool) -> float:
        """Least extent of a box for its label, in one of both directions."""
        return 8.0 * len(text) + 70 if across == (self.padding is _ACROSS) else 0.0


class _Level:
    """Inside of one box, with its own origin.

    `into` and `out_of` are the edges that cross its border.
    """

    def __init__(self, picture: _Picture, tree: Tree, depth: int, into: Sequence[int], out_of: Sequence[int]) -> None:
        self._picture, self._tree, self._depth = picture, tree, depth
        items = len(tree.children)
        home = {
            node: at
            for at, child in enumerate(tree.children)
            for node in ([child] if isinstance(child, int) else child.nodes())
        }
        ends: dict[int, tuple[int, int]] = {}
        for number, (source, target, _) in enumerate(picture.edges):
            if source in home and target in home and home[source] != home[target]:
                ends[number] = home[source], home[target]
        ports = count(items)
        for number in into:
            ends[number] = next(ports), home[picture.edges[number][1]]
        first = frozenset(range(items, items + len(into)))
        for number in out_of:
            ends[number] = home[picture.edges[number][0]], next(ports)
        last = frozenset(range(items + len(into), items + len(into) + len(out_of)))
        self._inner: dict[int, _Level] = {}
        for at, child in enumerate(tree.children):
            if isinstance(child, Tree):
                inside = [number for number, (_, end) in ends.items() if end == at]
                outside = [number for number, (begin, _) in ends.items() if begin == at]
                self._inner[at] = _Level(picture, child, depth + 1, inside, outside)
        self._edges = list(ends)
        self.width = self.height = 0.0
        self._middle: list[float] = []
        self._widths: list[float] = []
        self._heights: list[float] = []
        self._measure(items, ends, first, last)
        self._ports = {number: self._middle[ends[number][0]] for number in into}
        self._ports.update({number: self._middle[ends[number][1]] for number in out_of})

    def port(self, edge: int) -> float:
        """Offset from the middle of the box for an edge crossing its border."""
        return self._ports[edge] - self.width / 2

    def _measure(
        self, items: int, ends: dict[int, tuple[int, int]], first: frozenset[int], last: frozenset[int]
    ) -> None:
        picture, pitch = self._picture, self._picture.layer + GAP
        widths: list[float] = []
        spans: list[int] = []
        for at, child in enumerate(self._tree.children):
            if isinstance(child, int):
                width, height = picture.sizes[child]
            else:
                width, height = self._inner[at].width, self._inner[at].height
            widths.append(width)
            self._heights.append(height)
            spans.append(max(1, int(-(-(height + GAP) // pitch))))
        total = items + len(first) + len(last)
        widths += [2.0] * (total - items)
        self._heights += [0.0] * (total - items)
        spans += [1] * (total - items)
        links = []
        for number, (source, target) in ends.items():
            leaves = self._inner[source].port(number) if source in self._inner else None
            arrives = self._inner[target].port(number) if target in self._inner else None
            links.append(
                LayerLink(source, target, picture.edges[number][2] and max(source, target) < items, leaves, arrives)
            )
        self._layers, self._rows = _layered(spans, widths, turned(total, links), first, last)
        points = len(self._layers.top) - total
        middles = columns(self._layers, self._rows, [*widths, *[_POINT] * points], BESIDE)
        pad = picture.padding if self._depth else _Padding(0.0, 0.0, 0.0, 0.0)
        content = max(
            (middle + width / 2 for middle, width in zip(middles, [*widths, *[_POINT] * points])), default=0.0
        )
        label = self._tree.label if self._depth else None
        least = content + pad.near + pad.far
        self.width = least if label is None else max(least, picture.label(label, across=False))
        shift = pad.near + (self.width - least) / 2
        self._middle = [middle + shift for middle in middles]
        self._widths = widths
        head = pad.before
        begin = 1 if first else 0
        self._tops = [0.0] * begin + [head + pitch * at for at in range(self._layers.count - begin - bool(last))]
        self.height = (self._tops[-1] + picture.layer if len(self._tops) > begin else head) + pad.behind
        if label is not None:
            self.height = max(self.height, picture.label(label, across=True))
        self._thick = [0.0] * begin + [picture.layer] * (len(self._tops) - begin)
        if last:
            self._tops.append(self.height)
            self._thick.append(0.0)

    def emit(
        self,
        x: float,
        y: float,
        rects: dict[int, Rect],
        boxes: list[Box],
        pieces: dict[int, list[tuple[int, list[Segment]]]],
    ) -> None:
        """Add absolute positions of the content, with the top left corner at (x, y)."""
        if self._depth:
            rect = Rect(round(x, 1), round(y, 1), round(self.width, 1), round(self.height, 1))
            boxes.append(Box(self._tree.key, self._tree.label, self._depth - 1, rect))
        for place, child in enumerate(self._tree.children):
            left = x + self._middle[place] - self._widths[place] / 2
            if isinstance(child, Tree):
                self._inner[place].emit(left, y + self._upper(place), rects, boxes, pieces)
            else:
                width, height = self._widths[place], self._heights[place]
                rects[child] = Rect(round(left, 1), round(y + self._upper(place), 1), width, height)
        ends = self._spread()
        for place, number in enumerate(self._edges):
            link, path = self._layers.links[place], self._layers.paths[place]
            segments = self._route(link, path, *ends[place])
            moved = [tuple(round(v + (y if i % 2 else x), 1) for i, v in enumerate(segment)) for segment in segments]
            # Inside the source's boxes first, the innermost first; then outwards; then inside the target's.
            items = len(self._tree.children)
            inwards = link.source >= items
            outwards = link.target >= items
            rank = self._depth if inwards else -self._depth if outwards else 0
            pieces[number].append((1000 + rank if inwards else -1000 + rank if outwards else 0, moved))

    def _upper(self, item: int) -> float:
        """Upper border of an item."""
        layer = self._layers.top[item]
        end = self._layers.bottom[item]
        room = self._tops[end] + self._thick[end] - self._tops[layer]
        return self._tops[layer] + (room - self._heights[item]) / 2

    def _lower(self, item: int) -> float:
        return self._upper(item) + self._heights[item]

    def _spread(self) -> list[tuple[float, float]]:
        """Ends of each link: side by side at nodes, at ports of boxes.

        At nodes they are in the order of their other ends.
        """
        links, paths = self._layers.links, self._layers.paths
        begins: dict[int, list[tuple[float, int]]] = {}
        arrives: dict[int, list[tuple[float, int]]] = {}
        ends = [(0.0, 0.0)] * len(links)
        for number, (link, path) in enumerate(zip(links, paths)):
            chain = [link.source, *path, link.target]
            if link.at is None:
                toward = self._middle[chain[1]] + (link.to or 0.0 if len(path) == 0 else 0.0)
                begins.setdefault(link.source, []).append((toward, number))
            if link.to is None:
                toward = self._middle[chain[-2]] + (link.at or 0.0 if len(path) == 0 else 0.0)
                arrives.setdefault(link.target, []).append((toward, number))
        at = [0.0 if link.at is None else link.at for link in links]
        to = [0.0 if link.to is None else link.to for link in links]
        for item_ends, offsets in ((begins, at), (arrives, to)):
            for item, found in item_ends.items():
                found.sort()
                step = min(_ENDS, (self._widths[item] - 24.0) / max(1, len(found) - 1))
                for place, (_, number) in enumerate(found):
                    offsets[number] = max(step, 0.0) * (place - (len(found) - 1) / 2)
        for number, link in enumerate(links):
            ends[number] = self._middle[link.source] + at[number], self._middle[link.target] + to[number]
        return ends

    def _route(self, link: LayerLink, path: list[int], begin: float, end: float) -> list[Segment]:
        layers, tops, thick = self._layers, self._tops, self._thick
        below = layers.bottom[link.source]
        segments: list[Segment] = [(begin, self._lower(link.source))]
        floor = tops[below] + thick[below]
        if floor > self._lower(link.source):
            segments.append((begin, floor))
        at, level = begin, max(floor, self._lower(link.source))
        if link.back:
            apex = level + _ARCH
            x = self._middle[path[0]]
            foot = tops[layers.top[path[0]]] + thick[layers.top[path[0]]]
            segments.append((at, apex, x, apex, x, level))
            if foot < level:
                segments.append((x, foot))
            for number, point in enumerate(path):
                layer = layers.top[point]
                x = self._middle[point]
                if number:
                    segments.append(_bend(at, level, x, tops[layer] + thick[layer]))
                segments.append((x, tops[layer]))
                at, level = x, tops[layer]
            upper = tops[layers.top[link.target]]
            segments.append((at, upper - _ARCH, end, upper - _ARCH, end, upper))
        else:
            for point in path:
                layer = layers.top[point]
                x = self._middle[point]
                segments += [_bend(at, level, x, tops[layer]), (x, tops[layer] + thick[layer])]
                at, level = x, tops[layer] + thick[layer]
            segments.append(_bend(at, level, end, tops[layers.top[link.target]]))
        upper = self._upper(link.target)
        if segments[-1][-1] != upper:
            segments.append((end, upper))
        return segments


def _bend(x: float, y: float, to_x: float, to_y: float) -> Segment:
    """Curve between points in two layers, vertical at both ends."""
    if x == to_x:
        return (to_x, to_y)
    middle = (y + to_y) / 2
    return (x, middle, to_x, middle, to_x, to_y)


def _layered(
    spans: list[int], widths: list[float], links: list[LayerLink], first: frozenset[int], last: frozenset[int]
) -> tuple[Layers, list[list[int]]]:
    """Layers and orders, with items moved below boxes that they conflict with.

    They cannot stand beside a box, because they have neighbours on both sides.
    """
    behind: set[tuple[int, int]] = set()
    while True:
        rank = ranks(spans, links, first, last, behind)
        # What leads back but ends below its beginning all the same goes the way of others.
        ways = [
            replace(link, back=False)
            if link.back and rank[link.source] + spans[link.source] <= rank[link.target]
            else link
            for link in links
        ]
        layers = split(spans, widths, ways, rank)
        found = order(layers)
        if not isinstance(found, Conflict):
            return layers, found
        behind.add((found.box, found.item))
