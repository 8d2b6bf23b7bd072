"""Arrangements: a collection's trace, shared by several operators of a worker.

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
class TraceReading:
    """Description of an operator's input from an arrangement.

    `outer` and `inner` are the numbers of time coordinates at the arrangement and at the reader.
    """

    name: str
    outer: int
    inner: int


class Arrangement:
    """Trace with its store of values and the views of its readers."""

    def __init__(self, values: Values) -> None:
        self.trace = Trace()
        self.values = values
        self.views: dict[str, SharedTrace] = {}

    def unread(self, frontier: Frontier) -> Frontier | None:
        """Part of `frontier` released by all readers; None before each has released one."""
        for view in self.views.values():
            if view.done is None:
                return None
            frontier = frontier & view.done
        return frontier


class SharedTrace:
    """Reader's view of an arrangement: a trace in the reader's own value codes."""

    def __init__(self, reading: TraceReading, values: Values) -> None:
        self._reading = reading
        self._values = values
        self._of = Arrangement(values)
        self._further = (0,) * (reading.inner - reading.outer)
        self.done: Frontier | None = None
        """Times released by the reader; None before the first release."""
        self.time: Time = ()
        """Time of the reader's current event."""

    def attach(self, arrangement: Arrangement) -> None:
        """Read this arrangement from now on.

        It replaces a view of the same name, left by an operator that was rolled back.
        """
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
        """Changes of one key."""
        found = self._of.trace.changes(key if key >= LEAST else self._theirs(key))
        if self._further or any(value < LEAST for value, _, _ in found):
            return [(self._mine(value), time + self._further, diff) for value, time, diff in found]
        return found

    @property
    def odd(self) -> set[int]:
        """Codes of the arrangement's values not in plain form."""
        return self._of.values.odd

    def all_until(self, time: Time) -> bool:
        """True if every change is at `time` or before it."""
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
        """None: ordered reads are not possible, since the arrangement may be ahead."""

    # In place of what a trace of the operator's own does

    def add(self, key: I64, value: I64, time: Time, diff: I64) -> None:
        """Do nothing: the arrangement has the change already."""

    def add_one(self, key: int, value: int, time: Time, diff: int) -> None:
        """Do nothing: the arrangement has the change already."""

    def named(self) -> I64:
        """Value codes in use: none, since a view reads those of its trace."""
        return np.zeros(0, np.int64)

    def compact(self, frontier: Frontier) -> None:
        """Release times in `frontier`: the reader asks for them no more."""
        outer = self._reading.outer
        self.done = Frontier.before([time[:outer] for time in frontier.antichain], outer)
