"""State that runs on along the innermost coordinate, separate for each outer time, and can go back in time.

A state that runs on is written at non-decreasing times within a scope (operators write when a time is complete).
Each scope holds the newest version, and for every time that may still be rolled back what that time wrote and what
it replaced. Going back undoes from the newest end; compacting forgets from the oldest end. Both cost what they free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar

from timely.state.interface import WHOLE, Rows, Run, Runs, Scan, StateSize
from timely.time import INF, Frontier, Time, visible

Change = TypeVar("Change")


class ScopeState(Generic[Change]):
    """One outer time's version of a state. `settled` is the last compacted time: what it wrote is not in `log`."""

    def __init__(self) -> None:
        self.log: deque[tuple[Time, Change]] = deque()
        self.settled: Time | None = None
        self.pastless = False
        """Nobody will go back: what is written is compacted at once."""

    def note(self, time: Time, change: Change) -> None:
        """Keep the change that was written at `time`, as long as somebody may go back."""
        if self.pastless:
            self.settled = time
        else:
            self.log.append((time, change))

    def undo(self, change: Change) -> None:
        """Take back `change`, the newest one."""
        raise NotImplementedError

    def changes(self, entries: list[tuple[Time, Change]], upto: Frontier, rows: Rows) -> Iterator[Run]:
        """The last values that these entries of the log, the last ones in `upto`, have written, in runs of about
        `rows()` rows.
        """
        raise NotImplementedError

    def whole(self, upto: Frontier, time: Time, rows: Rows) -> Iterator[Run]:
        """All that is there without the entries outside `upto`, in runs of about `rows()` rows at `time`."""
        raise NotImplementedError

    def scan(self, upto: Frontier) -> ScopeScan:
        """A walk over all that is there."""
        raise NotImplementedError

    def newest(self, upto: Frontier) -> Time | None:
        """The newest time in `upto` that was written."""
        for time, _ in reversed(self.log):
            if time in upto:
                return time
        return self.settled

    def later(self, upto: Frontier, since: tuple[Time, Change] | None = None) -> list[tuple[Time, Change]]:
        """The entries of the log outside `upto` that came after `since`, or were changed since then; the oldest first."""
        found = []
        for entry in reversed(self.log):
            if entry is since or entry[0] in upto or (since is not None and entry[0] < since[0]):
                break
            found.append(entry)
        return found[::-1]

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
                f"state was written at {visible(last)} and now at {visible(time)}: it runs on along the last coordinate; "
                "write it when a time is complete"
            )


class ScopeScan:
    """A walk over a scope (`timely.state.interface.Scan`)."""

    over = False

    def pieces(self, upto: Frontier, rows: Rows) -> Iterator[Run]:
        """See `Scan`."""
        raise NotImplementedError


S = TypeVar("S", bound=ScopeState)  # type: ignore[type-arg]


class Scopes(Generic[S]):
    """A `State` (timely.state.interface) made of scopes. Subclasses say how to make one, and read and write it."""

    def __init__(self) -> None:
        self._scopes: dict[Time, S] = {}
        self._pastless = False

    def without_past(self) -> bool:
        """Nobody will ever go back: nothing is kept for that. See `timely.state.interface.without_past`."""
        self._pastless = True
        for scope in self._scopes.values():
            scope.pastless = True
        return True

    def _new(self) -> S:
        raise NotImplementedError

    def _scope(self, time: Time) -> S:
        outer = time[:-1]
        scope = self._scopes.get(outer)
        if scope is None:
            scope = self._scopes[outer] = self._new()
            scope.pastless = self._pastless
        return scope

    def snapshot(self, upto: Frontier, after: Frontier) -> list[Run]:
        """The changes in `upto` and not in `after`: one run a scope, at the last of the times, whatever it took to
        get there. Scopes that are over in `upto` have none. Raises ValueError if `upto` would part what was compacted.
        """
        return list(self.pieces(upto, after, lambda: WHOLE))

    def pieces(self, upto: Frontier, after: Frontier, rows: Rows) -> Iterator[Run]:
        """The same, cut to about `rows()` rows; see `timely.state.interface.State`."""
        for outer, scope in list(self._scopes.items()):
            if not outer or (*outer, INF) not in upto:
                yield from self._pieces(scope, upto, after, rows)

    def _pieces(self, scope: S, upto: Frontier, after: Frontier, rows: Rows) -> Iterator[Run]:
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
        if first == 0 and settled is not None and settled not in after:
            yield from scope.whole(upto, scope.log[end - 1][0] if end else settled, rows)
        elif first < end:
            yield from scope.changes(list(islice(scope.log, first, end)), upto, rows)

    def scan(self, upto: Frontier) -> Scan | None:
        """A walk over what is held, unless that is in several scopes, which come and go."""
        return self._scopes[()].scan(upto) if self._scopes.keys() == {()} else None

    def restore(self, runs: Iterable[Run]) -> None:
        """Replace everything held by what `runs` hold, in order of time."""
        self._scopes = {}
        for run in Runs.of(runs):
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
        """The size of the state."""
        rows = held = runs = 0
        for scope in self._scopes.values():
            more, size = scope.measure()
            rows += more
            held += size
            runs += len(scope.log) + (scope.settled is not None)
        return StateSize(rows, held, runs)
