"""Interface of operator state: immutable runs, split by time and shard.

A run holds entries of one time. That makes rollback recovery cheap (Falkirk Wheel, sections 2.3 and 4.1): a selective
checkpoint at frontier f is the runs with times in f that storage does not have yet, and rolling a living operator back to
f drops the runs outside f. What operators use to be fast (dictionaries, dense arrays, indexes) is a cache of the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NoReturn, Protocol, runtime_checkable

from timely.data.batch import Batch
from timely.time import Frontier, Time


@dataclass(frozen=True, slots=True)
class Run:
    """Entries added to a state at one time.

    `batch` has the state's own layout; keyed states carry the shard. `part` is the name, or position, of one of an
    operator's states (`Parts`). `slot` is the time under which entries are kept, if that differs from `time`, that of
    the event that wrote them. `gone`: an event at `time` took out the earlier entries of the slot.
    """

    time: Time
    batch: Batch
    part: int | str = 0
    slot: Time | None = None
    gone: bool = False


class NoMapping:
    """Base class refusing dictionary and list operations, with a hint for the user."""

    _use = ""

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} is no dictionary: {self._use}")

    __getitem__ = __setitem__ = __delitem__ = __contains__ = __iter__ = __len__ = _refuse
    get = setdefault = update = keys = values = items = clear = append = extend = _refuse

    def __bool__(self) -> bool:
        return True


class Runs:
    """Sequence of runs to restore from, each created on demand.

    Those of a scope come in order of time.

    Args:
        rows: of all of them; more, if some of them turn out not to be needed.
        read: gives them. It may let go of what it has given: then they can be read once.
    """

    def __init__(self, rows: int, read: Callable[[], Iterator[Run]]) -> None:
        self.rows = rows
        self._read = read

    @classmethod
    def of(cls, runs: Iterable[Run]) -> Runs:
        """Runs of any collection, sorted by time; a `Runs` is returned unchanged."""
        if isinstance(runs, Runs):
            return runs
        held = sorted(runs, key=lambda run: run.time)
        return cls(sum(len(run.batch) for run in held), held.__iter__)

    def __iter__(self) -> Iterator[Run]:
        return self._read()

    def __bool__(self) -> bool:
        return self.rows > 0


@dataclass(frozen=True, slots=True)
class StateSize:
    """Size of a state: entries, estimated bytes, and runs."""

    rows: int
    bytes: int
    runs: int


class Event(Protocol):
    """Event being handled, as seen by the states it writes.

    See `timely.operators.base.Context`.
    """

    @property
    def time(self) -> Time:
        """Time of the event."""

    def keeps_for(self, time: Time) -> Time:
        """Note a write or removal of state kept under `time` instead of the event's time.

        Returns `time` in plain numbers.

        Raises:
            OperatorError: where nobody would remember that after a failure, or `time` is none of this scope.
        """


Rows = Callable[[], int]
"""Function for the wanted size, in rows, of a snapshot's next piece.

Asked anew for each, so that it can follow the duration of the last ones.
"""

WHOLE = 1 << 62
"""More rows than any state has, so that all fit into one piece."""


class Scan(Protocol):
    """Incremental scan of a state, spread over snapshots at rising frontiers.

    Its runs, together with all writes since it began, make up the whole state once it is over: a large state is saved
    anew a little at a time. Void after the state is restored or rolled back (`keep`).
    """

    @property
    def over(self) -> bool:
        """True if nothing is left to scan."""

    def pieces(self, upto: Frontier, rows: Rows) -> Iterator[Run]:
        """Next part, as of `upto`, in runs of about `rows()` rows.

        The scan continues after the last run taken.
        """


@runtime_checkable
class Scannable(Protocol):
    """`State` with support for incremental scans."""

    def scan(self, upto: Frontier) -> Scan | None:
        """Start a scan with a snapshot at `upto`; None if the content cannot be scanned."""


class State(Protocol):
    """State of one operator on one worker.

    It may also `absorb(runs)`: load runs that follow those loaded so far, as if `restore` had been given all of them.
    """

    def snapshot(self, upto: Frontier, after: Frontier) -> list[Run]:
        """Changes at times in `upto` and not in `after`: an incremental checkpoint.

        Copies nothing immutable.

        Times may be merged: a run then stands for all up to its own, and `restore` of all runs so far gives the state at
        `upto`. Parts of the state that nothing outside `upto` can ask for may be left out.
        """

    def pieces(self, upto: Frontier, after: Frontier, rows: Rows) -> Iterator[Run]:
        """The snapshot in runs of about `rows()` rows, each made on demand.

        So saving much causes no long pause.

        Until the iterator is used up, the state may be written outside `upto`, and compacted within it; nothing else.
        """

    def restore(self, runs: Iterable[Run]) -> None:
        """Load `runs` in place of all content.

        `Runs` are read once, and no run is kept once it has been taken in.
        """

    def keep(self, frontier: Frontier) -> None:
        """Drop writes at times outside `frontier`: the rollback of a living operator."""

    def compact(self, frontier: Frontier) -> None:
        """Merge runs inside `frontier`: the caller will never `keep` less.

        Amortised, so call it often.
        """

    def size(self) -> StateSize:
        """Size of the state."""


def without_past(state: State) -> bool:
    """Let `state` stop keeping history, in a run without rollback.

    True if, at the root, nothing is left to compact.
    """
    tell = getattr(state, "without_past", None)
    return is_transient(state) if tell is None else bool(tell())


def absorbs(state: State) -> bool:
    """True if `state` can absorb runs after others.

    A class with a `restore` of its own needs an `absorb` of its own.
    """
    if (parts := getattr(state, "parts", None)) is not None:
        return all(map(absorbs, parts))
    for each in type(state).__mro__:
        if "absorb" in vars(each):
            return True
        if "restore" in vars(each):
            return False
    return False


def written_in(state: State | None, event: Event) -> None:
    """Set the event of all writes to `state` from now on, if it needs to know.

    A write belongs to the event's time.
    """
    tell = getattr(state, "written_in", None)
    if tell is not None:
        tell(event)


def is_transient(state: State) -> bool:
    """True if `state` holds nothing of completed times.

    Entries kept for later times are the exception: nothing else of it needs to be saved.
    """
    return bool(getattr(state, "transient", False))
