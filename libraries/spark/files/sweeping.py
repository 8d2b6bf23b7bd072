"""Garbage collection of a region's input files; the decisions, without I/O.

A file may be named by the runs that compute was sent. Those up to where its low-watermark is are never done again; every later
one, whether it was sent already or comes after a rollback, names either what the last of them named or what is newer: gather
never comes back from a merge that it knew when it sent a run that is over for good.
"""

from __future__ import annotations

from dataclasses import dataclass

from libraries.spark.files.manifest import Manifested
from timely.time import INF, Frontier


def last_epoch(frontier: Frontier) -> int:
    """Last epoch entirely in `frontier`; -1 for none.

    >>> last_epoch(Frontier.before([(3, 2), (4, 0)])), last_epoch(Frontier.empty(1)), last_epoch(Frontier.top(1)) == INF
    (2, -1, True)
    """
    return min((time[0] - 1 for time in frontier.antichain), default=INF)


def input_of(path: str) -> str:
    """Input name in the name of a file.

    >>> input_of("in/00000000000000000003-rates-0-1-0f.parquet")
    'rates'
    """
    return path.rpartition("/")[2].split("-", 2)[1]


@dataclass(frozen=True, slots=True)
class Names:
    """Files named by the run of epoch `due`, over the epochs from `first` on."""

    due: int
    first: int
    paths: frozenset[str]


def named(due: int, run: Manifested) -> Names:
    """Files named by a run."""
    return Names(due, run[0], frozenset(entry.path for entry in run[1]))


@dataclass(frozen=True, slots=True)
class Sweep:
    """Rule for files to remove, by epoch: unneeded, or unused by the last final run.

    Removed are, of the epochs up to `upto`, those before `needed`, and what the last run up to there does not name.

    Args:
        upto: up to this epoch nothing is ever rolled back.
        needed: the first epoch that a later run may be over.
        last: what the last run up to `upto` named; None if that is not known.
        inputs: those whose files these are; None: all.
    """

    upto: int
    needed: int
    last: Names | None
    inputs: frozenset[str] | None = None

    def takes(self, epoch: int, path: str) -> bool:
        """True if a file of this epoch is to be removed."""
        if epoch > self.upto or (self.inputs is not None and input_of(path) not in self.inputs):
            return False
        last = self.last
        return epoch < self.needed or (last is not None and last.first <= epoch <= last.due and path not in last.paths)


class Named:
    """Files named by repeatable runs, and by the last final run."""

    def __init__(self) -> None:
        self._names: dict[int, Names] = {}

    def note(self, due: int, run: Manifested) -> None:
        """Record the files of a run."""
        self._names[due] = named(due, run)

    def at(self, upto: int) -> Names | None:
        """Files of the last run up to `upto`; earlier ones are dropped."""
        over = sorted(due for due in self._names if due <= upto)
        for due in over[:-1]:
            del self._names[due]
        return self._names[over[-1]] if over else None
