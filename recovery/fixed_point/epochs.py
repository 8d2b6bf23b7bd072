"""Low-watermark forest on arrays, compiled, for dataflows without scopes.

Worth it from some ten thousand edges on; below, loading Numba takes longer than all that it saves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recovery.fixed_point.solve import PhysicalEdge
from recovery.metadata import Bound

_Numbers: TypeAlias = npt.NDArray[np.int64]
_Bounds: TypeAlias = npt.NDArray[np.uint64]

_ROOM = 4
"""Initial room for a chain's options."""


@cache
def _compiled() -> ModuleType:
    from recovery.fixed_point import compiled

    return compiled


class EpochForest:
    """`Forest` for times of one coordinate and edges with identity summaries."""

    def __init__(self, chains: Sequence[bool], start: Sequence[Bound], edges: Sequence[PhysicalEdge]) -> None:
        size = len(start)
        self._chains = np.array(chains, np.bool_)
        source = np.fromiter((edge.source for edge in edges), np.int64, len(edges))
        target = np.fromiter((edge.target for edge in edges), np.int64, len(edges))
        # On a port that nobody reports nothing is ever discarded.
        port = np.fromiter((-1 if edge.same or edge.lossy else edge.port for edge in edges), np.int64, len(edges))
        into, out = np.argsort(target, kind="stable"), np.argsort(source, kind="stable")
        self._graph = (
            *(_starts(target, size), source[into], port[into]),
            *(_starts(source, size), target[out], port[out]),
        )
        self._ports = max((edge.port for edge in edges), default=0) + 1
        self._value = np.array([bound[0] for bound in start], np.uint64)
        loops = _compiled()
        self._control = np.zeros(loops.CELLS, np.int64)
        self._control[loops.FREE] = -1
        self._control[loops.USED] = size
        self._control[loops.OPTIONS_USED] = _ROOM * size
        self._touched = int(loops.TOUCHED)
        self._pool = np.full((2 * size, loops.COLUMNS), -1, np.int64)
        self._pool[:size, loops.PROCESSOR] = np.arange(size)
        self._bounds = np.zeros(len(self._pool), np.uint64)
        self._bounds[:size] = self._value
        self._tree = (self._value, np.arange(size), np.arange(size))
        # begin, room, first, count; the first option is the one at the low-watermark.
        self._segments = np.zeros((size, 4), np.int64)
        self._segments[:, 0] = _ROOM * np.arange(size)
        self._segments[:, 1] = _ROOM
        self._segments[:, 3] = 1
        self._options = np.zeros(_ROOM * size, np.uint64)
        self._options[: _ROOM * size : _ROOM] = self._value
        self._discards = np.zeros((len(self._options), self._ports), np.uint64)
        self._scratch = (
            np.zeros(size, np.bool_),
            np.zeros(size, np.uint64),
            np.zeros(size, np.int64),
            np.zeros(size, np.int64),
            np.zeros(size, np.bool_),
        )

    @property
    def touched(self) -> int:
        """Ceilings made, moved, removed or lifted, as in `Forest`."""
        return int(self._control[self._touched])

    def value(self, p: int) -> Bound:
        """Low-watermark of p."""
        return (int(self._value[p]),)

    def limit(self, p: int) -> Bound:
        """Last bound reported by p."""
        return (int(self._bounds[self._tree[2][p]]),)

    def known(self, p: int, bound: Bound) -> tuple[Bound, ...] | None:
        """Discards reported by a chain with `bound`; None if `bound` was not reported."""
        options, epoch = self.options_of(p), np.uint64(bound[0])
        at = int(np.searchsorted(options, epoch))
        if at == len(options) or options[at] != epoch:
            return None
        begin, _, first, _ = self._segments[p].tolist()
        return self._discards_at(begin + first + at)

    def options_of(self, p: int) -> _Bounds:
        """Bounds reported by a chain, from its low-watermark up."""
        begin, _, first, count = self._segments[p].tolist()
        return self._options[begin + first : begin + first + count]

    def last_discards(self, p: int) -> tuple[Bound, ...]:
        """Discards of a chain's last report, or ()."""
        begin, _, first, count = self._segments[p].tolist()
        return self._discards_at(begin + first + count - 1) if self._chains[p] else ()

    def _discards_at(self, place: int) -> tuple[Bound, ...]:
        return tuple((int(each),) for each in self._discards[place])

    def update(self, reports: Iterable[tuple[int, Bound, tuple[Bound, ...]]], few: bool) -> list[tuple[int, Bound]]:
        """Raise limits; return risen low-watermarks, as in `Forest`."""
        return self._take(*self._arrays(list(reports)), few)

    def update_many(self, reports: Sequence[tuple[int, Bound, tuple[Bound, ...]]]) -> list[tuple[int, Bound]] | None:
        """Apply a large batch of new reports, in order; None, and no change, otherwise."""
        try:
            processors, bounds, lost = self._arrays(reports)
        except (IndexError, OverflowError, TypeError, ValueError):
            return None
        if processors.min() < 0 or processors.max() >= len(self._value) or len(np.unique(processors)) < len(processors):
            return None
        if not (bounds > self._bounds[self._tree[2][processors]]).all():
            return None
        begin, _, first, count = self._segments[processors].T
        if not (lost >= self._discards[begin + first + count - 1]).all():
            return None
        return self._take(processors, bounds, lost, few=False)

    def _arrays(self, reports: Sequence[tuple[int, Bound, tuple[Bound, ...]]]) -> tuple[_Numbers, _Bounds, _Bounds]:
        processors = np.array([p for p, _, _ in reports], np.int64)
        bounds = np.array([bound for _, (bound,), _ in reports], np.uint64)
        lost = np.zeros((len(reports), self._ports), np.uint64)
        for port in range(self._ports):
            column: list[Any] = [each[port][0] if len(each) > port else 0 for _, _, each in reports]
            lost[:, port] = np.array(column, np.uint64)
        return processors, bounds, lost

    def _take(self, processors: _Numbers, bounds: _Bounds, lost: _Bounds, few: bool) -> list[tuple[int, Bound]]:
        self._options, self._discards, self._pool, self._bounds, changed = _compiled().update(
            *(processors, bounds, lost, few, self._chains, self._graph, self._tree, self._scratch),
            *(self._segments, self._options, self._discards, self._pool, self._bounds, self._control),
        )
        risen = self._scratch[3][:changed]
        return [(p, (value,)) for p, value in zip(risen.tolist(), self._value[risen].tolist())]


def _starts(ends: _Numbers, size: int) -> _Numbers:
    """Index of each processor's first edge, in edges sorted by processor."""
    return np.concatenate(([0], np.cumsum(np.bincount(ends, minlength=size)))).astype(np.int64)
