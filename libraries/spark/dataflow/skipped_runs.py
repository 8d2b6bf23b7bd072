"""State of *compute*: the last run skipped by a region's period."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from libraries.spark.files.manifest import Manifested
from timely.state import Run, StateSize
from timely.state.interface import Rows
from timely.time import INF, Frontier, Time


class SkippedRuns:
    """For each time the last skipped run not made up for yet, to run in the end.

    A time's run of the state holds the run that was left out, or nothing where one was done; the latest time counts.
    """

    def __init__(self) -> None:
        self._times: dict[Time, list[Manifested]] = {}

    def note(self, time: Time, run: Manifested | None) -> None:
        """Record the run skipped at `time`; None: one was executed."""
        self._times[time] = [] if run is None else [run]

    def last(self) -> Manifested | None:
        """Skipped run still to be made up for."""
        return next(iter(self._times[max(self._times)]), None) if self._times else None

    def first(self) -> int:
        """First epoch covered by a skipped run, here or after any possible rollback."""
        return min((run[0] for runs in self._times.values() for run in runs), default=INF)

    def snapshot(self, upto: Frontier, after: Frontier) -> list[Run]:
        """Latest time in `upto`, unless `after` has it; it stands for those before."""
        times = sorted(time for time in self._times if time in upto)
        return [Run(time, list(self._times[time])) for time in times[-1:] if time not in after]

    def pieces(self, upto: Frontier, after: Frontier, rows: Rows) -> Iterator[Run]:
        """The snapshot as one piece: it is small enough."""
        yield from self.snapshot(upto, after)

    def restore(self, runs: Iterable[Run]) -> None:
        """Replace the state by `runs`."""
        self._times = {}
        for run in sorted(runs, key=lambda run: run.time):
            assert isinstance(run.batch, list)
            self._times[run.time] = run.batch

    def keep(self, frontier: Frontier) -> None:
        """Drop the times outside `frontier`."""
        self._times = {time: run for time, run in self._times.items() if time in frontier}

    def compact(self, frontier: Frontier) -> None:
        """Drop all but the latest of the times in `frontier`."""
        for time in sorted(time for time in self._times if time in frontier)[:-1]:
            del self._times[time]

    def size(self) -> StateSize:
        """Size with a file counted as a row."""
        rows = sum(len(run[1]) for runs in self._times.values() for run in runs)
        return StateSize(rows, 200 * rows, len(self._times))
