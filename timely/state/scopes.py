"""State that runs on along the innermost coordinate, separate for each outer time, and can go back in time.

A state that runs on is written at non-decreasing times within a scope (operators write when a time is complete).
Each scope holds the newest version, and for every time that may still be rolled back what that time wrote and what
it replaced. Going back undoes from the newest end; compacting forgets from the oldest end. Both cost what they free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from timely.order import INF, Frontier, Time
from timely.state.interface import Run, StateSize

Change = TypeVar("Change")


class Scope(Generic[Change]):
    """One outer time's version of a state. `settled` is the last compacted time: what it wrote is not in `log`."""

    def __init__(self) -> None:
        self.log: deque[tuple[Time, Change]] = deque()
        self.settled: Time | None = None

    def undo(self, change: Change) -> None:
        """Take back `change`, the newest one."""
        raise NotImplementedError

    def changes(self, first: int, end: int) -> Run | None:
        """What the entries [first, end) of the log wrote, as one run at the last of their times; None if nothing is left."""
        raise NotImplementedError

    def whole(self, end: int) -> Run | None:
        """All that there was after the first `end` entries of the log, as one run."""
        raise NotImplementedError

    def time_of(self, end: int) -> Time:
        """The last time of what there was after the first `end` entries of the log."""
        time = self.log[end - 1][0] if end else self.settled
        assert time is not None
        return time

    def load(self, run: Run) -> None:
        """Write what a run holds, at the run's time."""
        raise NotImplementedError

    def measure(self) -> tuple[int, int]:
        """Rows and bytes."""
        raise NotImplementedError

    def last(self) -> Time | None:
        """The newest time written."""
        return self.log[-1][0] if self.log else self.settled

    def check_order(self, time: Time) -> None:
        """Refuse a write before the newest one."""
        last = self.last()
        if last is not None and time < last:
            raise ValueError(
                f"state was written at {last} and now at {time}: it runs on along the last coordinate; "
                "write it when a time is complete"
            )


S = TypeVar("S", bound=Scope)  # type: ignore[type-arg]


class Scopes(Generic[S]):
    """A `State` (timely.state.interface) made of scopes. Subclasses say how to make one, and read and write it."""

    def __init__(self) -> None:
        self._scopes: dict[Time, S] = {}

    def _new(self) -> S:
        raise NotImplementedError

    def _scope(self, time: Time) -> S:
        outer = time[:-1]
        scope = self._scopes.get(outer)
        if scope is None:
            scope = self._scopes[outer] = self._new()
        return scope

    def snapshot(self, upto: Frontier, after: Frontier) -> list[Run]:
        """What was written in `upto` and not in `after`: one run a scope, at the last of the times, whatever it took to
        get there. Scopes that are over in `upto` have none. Raises ValueError if `upto` would part what was compacted.
        """
        runs = (
            self._run(scope, upto, after)
            for outer, scope in self._scopes.items()
            if not outer or (*outer, INF) not in upto
        )
        return [run for run in runs if run is not None]

    def _run(self, scope: S, upto: Frontier, after: Frontier) -> Run | None:
        settled = scope.settled
        if settled is not None and settled not in after:
            self._check(settled, upto)
        # Later times are seldom left out, and they are the last: count from there.
        end = len(scope.log)
        while end and scope.log[end - 1][0] not in upto:
            end -= 1
        first = end
        while first and scope.log[first - 1][0] not in after:
            first -= 1
        if first == 0 and (settled is None or settled not in after):
            return scope.whole(end) if end or settled is not None else None
        return scope.changes(first, end) if first < end else None

    def restore(self, runs: Iterable[Run]) -> None:
        """Replace everything held by what `runs` hold, in order of time."""
        self._scopes = {}
        for run in sorted(runs, key=lambda run: run.time):
            self._scope(run.time).load(run)

    def keep(self, frontier: Frontier) -> None:
        """Undo what was written at times outside `frontier`.

        Raises ValueError if that includes compacted times.
        """
        for outer, scope in list(self._scopes.items()):
            if scope.settled is not None:
                self._check(scope.settled, frontier)
            log = scope.log
            while log and log[-1][0] not in frontier:
                scope.undo(log.pop()[1])
            if not log and scope.settled is None:
                del self._scopes[outer]

    @staticmethod
    def _check(settled: Time, frontier: Frontier) -> None:
        if settled not in frontier:
            raise ValueError(
                f"state was compacted up to {settled}, which {frontier} leaves out: its older versions are gone"
            )

    def compact(self, frontier: Frontier) -> None:
        """Forget how to go back within `frontier`, and whole scopes in it: nothing can come to them any more."""
        over = None
        for outer, scope in self._scopes.items():
            log = scope.log
            while log and log[0][0] in frontier:
                scope.settled = log.popleft()[0]
            if outer and (*outer, INF) in frontier:
                over = [outer] if over is None else [*over, outer]
        if over is not None:
            for outer in over:
                del self._scopes[outer]

    def size(self) -> StateSize:
        """How much is held."""
        rows = held = runs = 0
        for scope in self._scopes.values():
            more, size = scope.measure()
            rows += more
            held += size
            runs += len(scope.log) + (scope.settled is not None)
        return StateSize(rows, held, runs)
