"""Order of elements within layers: few crossings, no edge through a box.

Layers are ordered by the mean places of neighbours, downwards and upwards in turn, and then by exchanging neighbours as
long as that helps. This is done from several initial orders, always the same ones, and the result with least crossings is
taken. A box stands in several layers. On the way down, what a box stands between stays on its side: an element goes where
those above it are. An element with neighbours on both sides of a box cannot; it must come after the box's end (`Conflict`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from monitor.web.layers import Layers

_SWEEPS = 10
_STARTS = 8
_MOST_ELEMENTS = 4000
"""Elements of all starts together: a large level has fewer."""
_EXCHANGES = 6


@dataclass(frozen=True, slots=True)
class Conflict:
    """Conflict: item `item` must come below the end of `box`."""

    box: int
    item: int


def order(layers: Layers) -> list[list[int]] | Conflict:
    """Elements of each layer from left to right."""
    best: list[list[int]] | None = None
    least = 0
    for start in range(max(1, min(_STARTS, _MOST_ELEMENTS // max(1, len(layers.top))))):
        rows = _beginning(layers, start)
        for sweep in range(_SWEEPS):
            if sweep:
                rows = _upwards(layers, rows)
            result = _downwards(layers, rows)
            if isinstance(result, Conflict):
                return result
            rows = result
            _exchange(layers, rows)
            crossings = count_crossings(layers, rows)
            if best is None or crossings < least:
                best, least = [list(row) for row in rows], crossings
            if not least:
                break
        if not least:
            break
    assert best is not None
    return _arches_fit(layers, best) or best


def count_crossings(layers: Layers, rows: Sequence[Sequence[int]]) -> int:
    """Number of edge crossings between layers, and of elements in the way of arches."""
    crossings = 0
    for upper, lower in pairwise(rows):
        place = {element: at for at, element in enumerate(lower)}
        edges = []
        for at, element in enumerate(upper):
            if element in place:  # a box that goes on
                edges.append((float(at), float(place[element])))
            edges += [
                (at + here, place[other] + there) for other, there, here in layers.down[element] if other in place
            ]
        seen: list[float] = []
        for _, end in sorted(edges):
            crossings += len(seen) - bisect_right(seen, end)
            insort(seen, end)
    for arch in (*layers.above.values(), *layers.below.values()):
        row = rows[layers.top[arch[0]]]
        crossings += max(0, abs(row.index(arch[0]) - row.index(arch[1])) - 1)
    return crossings


def _beginning(layers: Layers, start: int) -> list[list[int]]:
    """Initial order: depth first from items without in-edges, back edges last.

    `start` 0 takes neighbours as given, others in one of many orders.
    """
    chance = Random(start)
    rows: list[list[int]] = [[] for _ in range(layers.count)]
    seen: set[int] = set()
    back = {point for point, _ in layers.above.values()}
    starts = [element for element in range(len(layers.top)) if not layers.up[element]]
    starts.sort(key=lambda element: (element in back, layers.top[element], element))
    if start:
        chance.shuffle(starts)
        starts.sort(key=lambda element: element in back)
    for first in starts:
        stack = [first]
        while stack:
            element = stack.pop()
            if element in seen:
                continue
            seen.add(element)
            for layer in range(layers.top[element], layers.bottom[element] + 1):
                rows[layer].append(element)
            after = [other for other, _, _ in reversed(layers.down[element])]
            if start:
                chance.shuffle(after)
            stack += after
    return rows


def _downwards(layers: Layers, rows: list[list[int]]) -> list[list[int]] | Conflict:
    done: list[list[int]] = []
    for number, row in enumerate(rows):
        before = done[-1] if done else []
        going = [element for element in before if layers.bottom[element] >= number]
        side: dict[int, int] = {}
        passed = 0
        for element in before:
            if passed < len(going) and element == going[passed]:
                passed += 1
            else:
                side[element] = passed
        place = {element: float(at) for at, element in enumerate(before)}
        own = {element: float(at) for at, element in enumerate(row)}
        staying = set(going)
        sides: dict[int, int] = {}
        keys: dict[int, float] = {}
        free: list[int] = []
        scale = len(before) / max(1, len(row))
        for element in row:
            if element in staying:
                continue
            above = [(place[other] + there - here, side[other]) for other, there, here in layers.up[element]]
            found = {at for _, at in above}
            if len(found) > 1:
                return Conflict(going[min(found)], element)
            keys[element] = sum(at for at, _ in above) / len(above) if above else own[element] * scale
            if found:
                sides[element] = found.pop()
            else:
                free.append(element)
        partner = dict(layers.above.values())
        for element in sorted(free, key=lambda element: element in partner):  # targets before the points beside them
            if element in partner and partner[element] in sides:
                sides[element] = sides[partner[element]]
            else:
                sides[element] = sum(own[box] < own[element] for box in going)
        new: list[int] = []
        for at in range(len(going) + 1):
            here = [element for element in row if sides.get(element) == at]
            new += sorted(here, key=lambda element: (keys[element], own[element]))
            new += going[at : at + 1]
        done.append(new)
    return done


def _upwards(layers: Layers, rows: list[list[int]]) -> list[list[int]]:
    """Reorder layers upwards, as a wish: the next downward pass respects boxes."""
    done: list[list[int]] = []
    for number in range(len(rows) - 1, -1, -1):
        row = rows[number]
        below = {element: float(at) for at, element in enumerate(done[-1])} if done else {}
        scale = len(below) / max(1, len(row))

        def key(element: int, at: int, below: dict[int, float] = below, scale: float = scale) -> float:
            if element in below:
                return below[element]
            ends = [below[other] + there - here for other, there, here in layers.down[element] if other in below]
            return sum(ends) / len(ends) if ends else at * scale

        done.append([element for _, _, element in sorted((key(e, at), at, e) for at, e in enumerate(row))])
    done.reverse()
    return done


def _exchange(layers: Layers, rows: list[list[int]]) -> None:
    """Exchange neighbours to remove crossings; boxes stay in place.

    And so does what is on their sides.
    """
    beside: dict[int, list[int]] = {}
    for point, item in (*layers.above.values(), *layers.below.values()):
        beside.setdefault(point, []).append(item)
        beside.setdefault(item, []).append(point)
    for _ in range(_EXCHANGES):
        better = False
        for number, row in enumerate(rows):
            above = {e: at for at, e in enumerate(rows[number - 1])} if number else {}
            below = {e: at for at, e in enumerate(rows[number + 1])} if number + 1 < len(rows) else {}
            ups = {e: sorted(above[o] + there for o, there, _ in layers.up[e] if o in above) for e in row}
            downs = {e: sorted(below[o] + there for o, there, _ in layers.down[e] if o in below) for e in row}
            for at in range(len(row) - 1):
                left, right = row[at], row[at + 1]
                if layers.top[left] != layers.bottom[left] or layers.top[right] != layers.bottom[right]:
                    continue
                gain = _crossed(ups[left], ups[right]) + _crossed(downs[left], downs[right])
                gain -= _crossed(ups[right], ups[left]) + _crossed(downs[right], downs[left])
                if beside:
                    gain += _nearer(row, beside, at)
                if gain > 0:
                    row[at], row[at + 1] = right, left
                    better = True
        if not better:
            return


def _nearer(row: list[int], beside: dict[int, list[int]], at: int) -> int:
    """Length saved on the arches of two neighbours by exchanging them."""
    left, right = row[at], row[at + 1]
    gain = 0
    for element, step, other in ((left, 1, right), (right, -1, left)):
        for end in beside.get(element, ()):
            if end != other and end in row:
                gain += step if row.index(end) > at else -step
    return gain


def _crossed(left: list[float], right: list[float]) -> int:
    """Crossings of the edges of two neighbours, given the edges' ends."""
    return sum(bisect_left(right, end) for end in left)


def _arches_fit(layers: Layers, rows: list[list[int]]) -> Conflict | None:
    """Conflict of an arch with a box above or below it, or None."""
    for arches, step in ((layers.above, -1), (layers.below, 1)):
        for point, item in arches.values():
            number = layers.top[point]
            row = rows[number]
            one, other = sorted((row.index(point), row.index(item)))
            for element in row[one + 1 : other]:
                if layers.top[element] <= number + step <= layers.bottom[element]:
                    return Conflict(element, item)
    return None
