"""The only way in which operators keep state: immutable runs, split by time and shard.

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
    """The entries that a state gained at one time. `batch` has the state's own layout; keyed states carry the shard.

    `part` is the name, or the place, of the one of an operator's states to which it belongs (`Parts`). `slot` is the time that
    entries are kept under, if that is not the time of the event that wrote them, which is `time`; `gone`: an event at `time`
    took out what earlier ones had written there.
    """

    time: Time
    batch: Batch
    part: int | str = 0
    slot: Time | None = None
    gone: bool = False


class NoMapping:
    """Refuses the ways of dictionaries and lists, which know no times, with a hint at what the state has in their place."""

    _use = ""

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} is no dictionary: {self._use}")

    __getitem__ = __setitem__ = __delitem__ = __contains__ = __iter__ = __len__ = _refuse
    get = setdefault = update = keys = values = items = clear = append = extend = _refuse

    def __bool__(self) -> bool:
        return True


class Runs:
    """Runs, those of a scope in order of time, each made when it is asked for: what a state is restored from.

    Args:
        rows: of all of them; more, if some of them turn out not to be needed.
        read: gives them. It may let go of what it has given: then they can be read once.
    """

    def __init__(self, rows: int, read: Callable[[], Iterator[Run]]) -> None:
        self.rows = rows
        self._read = read

    @classmethod
    def of(cls, runs: Iterable[Run]) -> Runs:
        """Those of any collection; itself if they are that already."""
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
    """The size of a state: entries, bytes (an estimate), and runs."""

    rows: int
    bytes: int
    runs: int


class Event(Protocol):
    """The event that is handled now, as the states that it writes see it (`timely.operators.base.Context`)."""

    @property
    def time(self) -> Time:
        """Its time."""

    def keeps_for(self, time: Time) -> Time:
        """State is written, or taken out, that is kept under another time than the event's: `time`, in plain numbers.

        Raises:
            OperatorError: where nobody would remember that after a failure, or `time` is none of this scope.
        """


Rows = Callable[[], int]
"""The wanted number of rows of the next piece; asked anew for each, so that it can follow how long the last ones took."""

WHOLE = 1 << 62
"""More rows than any state has: one piece."""


class Scan(Protocol):
    """A walk over all that a state held when it began, spread over snapshots at rising frontiers.

    With all that was written since it began, its runs make up the whole state, once it is over: so a large state is saved anew
    a little at a time. Void when the state is restored, or rolled back (`keep`).
    """

    @property
    def over(self) -> bool:
        """True if nothing is left."""

    def pieces(self, upto: Frontier, rows: Rows) -> Iterator[Run]:
        """The next part, as it is in `upto`, in runs of about `rows()` rows. The walk goes on behind the last one taken."""


@runtime_checkable
class Scannable(Protocol):
    """A `State` that can be walked over."""

    def scan(self, upto: Frontier) -> Scan | None:
        """A walk that begins with a snapshot at `upto`; None if what is held now cannot be walked over."""


class State(Protocol):
    """State of one operator on one worker."""

    def snapshot(self, upto: Frontier, after: Frontier) -> list[Run]:
        """The changes at times in `upto` and not in `after`: an incremental checkpoint. Copies nothing immutable.

        Times may be merged: a run then stands for all up to its own, and `restore` of all runs so far gives the state at
        `upto`. Parts of the state that nothing outside `upto` can ask for may be left out.
        """

    def pieces(self, upto: Frontier, after: Frontier, rows: Rows) -> Iterator[Run]:
        """The same in runs of about `rows()` rows, each made when it is asked for, so that saving much takes no long pause.

        Until the iterator is used up, the state may be written outside `upto`, and compacted within it; nothing else.
        """

    def restore(self, runs: Iterable[Run]) -> None:
        """Replace everything held by what `runs` hold. `Runs` are read once, and none is kept once it has been taken in."""

    def keep(self, frontier: Frontier) -> None:
        """Drop what came at times outside `frontier`: the rollback of a living operator."""

    def compact(self, frontier: Frontier) -> None:
        """The caller will never `keep` less than `frontier`: runs inside it may be merged. Amortised, so call it often."""

    def size(self) -> StateSize:
        """The size of the state."""


def without_past(state: State) -> bool:
    """Tell `state` that nobody will ever go back, if it can profit. True if at the root nothing is left to compact."""
    tell = getattr(state, "without_past", None)
    return is_transient(state) if tell is None else bool(tell())


def written_in(state: State | None, event: Event) -> None:
    """Tell `state` in which event it is written from now on, if it asks: what an event writes belongs to the event's time."""
    tell = getattr(state, "written_in", None)
    if tell is not None:
        tell(event)


def is_transient(state: State) -> bool:
    """True if `state` holds nothing of times that are complete, unless that was kept for later ones: then nothing else of it
    needs to be saved.
    """
    return bool(getattr(state, "transient", False))
