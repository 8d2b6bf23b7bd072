"""Keyed user functions, called for each record of a key and for its timers.

All calls happen when a time is complete: first its records, key by key, then the timers due at it. Keys are in the
order of their content, and so are the values of a key: a replay of a time makes the same calls in the same order.
"""

from __future__ import annotations

import datetime as dt
from bisect import insort
from collections.abc import Callable, Hashable, Iterable, Iterator
from copy import deepcopy
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any
from uuid import UUID

from timely.data.absent import ABSENT
from timely.data.batch import FAILURES, Batch
from timely.data.content import by_content, ordered_by
from timely.data.keys import canonical
from timely.errors import shown
from timely.operators.base import Context, Operator
from timely.operators.keyed import grouped, pairs_of
from timely.operators.shaping import check_result
from timely.operators.stateless import operator_error
from timely.state import KeyedState, Parts, TimedBatches
from timely.state.interface import Run
from timely.time import END, INF, Frontier, Time

Process = Callable[[Any, Any, "Timers"], Iterable[Any] | None]
"""Function of a key, a value or timer epoch, and `Timers`.

It returns or yields records.
"""

_FIXED = frozenset(
    {int, float, complex, bool, str, bytes, type(None), Decimal, Fraction, UUID}
    | {dt.date, dt.datetime, dt.time, dt.timedelta}
)
"""Types of immutable values."""


class Timers:
    """Epoch, state and timers of the key at hand, for functions of `Keyed.process`.

    It is for the call that it is given to: afterwards it stands for another key.

    >>> def quiet(key, value, timers):
    ...     # Tell of a key that has had no record for two epochs.
    ...     for epoch in timers.due:
    ...         timers.cancel(epoch)
    ...     timers.state = value
    ...     timers.set(timers.epoch + 2)
    >>> def tell(key, epoch, timers):
    ...     last, timers.state = timers.state, None
    ...     yield key, last
    >>> flow = falkirk.Dataflow()
    >>> given = falkirk.Iterable([("ann", 1), ("bob", 2), ("ann", 3)], epoch_every=1)
    >>> seen = flow.source("clicks", given).keyed().process(quiet, tell).capture("out")
    >>> falkirk.run(flow).captured("out")
    [((3,), [('bob', 2)]), ((4,), [('ann', 3)])]
    """

    __slots__ = ("_assigned", "_before", "_due", "_fires", "_firing", "_given", "_state", "epoch")

    epoch: int
    """The present epoch; in a loop the iteration."""

    def __init__(self, epoch: int, fires: bool) -> None:
        self.epoch = epoch
        self._fires = fires
        self._begin(_NEW, False)

    def _begin(self, entry: Entry, firing: bool) -> None:
        """Switch to a key with the kept `entry`.

        `firing`: its timer for the present epoch fires, and is no longer set.
        """
        self._state = self._before = entry[0]
        self._due = entry[1]
        self._given = self._assigned = False
        self._firing = firing

    @property
    def state(self) -> Any:
        """State kept for this key, None if there is none.

        It may be changed in place or assigned; None forgets it.

        It is of a type that can be saved, and is copied at each epoch in which it is looked at: keep it small.
        """
        state = self._state
        if not self._given and not self._assigned and not _is_fixed(state):
            state = self._state = deepcopy(state)
            self._given = True
        return state

    @state.setter
    def state(self, state: Any) -> None:
        self._state = state
        self._assigned = True

    @property
    def due(self) -> tuple[int, ...]:
        """Epochs of this key's timers, in order."""
        return self._due

    def set(self, epoch: int) -> None:
        """Have the second function called for this key when `epoch` is complete.

        Setting a timer twice is setting it once.

        While records are handled that may be the present epoch, behind its records; `falkirk.END` is when all input is over.

        Raises:
            ValueError: `epoch` is over, or there is no second function.
            TypeError: it is no whole number.
        """
        if type(epoch) is not int:
            epoch = _whole(epoch, "set")
        if epoch in self._due:
            return
        if not self._fires:
            raise ValueError("timers.set() needs a function to call: give one, process(function, on_timer)")
        if epoch < self.epoch or (self._firing and epoch == self.epoch):
            raise ValueError(self._too_early(epoch))
        if epoch > INF:
            raise ValueError("timers.set(): nothing comes after END, which is when all input is over")
        due = list(self._due)
        insort(due, epoch)
        self._due = tuple(due)

    def cancel(self, epoch: int) -> None:
        """Take back the timer for `epoch`; nothing happens where there is none.

        Raises:
            TypeError: `epoch` is no whole number.
        """
        if type(epoch) is not int:
            epoch = _whole(epoch, "cancel")
        if epoch in self._due:
            self._due = tuple(at for at in self._due if at != epoch)

    def _too_early(self, epoch: int) -> str:
        now = END if self.epoch == INF else self.epoch
        if now is END:
            return f"timers.set({epoch}): all input is over (the epoch is END), and nothing comes after that: do it now"
        if epoch == self.epoch:
            return f"timers.set({epoch}) while the timers of epoch {now} fire: set one for {epoch + 1} or later, or do it now"
        return (
            f"timers.set({epoch}) at epoch {now}: that is over; timers are for {now} or later, such as timers.epoch + 1"
        )

    def _has_changed(self) -> bool:
        """True if the state is another one than before the call. In doubt, yes."""
        before, after = self._before, self._state
        if self._assigned:
            return after is not before and not (type(after) is type(before) in _EQUAL_IS_SAME and after == before)
        if not self._given:
            return False
        try:  # equal is not enough: 1 and True are, and are different words
            return bool(after != before) or repr(after) != repr(before)
        except Exception:  # arrays and frames, which compare item by item
            return True


