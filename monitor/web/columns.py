"""Horizontal positions of elements: near neighbours, straight, without overlap.

Layer by layer, each element is moved towards the mean of its neighbours. With the order and the least distances given,
the nearest that they can come to that, in the sense of least squares, is found exactly by pooling adjacent violators.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from monitor.web.layers import Layers

_ROUNDS = 12
_FIXED = 1e7
_STRAIGHT = {0: 1.0, 1: 2.0, 2: 8.0}
"""Weight of an edge, by its ends that are points of long edges.

Long edges should be straight.
"""


def columns(layers: Layers, rows: Sequence[Sequence[int]], widths: Sequence[float], gap: float) -> list[float]:
    """Middle of every element.

    Args:
        rows: the elements of each layer from left to right.
        widths: of every element.
        gap: least distance between two items; half of it beside the point of an edge.
    """
    near: list[list[tuple[int, float, float, float]]] = [[] for _ in layers.top]
    """Neighbours by element: (neighbour, offset there, offset here, weight).

    Offsets are from the middle.
    """
    for link, path in zip(layers.links, layers.paths):
        chain = [link.source, *path, link.target]
        offsets = [link.at or 0.0, *(0.0 for _ in path), link.to or 0.0]
        for at in range(len(chain) - 1):
            a, b = chain[at], chain[at + 1]
            arch = link.back and (at == 0 or at == len(chain) - 2)
            weight = 0.5 if arch else _STRAIGHT[(a >= layers.items) + (b >= layers.items)]
            near[a].append((b, offsets[at + 1], offsets[at], weight))
            near[b].append((a, offsets[at], offsets[at + 1], weight))
    least = {
        (a, b): (widths[a] + widths[b]) / 2 + (gap if max(a, b) < layers.items else gap / 2)
        for row in rows
        for a, b in pairwise(row)
    }
    middles = [0.0] * len(layers.top)
    _push(rows, least, middles)
    for step in range(2 * _ROUNDS):
        downwards = step % 2 == 0
        both = step >= _ROUNDS
        for number in range(len(rows)) if downwards else range(len(rows) - 1, -1, -1):
            row = rows[number]
            wishes, weights = [], []
            for element in row:
                there = number == (layers.top[element] if downwards else layers.bottom[element])
                spans = layers.top[element] != layers.bottom[element]
                wish = total = 0.0
                for other, its, mine, weight in near[element] if there else ():
                    earlier = (
                        layers.bottom[other] < layers.top[element]
                        if downwards
                        else layers.top[other] > layers.bottom[element]
                    )
                    if both or earlier:
                        wish += weight * (middles[other] + its - mine)
                        total += weight
                wishes.append(wish / total if total else middles[element])
                weights.append(_FIXED if spans and not there else total or 0.1)
            for element, middle in zip(row, _nearest(row, wishes, weights, least)):
                if layers.top[element] == layers.bottom[element] or number == (
                    layers.top[element] if downwards else layers.bottom[element]
                ):
                    middles[element] = middle
        _push(rows, least, middles)
    _straighten(layers, rows, least, middles)
    left = min((middle - width / 2 for middle, width in zip(middles, widths)), default=0.0)
    return [round(middle - left, 1) for middle in middles]


def _straighten(
    layers: Layers, rows: Sequence[Sequence[int]], least: dict[tuple[int, int], float], middles: list[float]
) -> None:
    """Straighten long edges as far as nothing is in the way."""
    beside: dict[int, tuple[int | None, int | None]] = {}
    for row in rows:
        for at, element in enumerate(row):
            beside[element] = (row[at - 1] if at else None, row[at + 1] if at + 1 < len(row) else None)

    def room(point: int) -> tuple[float, float]:
        left, right = beside[point]
        low = middles[left] + least[left, point] if left is not None else float("-inf")
        high = middles[right] - least[point, right] if right is not None else float("inf")
        return low, high

    for link, path in sorted(zip(layers.links, layers.paths), key=lambda each: -len(each[1])):
        at = 0
        while at < len(path):
            low, high = room(path[at])
            end = at + 1
            while end < len(path):
                lower, higher = room(path[end])
                if max(low, lower) > min(high, higher):
                    break
                low, high = max(low, lower), min(high, higher)
                end += 1
            mean = sum(middles[point] for point in path[at:end]) / (end - at)
            wish = mean
            if not link.back:  # straight on from an end, where one is near
                ends = [middles[link.source] + (link.at or 0.0)] if at == 0 else []
                ends += [middles[link.target] + (link.to or 0.0)] if end == len(path) else []
                wish = min(ends, key=lambda x: abs(x - mean), default=mean)
            for point in path[at:end]:
                middles[point] = min(max(wish, low), high)
            at = end


def _nearest(
    row: Sequence[int], wishes: list[float], weights: list[float], least: dict[tuple[int, int], float]
) -> list[float]:
    """Places nearest to `wishes` at the least distances, by isotonic regression.

    Least distances are subtracted first.
    """
    offsets = [0.0]
    for a, b in pairwise(row):
        offsets.append(offsets[-1] + least[a, b])
    blocks: list[tuple[float, float, int]] = []
    for wish, weight, offset in zip(wishes, weights, offsets):
        value, total, size = wish - offset, weight, 1
        while blocks and blocks[-1][0] > value:
            before, heavy, count = blocks.pop()
            value = (value * total + before * heavy) / (total + heavy)
            total += heavy
            size += count
        blocks.append((value, total, size))
    values = [value for value, _, size in blocks for _ in range(size)]
    return [value + offset for value, offset in zip(values, offsets)]


def _push(rows: Sequence[Sequence[int]], least: dict[tuple[int, int], float], middles: list[float]) -> None:
    """Move elements right until all layers have the least distances.

    Boxes stand in several layers.
    """
    right: dict[int, list[tuple[int, float]]] = {}
    waits: dict[int, int] = {}
    for (a, b), distance in least.items():
        right.setdefault(a, []).append((b, distance))
        waits[b] = waits.get(b, 0) + 1
    ready = [element for row in rows for element in row[:1] if element not in waits]
    seen = set(ready)
    ready = list(dict.fromkeys(ready))
    for element in ready:
        for other, distance in right.get(element, ()):
            middles[other] = max(middles[other], middles[element] + distance)
            waits[other] -= 1
            if not waits[other] and other not in seen:
                seen.add(other)
                ready.append(other)
