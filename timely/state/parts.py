"""Several states as one, for operators that need more than one kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from timely.order import Frontier
from timely.state.interface import Rows, Run, State, StateSize, is_transient


class Parts:
    """The states of one operator. A run carries the number of the state that it belongs to."""

    def __init__(self, *parts: State) -> None:
        self._parts = parts
        self.transient = all(map(is_transient, parts))

    def snapshot(self, upto: Frontier, after: Frontier) -> list[Run]:
        """The runs of every part in `upto` and not in `after`."""
        return [
            replace(run, part=number) for number, part in enumerate(self._parts) for run in part.snapshot(upto, after)
        ]

    def pieces(self, upto: Frontier, after: Frontier, rows: Rows) -> Iterator[Run]:
        """The pieces of every part."""
        for number, part in enumerate(self._parts):
            for run in part.pieces(upto, after, rows):
                yield replace(run, part=number)

    def restore(self, runs: Iterable[Run]) -> None:
        """Replace everything held by what `runs` hold."""
        of: list[list[Run]] = [[] for _ in self._parts]
        for run in runs:
            of[run.part].append(run)
        for part, own in zip(self._parts, of, strict=True):
            part.restore(own)

    def keep(self, frontier: Frontier) -> None:
        """Drop what came at times outside `frontier`."""
        for part in self._parts:
            part.keep(frontier)

    def compact(self, frontier: Frontier) -> None:
        """Every part may merge what is inside `frontier`."""
        for part in self._parts:
            part.compact(frontier)

    def size(self) -> StateSize:
        """How much all parts hold."""
        sizes = [part.size() for part in self._parts]
        return StateSize(sum(s.rows for s in sizes), sum(s.bytes for s in sizes), sum(s.runs for s in sizes))
