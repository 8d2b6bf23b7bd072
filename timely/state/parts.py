"""Composite of several states, for operators with more than one kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from timely.errors import GraphError, OperatorError, user_site
from timely.state.interface import (
    Event,
    Rows,
    Run,
    Scan,
    Scannable,
    State,
    StateSize,
    is_transient,
    without_past,
    written_in,
)
from timely.time import Frontier


class Parts:
    """Composite of the states of one operator.

    A run carries the name of its state, or its position if it has no name.

    With names, the order may change between two runs of a job: `Parts(counts=self.counts, names=self.names)`.

    Raises:
        GraphError: one of the states is itself `Parts`.
        TypeError: one of them is no state.

    >>> counts, names = falkirk.KeyedState(), falkirk.TimedBatches()
    >>> both = falkirk.Parts(counts=counts, names=names)
    >>> counts.write((0,), {"a": 1})
    >>> runs = both.snapshot(falkirk.Frontier.before([(1,)]), falkirk.Frontier.empty(1))
    >>> both.restore(runs)
    >>> dict(counts.read((0,)))
    {'a': 1}
    """

    def __init__(self, /, *parts: State, **named: State) -> None:
        for part in (*parts, *named.values()):
            if isinstance(part, Parts):
                raise GraphError(
                    f"{user_site()}: Parts are of states that are no Parts themselves: give all states to one"
                )
            if isinstance(part, type) or not callable(getattr(part, "snapshot", None)):
                kind = part.__name__ if isinstance(part, type) else type(part).__name__
                raise TypeError(
                    f"Parts takes states, such as KeyedState() or TimedBatches(), one after the other, not {kind}"
                )
        self.named: dict[int | str, State] = dict([*enumerate(parts), *named.items()])
        """Each state by its name, or by its position."""
        self.parts = tuple(self.named.values())
        self.transient = all(map(is_transient, self.parts))

    def snapshot(self, upto: Frontier, after: Frontier) -> list[Run]:
        """Runs of every part in `upto` and not in `after`."""
        return [replace(run, part=name) for name, part in self.named.items() for run in part.snapshot(upto, after)]

    def pieces(self, upto: Frontier, after: Frontier, rows: Rows) -> Iterator[Run]:
        """Pieces of every part."""
        for name, part in self.named.items():
            for run in part.pieces(upto, after, rows):
                yield replace(run, part=name)

    def scan(self, upto: Frontier) -> Scan | None:
        """Scan of every part in turn; None if one of them cannot be scanned."""
        scans: list[tuple[int | str, Scan]] = []
        for name, part in self.named.items():
            if not is_transient(part):
                scan = part.scan(upto) if isinstance(part, Scannable) else None
                if scan is None:
                    return None
                scans.append((name, scan))
        return _PartsScan(scans)

    def restore(self, runs: Iterable[Run]) -> None:
        """Load `runs` in place of all content.

        Raises:
            OperatorError: for runs of a part that is not there.
        """
        for name, of_part in self._divided(runs).items():
            self.named[name].restore(of_part)

    def absorb(self, runs: Iterable[Run]) -> None:
        """Load `runs` after those loaded before, if all parts can: see `absorbs`.

        Raises as `restore`.
        """
        for name, of_part in self._divided(runs).items():
            self.named[name].absorb(of_part)  # type: ignore[attr-defined]  # not all states have it

    def _divided(self, runs: Iterable[Run]) -> dict[int | str, list[Run]]:
        of: dict[int | str, list[Run]] = {name: [] for name in self.named}
        for run in runs:
            if run.part not in of:
                there = ", ".join(map(str, of))
                raise OperatorError(f"what was saved is of part {run.part!r} of its state, which has the parts {there}")
            of[run.part].append(run)
        return of

    def keep(self, frontier: Frontier) -> None:
        """Drop writes at times outside `frontier`."""
        for part in self.parts:
            part.keep(frontier)

    def compact(self, frontier: Frontier) -> None:
        """Merge runs inside `frontier` in every part."""
        for part in self.parts:
            part.compact(frontier)

    def written_in(self, event: Event) -> None:
        """Set the event of all writes to every part from now on."""
        for part in self.parts:
            written_in(part, event)

    def without_past(self) -> bool:
        """Stop keeping history in every part.

        See `timely.state.interface.without_past`.
        """
        nothing_left = [without_past(part) for part in self.parts]  # each is told
        return all(nothing_left)

    def size(self) -> StateSize:
        """Size of all parts together."""
        sizes = [part.size() for part in self.parts]
        return StateSize(sum(s.rows for s in sizes), sum(s.bytes for s in sizes), sum(s.runs for s in sizes))


class _PartsScan:
    def __init__(self, scans: list[tuple[int | str, Scan]]) -> None:
        self._scans = scans

    @property
    def over(self) -> bool:
        return all(scan.over for _, scan in self._scans)

    def pieces(self, upto: Frontier, rows: Rows) -> Iterator[Run]:
        for name, scan in self._scans:
            for run in scan.pieces(upto, rows):
                yield replace(run, part=name)
