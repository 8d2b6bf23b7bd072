"""Reachability and connected components in a graph of numbered nodes.

Every process of a job with a store asks these two, of graphs with a few edges; to load a library for graphs takes each 0.1 s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol


class EdgeEnds(Protocol):
    """Edge between numbered processors.

    `spread`: from every worker to every worker; otherwise within each.
    """

    @property
    def source(self) -> int: ...
    @property
    def target(self) -> int: ...
    @property
    def spread(self) -> bool: ...


def behind(edges: Iterable[tuple[int, int]], starts: Iterable[int]) -> set[int]:
    """Nodes reachable from `starts` along `edges`.

    A start is one of them only if a path leads to it from another one.

    >>> sorted(behind([(0, 1), (1, 2), (2, 0), (3, 4)], [0]))
    [1, 2]
    """
    after: defaultdict[int, list[int]] = defaultdict(list)
    for source, target in edges:
        after[source].append(target)
    found: set[int] = set()
    for start in set(starts):
        seen, waiting = {start}, [start]
        while waiting:
            for node in after.get(waiting.pop(), ()):
                if node not in seen:
                    seen.add(node)
                    waiting.append(node)
        found |= seen - {start}
    return found


def joined(count: int, edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Connected components of the nodes 0 to `count` - 1, in order of first nodes.

    The direction of `edges` does not count.

    Parts come in the order of their first nodes.

    >>> joined(4, [(2, 0)])
    [[0, 2], [1], [3]]
    """
    part = list(range(count))

    def root(node: int) -> int:
        while part[node] != node:
            part[node] = node = part[part[node]]
        return node

    for source, target in edges:
        part[root(target)] = root(source)
    parts: defaultdict[int, list[int]] = defaultdict(list)
    for node in range(count):
        parts[root(node)].append(node)
    return list(parts.values())
