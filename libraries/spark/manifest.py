"""Which epochs a region's run is over, and which files hold them: the state of *gather*.

A *due* epoch is one at whose completion the region runs. All of this is arithmetic on epochs, so that every attempt and every
incarnation decides alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from timely.order import FINITE, Frontier
from timely.state import TimedBatches

Over: TypeAlias = int | Literal["new", "all"]

Entry: TypeAlias = tuple[str, str, int, bytes]
"""A file of an epoch: (input, path, rows, serialized Arrow schema)."""

Manifested: TypeAlias = tuple[int, list[Entry], list[tuple[str, bytes]]]
"""A run, as gather sends it to compute: its first epoch, the entries of its files, the schema of each input."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """A run every `every` epochs, over what came since the last one ("new"), over everything, or over the last n epochs."""

    every: int = 1
    over: Over = "new"

    def due(self, epoch: int) -> int:
        """The first due epoch from `epoch` on.

        >>> Calendar(every=4).due(0), Calendar(every=4).due(3), Calendar(every=4).due(4)
        (3, 3, 7)
        """
        if epoch > FINITE - self.every:
            return epoch
        return epoch - epoch % self.every + self.every - 1

    def first(self, due: int) -> int:
        """The first epoch that the run at `due` is over.

        >>> Calendar(every=4).first(7), Calendar(over="all").first(7), Calendar(over=3).first(7)
        (4, 0, 5)
        """
        if self.over == "all":
            return 0
        length = self.every if self.over == "new" else self.over
        return max(0, due - length + 1)

    def needed_after(self, epoch: int) -> int:
        """The first epoch that a run after `epoch` may be over.

        >>> Calendar(every=2, over=3).needed_after(5)  # epochs 5 to 7, at 7
        5
        """
        return self.first(self.due(epoch + 1))


class Manifest(TimedBatches):
    """Time → the entries of its files. What no later run is over is forgotten once it can never come back."""

    transient = False

    def __init__(self, calendar: Calendar) -> None:
        super().__init__()
        self._calendar = calendar

    def entries(self, first: int, last: int) -> list[Entry]:
        """The entries of the epochs from `first` to `last`, in order."""
        return [
            entry
            for time in sorted(self.times())
            if first <= time[0] <= last
            for batch in self._times[time]
            for entry in _entries(batch)
        ]

    def schemas(self) -> dict[str, tuple[int, bytes]]:
        """Of each input the last epoch that there is, and its schema there."""
        return {
            entry[0]: (time[0], entry[3])
            for time in sorted(self.times())
            for batch in self._times[time]
            for entry in _entries(batch)
        }

    def compact(self, frontier: Frontier) -> None:
        """Forget files that no run outside `frontier` is over; of each input the last entry stays, for its schema."""
        inside = sorted((time for time in self.times() if time in frontier), reverse=True)
        if not inside:
            return
        first = self._calendar.needed_after(inside[0][0])
        known: set[str] = set()
        for time in inside:
            names = {entry[0] for batch in self._times[time] for entry in _entries(batch)}
            if time[0] < first and names <= known:
                self.pop(time)
            known |= names


def _entries(batch: Any) -> Iterable[Entry]:
    assert isinstance(batch, list)
    return (tuple(entry) for entry in batch)
