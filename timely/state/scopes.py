"""State per outer time, versioned by the innermost coordinate, with undo.

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
    """State of one scope: newest version, and undo log.

    `settled` is the last compacted time: its writes are not in `log`.
    """

    def __init__(self) -> None:
        self.log: deque[tuple[Time, Change]] = deque()
        self.settled: Time | None = None
        self.pastless = False
        """True if no rollback is possible: writes are compacted at once."""

    def note(self, time: Time, change: Change) -> None:
        """Log the change written at `time`, unless no rollback is possible."""
        if self.pastless:
            self.settled = time
        else:
            self.log.append((time, change))

    def undo(self, change: Change) -> None:
        """Undo `change`, the newest one."""
        raise NotImplementedError

    def changes(self, entries: list[tuple[Time, Change]], upto: Frontier, rows: Rows) -> Iterator[Run]:
        """Last values written by these log entries, in runs of about `rows()` rows.

        The entries are the last ones in `upto`.
        """
        raise NotImplementedError

    def whole(self, upto: Frontier, time: Time, rows: Rows) -> Iterator[Run]:
        """Whole content without the log entries outside `upto`, in runs at `time`.

        The runs have about `rows()` rows.
        """
        raise NotImplementedError

    def scan(self, upto: Frontier) -> ScopeScan:
        """Start an incremental scan of the content."""
        raise NotImplementedError

    def newest(self, upto: Frontier) -> Time | None:
        """Newest written time in `upto`."""
        for time, _ in reversed(self.log):
            if time in upto:
                return time
        return self.settled

    def later(self, upto: Frontier, since: tuple[Time, Change] | None = None) -> list[tuple[Time, Change]]:
        """Log entries outside `upto`, oldest first.

        With `since` only those added, or changed, after that entry.
        """
        found = []
        for entry in reversed(self.log):
            if entry is since or entry[0] in upto or (since is not None and entry[0] < since[0]):
                break
            found.append(entry)
        return found[::-1]

    def load(self, run: Run) -> None:
        """Write the content of a run at its time."""
        raise NotImplementedError

    def measure(self) -> tuple[int, int]:
        """Size of the scope's state: (rows, bytes)."""
        raise NotImplementedError

    def last(self) -> Time | None:
        """Newest time written."""
        return self.log[-1][0] if self.log else self.settled

    def check_order(self, time: Time) -> None:
        """Refuse a write earlier than the newest one."""
        last = self.last()
        if last is not None and time < last:
            raise ValueError(
                f"state was written at {visible(last)} and now at {visible(time)}: it runs on along the last coordinate; "
                "write it when a time is complete"
            )


class ScopeScan:
    """Incremental scan of one scope (`timely.state.interface.Scan`)."""

    over = False

    def pieces(self, upto: Frontier, rows: Rows) -> Iterator[Run]:
        """Next part as of `upto`, in runs of about `rows()` rows."""
        raise NotImplementedError


S = TypeVar("S", bound=ScopeState)  # type: ignore[type-arg]


class Scopes(Generic[S]):
    """`State` made of scopes, one per outer time.

    Subclasses create, read and write the scopes.
    """

    def __init__(self) -> None:
        self._scopes: dict[Time, S] = {}
        self._pastless = False

    def without_past(self) -> bool:
        """Stop keeping history.

        See `timely.state.interface.without_past`.
        """
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
        """Changes in `upto` and not in `after`: one run per scope, at the last such time.

        Scopes over in `upto` have none. Raises ValueError if `upto` would divide compacted times.
        """
        return list(self.pieces(upto, after, lambda: WHOLE))

    def pieces(self, upto: Frontier, after: Frontier, rows: Rows) -> Iterator[Run]:
        """The snapshot, cut to about `rows()` rows.

        See `timely.state.interface.State`.
        """
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
        """Start an incremental scan; None unless the root scope is the only one."""
        return self._scopes[()].scan(upto) if self._scopes.keys() == {()} else None

    def restore(self, runs: Iterable[Run]) -> None:
        """Load `runs`, in order of time, in place of all content."""
        self._scopes = {}
        self.absorb(Runs.of(runs))

    def absorb(self, runs: Iterable[Run]) -> None:
        """Load `runs`, in order of time, after those loaded before."""
        for run in runs:
            self._scope(run.time).load(run)

    def keep(self, frontier: Frontier) -> None:
        """Undo writes at times outside `frontier`.

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
        """Forget the history within `frontier`, and scopes that are over in it."""
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
        """Size of the state."""
        rows = held = runs = 0
        for scope in self._scopes.values():
            more, size = scope.measure()
            rows += more
            held += size
            runs += len(scope.log) + (scope.settled is not None)
        return StateSize(rows, held, runs)