_EQUAL_IS_SAME = (int, str, bytes, bool)


def _is_fixed(value: Any) -> bool:
    kind = type(value)
    return kind in _FIXED or (kind is tuple and all(map(_is_fixed, value)))


def _whole(epoch: object, verb: str) -> int:
    if isinstance(epoch, int) and not isinstance(epoch, bool):
        return int(epoch)
    raise TypeError(
        f"timers.{verb}() takes an epoch, which is a whole number such as timers.epoch + 1, not {shown(epoch, 80)} "
        f"({type(epoch).__name__}); timers of event time are made with the watermark of split_late()"
    )


Entry = tuple[Any, tuple[int, ...], Hashable]
"""State, timer epochs and original key of an entry.

The key is kept only with timers, as it was when they were set: 5.0 is not 5.
"""

_NEW: Entry = (None, (), None)


class _Kept(KeyedState):
    """Key → state and timers, saved as any state by key.

    The index of due keys is a cache: made again from the state after `restore` and `keep`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._index: dict[Time, dict[Hashable, None]] | None = None

    def due_at(self, time: Time) -> dict[Hashable, None]:
        """Keys with a timer for `time`; may be changed in place."""
        index = self._index
        if index is None:
            index = self._index = {}
            for outer, scope in self._scopes.items():
                for key, entry in scope.values.items():
                    for due in entry[1]:
                        index.setdefault((*outer, due), {})[key] = None
        return index.setdefault(time, {})

    def over(self, time: Time) -> None:
        """Forget the timers for `time`: all have fired."""
        if self._index is not None:
            self._index.pop(time, None)

    def restore(self, runs: Iterable[Run]) -> None:
        """Replace everything held by the content of `runs`."""
        super().restore(runs)
        self._index = None

    def absorb(self, runs: Iterable[Run]) -> None:
        """Load `runs` after those loaded before."""
        super().absorb(runs)
        self._index = None

    def keep(self, frontier: Frontier) -> None:
        """Undo writes at times outside `frontier`."""
        super().keep(frontier)
        self._index = None


class KeyedProcess(Operator):
    """Calls `function` for each pair and `on_timer` for each due timer.

    The arguments are (key, value, timers) and (key, epoch, timers).
    """

    repeats_over = "time"
    moves_by_key = True
    one_batch = True

    def __init__(
        self, function: Process, on_timer: Process | None, order_by: Callable[[Any], Any] | None = None
    ) -> None:
        self._function = function
        self._on_timer = on_timer
        self._ordered = by_content if order_by is None else partial(ordered_by, order_by)
        self._now = TimedBatches()
        self._kept = _Kept()
        self.state = Parts(now=self._now, kept=self._kept)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        self._now.add(time, pairs_of(batch))
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        event = _Event(time, self._kept, self._on_timer is not None)
        function, on_timer, ordered = self._function, self._on_timer, self._ordered
        timers, out = event.timers, event.out
        batches = self._now.pop(time)
        key: Any = ABSENT
        value: Any = None
        firing = False
        try:
            groups = grouped(batches)
            for key in by_content(list(groups)):
                event.begin(key)
                for value in ordered(groups[key]):
                    found = function(key, value, timers)
                    if found is not None:
                        out += found if type(found) is list else _records(found)
                event.end(key)
            value, firing = time[-1], True
            for key in event.fired():
                assert on_timer is not None
                found = on_timer(key, value, timers)
                if found is not None:
                    out += found if type(found) is list else _records(found)
                event.end(key)
        except FAILURES as error:
            doing = None if key is ABSENT else shown((key, value))
            kind = "timer" if firing else "record"
            began = batches[0] if batches else None
            raise operator_error(f"process {ctx.name!r}", ctx.site, time, error, doing, began, kind) from error
        for due in event.write():
            ctx.notify_at(due)
        ctx.send(out)


class _Event:
    """Function calls at one time: `begin`, calls and `end` for each key, then `write`."""

    def __init__(self, time: Time, kept: _Kept, fires: bool) -> None:
        self._time = time
        self._kept = kept
        self._old = kept.read(time)
        self._new: dict[Hashable, Entry | None] = {}
        self._asked: dict[Time, None] = {}
        self.timers = Timers(time[-1], fires)
        self.out: list[Any] = []

    def _entry(self, key: Hashable) -> Entry | None:
        return self._new[key] if key in self._new else self._old.get(key)

    def begin(self, key: Hashable) -> None:
        """Start with the records of `key`."""
        self.timers._begin(self._old.get(key, _NEW), False)

    def fired(self) -> Iterator[Hashable]:
        """Keys with due timers, each given when the one before is finished."""
        due = self._kept.due_at(self._time)
        if not due:
            return
        entries = {}
        for key in due:
            entry = self._entry(key)
            assert entry is not None
            entries[canonical(entry[2])] = entry
        now = self._time[-1]
        for key in by_content(list(entries)):
            state, times, known = entries[key]
            self._new[key] = (state, times, known)
            self.timers._begin((state, tuple(at for at in times if at != now), known), True)
            yield key

    def end(self, key: Hashable) -> None:
        """Finish the calls for `key`."""
        timers = self.timers
        due = timers._due
        before = (self._entry(key) or _NEW)[1]
        if due is before and not timers._has_changed():
            return
        if due is not before:
            for at in before:
                if at not in due:
                    self._kept.due_at((*self._time[:-1], at)).pop(key, None)
            for at in due:
                if at not in before:
                    when = (*self._time[:-1], at)
                    self._kept.due_at(when)[key] = None
                    if at != self._time[-1]:
                        self._asked[when] = None
        state = timers._state
        self._new[key] = None if state is None and not due else (state, due, key if due else None)

    def write(self) -> Iterable[Time]:
        """Write the changes; return the times with new timers."""
        self._kept.over(self._time)
        if wrote := {key: entry for key, entry in self._new.items() if entry is not None}:
            self._kept.write(self._time, wrote)
        if gone := [key for key, entry in self._new.items() if entry is None]:
            self._kept.remove(self._time, gone)
        return self._asked


def _records(found: object) -> Iterable[Any]:
    """Records given by a function, checked to be a list or an iterator.

    Text and tuples are refused: they may as well be records themselves.
    """
    if isinstance(found, list | Iterator):
        return found
    check_result(found)
    raise TypeError(
        f"it returned {shown(found)} ({type(found).__name__}): return a list of records, such as [record], or yield them; None "
        "is no record"
    )
