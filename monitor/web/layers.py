"""Layers of one level of the picture: directions, ranks, and points of long edges.

The method is Sugiyama's (K. Sugiyama, S. Tagawa, M. Toda, *Methods for Visual Understanding of Hierarchical System
Structures*, 1981), with two things of our own. An *item* may span several layers: a box around a scope. And an edge that
leads back leaves its source below and arrives at its target from above, like any other: it passes beside everything
between the two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class LayerLink:
    """Edge of one level, from item to item.

    `at` and `to` are its offsets where it leaves and arrives, from the item's middle.
    """

    source: int
    target: int
    back: bool = False
    at: float | None = None
    to: float | None = None


End = tuple[int, float, float]


@dataclass(slots=True)
class Layers:
    """Elements in layers: items first, then the points of long edges.

    Items are numbered as given.

    `top[e]` and `bottom[e]` are the first and the last layer of an element, `paths[k]` the points of link k from its source
    to its target. `down` and `up` are the edges of an element to the layers below and above: (neighbour, where it ends
    there, where here), from -0.5 at the left border to 0.5 at the right one. An *arch* joins two elements of one layer,
    above it (`above[k]`: point, target) or below it (`below[k]`: point, source).
    """

    items: int
    top: list[int]
    bottom: list[int]
    count: int
    links: list[LayerLink]
    paths: list[list[int]] = field(default_factory=list)
    down: list[list[End]] = field(default_factory=list)
    up: list[list[End]] = field(default_factory=list)
    above: dict[int, tuple[int, int]] = field(default_factory=dict)
    below: dict[int, tuple[int, int]] = field(default_factory=dict)


def turned(items: int, links: Sequence[LayerLink]) -> list[LayerLink]:
    """Links with some marked as leading back, so that the others make no cycle.

    Links from an item to itself are dropped.
    """
    outgoing: list[list[int]] = [[] for _ in range(items)]
    kept = [link for link in links if link.source != link.target]
    for number, link in enumerate(kept):
        if not link.back:
            outgoing[link.source].append(number)
    entered = {link.target for link in kept if not link.back}
    back: set[int] = set()
    state = [0] * items
    for start in (*(item for item in range(items) if item not in entered), *range(items)):
        if state[start]:
            continue
        state[start] = 1
        stack = [(start, iter(outgoing[start]))]
        while stack:
            item, rest = stack[-1]
            for number in rest:
                target = kept[number].target
                if state[target] == 1:
                    back.add(number)
                elif state[target] == 0:
                    state[target] = 1
                    stack.append((target, iter(outgoing[target])))
                    break
            else:
                state[item] = 2
                stack.pop()
    return [
        LayerLink(link.source, link.target, True, link.at, link.to) if number in back else link
        for number, link in enumerate(kept)
    ]


def ranks(
    spans: Sequence[int],
    links: Sequence[LayerLink],
    first: Collection[int],
    last: Collection[int],
    behind: Iterable[tuple[int, int]],
) -> list[int]:
    """First layer of each item, as high as its predecessors allow.

    Items in `first` and `last` have layers of their own at either end. (a, b) in `behind`: b comes after the end of a.
    """
    items = len(spans)
    after: list[list[int]] = [[] for _ in range(items)]
    before: list[list[int]] = [[] for _ in range(items)]
    pairs = {(link.source, link.target) for link in links if not link.back}
    for source, target in sorted({*pairs, *behind}):
        after[source].append(target)
        before[target].append(source)
    least = 1 if first else 0
    rank = [0 if item in first else least for item in range(items)]
    missing = [len(each) for each in before]
    order = [item for item in range(items) if not missing[item]]
    for item in order:
        for target in after[item]:
            rank[target] = max(rank[target], rank[item] + spans[item])
            missing[target] -= 1
            if not missing[target]:
                order.append(target)
    # What has more below it than above moves towards that: sources that are needed late stand late.
    for item in reversed(order):
        if item in first or item in last or len(after[item]) <= len(before[item]):
            continue
        lower = [rank[target] for target in after[item] if target not in last]
        if lower:
            rank[item] = max(rank[item], min(lower) - spans[item])
    end = max((rank[item] + spans[item] for item in range(items) if item not in last), default=least)
    for item in last:
        rank[item] = end
    return rank


def split(spans: Sequence[int], widths: Sequence[float], links: list[LayerLink], rank: Sequence[int]) -> Layers:
    """Elements in layers, with points on links through layers.

    `widths` are those of items.
    """
    items = len(spans)
    layers = Layers(
        items,
        list(rank),
        [at + span - 1 for at, span in zip(rank, spans)],
        max((at + span for at, span in zip(rank, spans)), default=0),
        links,
        down=[[] for _ in range(items)],
        up=[[] for _ in range(items)],
    )

    def join(upper: int, lower: int, at: float = 0.0, to: float = 0.0) -> None:
        layers.down[upper].append((lower, to, at))
        layers.up[lower].append((upper, at, to))

    def points(begin: int, end: int) -> list[int]:
        found = []
        for layer in range(begin, end + 1):
            found.append(len(layers.top))
            layers.top.append(layer)
            layers.bottom.append(layer)
            layers.down.append([])
            layers.up.append([])
        return found

    for number, link in enumerate(links):
        source, target = link.source, link.target
        if link.back:
            path = points(layers.top[target], max(layers.bottom[source], layers.top[target]))
            layers.above[number] = (path[0], target)
            layers.below[number] = (path[-1], source)
            for upper, lower in pairwise(path):
                join(upper, lower)
            path.reverse()
        else:
            path = points(layers.bottom[source] + 1, layers.top[target] - 1)
            chain = [source, *path, target]
            for place in range(len(chain) - 1):
                at = (link.at or 0.0) / widths[source] if place == 0 else 0.0
                to = (link.to or 0.0) / widths[target] if place == len(path) else 0.0
                join(chain[place], chain[place + 1], at, to)
        layers.paths.append(path)
    return layers
