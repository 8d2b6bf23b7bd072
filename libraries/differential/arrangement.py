"""Arrangements: one trace of a collection, which several operators of a worker read.

The operator `Arrange` keeps the trace, and sends the changes of each time on, summed up, to its readers; each of them reads
through a `SharedTrace`, also from within a loop, where the times of the trace get further coordinates, 0. A reader that handles
a time finds all changes up to it in the trace, since that time is complete here; later ones that are there already do it no
harm. The trace merges only times for which no reader asks any more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from libraries.differential.rows import I64, LEAST, NOTHING
from libraries.differential.trace import Change, History, Trace
from libraries.differential.values import Values, are_integers
from timely.time import Frontier, Time


@dataclass(frozen=True, slots=True)
class Reading:
    """One input of an operator that reads an arrangement: its name, and the coordinates of times there and here."""

    name: str
    outer: int
    inner: int


class Arrangement:
    """A trace with the store of its values, and the views of those that read it."""

    def __init__(self, values: Values) -> None:
        self.trace = Trace()
        self.values = values
        self.views: dict[str, SharedTrace] = {}

    def unread(self, frontier: Frontier) -> Frontier | None:
        """The part of `frontier` for which no reader asks any more; None if one of them has not said."""
        for view in self.views.values():
            if view.done is None:
                return None
            frontier = frontier & view.done
        return frontier


class SharedTrace:
    """A reader's view of an arrangement. It is read as a `Trace` is, in codes of the reader's own."""

    def __init__(self, reading: Reading, values: Values) -> None:
        self._reading = reading
        self._values = values
        self._of = Arrangement(values)
        self._further = (0,) * (reading.inner - reading.outer)
        self.done: Frontier | None = None
        """The times of the trace for which the reader asks no more; None: it has not said."""
        self.time: Time = ()
        """The time of the event in which it is read."""

    def attach(self, arrangement: Arrangement) -> None:
        """Read this arrangement from now on. A view of the same name, of an operator that was rolled back, is forgotten."""
        if self._of is not arrangement:
            self._of, self.done = arrangement, None
        arrangement.views[self._reading.name] = self

    # Reading

    def history(self, keys: I64, values: I64 | None = None) -> History:
        """See `Trace.history`. `values` are of integers, as their keys are then."""
        if are_integers(keys):
            found = self._of.trace.history(keys, values)
            of = found.key
        else:
            theirs = np.array([self._theirs(key) for key in keys.tolist()], np.int64)
            order = np.argsort(theirs, kind="stable")
            found = self._of.trace.history(theirs[order])
            of = order[found.key]
        return History(
            of, self._mine_of(found.value), found.at, found.diff, [each + self._further for each in found.times]
        )

    def changes(self, key: int) -> list[Change]:
        """The changes of one key."""
        found = self._of.trace.changes(key if key >= LEAST else self._theirs(key))
        if self._further or any(value < LEAST for value, _, _ in found):
            return [(self._mine(value), time + self._further, diff) for value, time, diff in found]
        return found

    @property
    def odd(self) -> set[int]:
        """Codes of values that are not plain, there."""
        return self._of.values.odd

    def all_until(self, time: Time) -> bool:
        """True if nothing has come at a time that is neither `time` nor before it."""
        return self._of.trace.all_until(time[: self._reading.outer])

    def __len__(self) -> int:
        return len(self._of.trace)

    def _theirs(self, key: int) -> int:
        return key if key >= LEAST else self._of.values.known(self._values.value(key))

    def _mine(self, code: int) -> int:
        return code if code >= LEAST or code == NOTHING else self._values.code(self._of.values.value(code), self.time)

    def _mine_of(self, codes: I64) -> I64:
        if are_integers(codes):
            return codes
        named, at = np.unique(codes, return_inverse=True)
        return np.array([self._mine(code) for code in named.tolist()], np.int64)[at]

    def ranked(self, key: int, greatest: bool) -> None:
        """None: the arrangement may be ahead of the reader."""

    # In place of what a trace of the operator's own does

    def add(self, key: I64, value: I64, time: Time, diff: I64) -> None:
        """Nothing: the arrangement has it."""

    def add_one(self, key: int, value: int, time: Time, diff: int) -> None:
        """Nothing: the arrangement has it."""

    def named(self) -> I64:
        """No codes: what it gives is kept nowhere."""
        return np.zeros(0, np.int64)

    def compact(self, frontier: Frontier) -> None:
        """The reader asks no more for times in `frontier`."""
        outer = self._reading.outer
        self.done = Frontier.before([time[:outer] for time in frontier.antichain], outer)
