"""State of record operators: a value per key, with undo by time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any

from timely.data.absent import ABSENT
from timely.data.batch import nbytes
from timely.data.keys import are_canonical, canonical
from timely.data.routing import shard_of, stable_hash
from timely.state.interface import Event, NoMapping, Rows, Run
from timely.state.scopes import Scopes, ScopeScan, ScopeState
from timely.time import Frontier, Time, visible

Change = tuple[dict[Any, Any], dict[Any, Any]]
"""Changes of one time: (values written, values replaced), `ABSENT` for no value."""


_NOTHING: Mapping[Any, Any] = MappingProxyType({})


class _Keyed(ScopeState[Change]):
    def __init__(self) -> None:
        super().__init__()
        self.values: dict[Any, Any] = {}

    def undo(self, change: Change) -> None:
        values = self.values
        for key, value in change[1].items():
            if value is ABSENT:
                values.pop(key, None)
            else:
                values[key] = value

    def changes(self, entries: list[tuple[Time, Change]], upto: Frontier, rows: Rows) -> Iterator[Run]:
        time = entries[-1][0]
        wrote: dict[Any, Any] = {}
        if rows() >= sum(len(change[0]) for _, change in entries):
            for _, change in entries:
                wrote.update(change[0])
            if wrote:
                yield Run(time, _records(wrote))
            return
        done: set[Any] = set()
        for _, change in reversed(entries):
            wrote.update((key, value) for key, value in change[0].items() if key not in done)
            done.update(change[0])
            while len(wrote) >= (count := rows()):
                piece = {key: wrote.pop(key) for key in list(islice(wrote, count))}
                yield Run(time, _records(piece))
        if wrote:
            yield Run(time, _records(wrote))

    def whole(self, upto: Frontier, time: Time, rows: Rows) -> Iterator[Run]:
        keys = iter(list(self.values))
        before: dict[Any, Any] = {}  # what `upto` has for keys that were written since
        seen = self._replaced(upto, None, before)
        removed = {key: value for key, value in before.items() if key not in self.values}
        while True:
            piece = list(islice(keys, rows()))
            if not piece:
                break
            seen = self._replaced(upto, seen, before)
            values = self.values
            now = {key: before[key] if key in before else values.get(key, ABSENT) for key in piece}
            records = _records({key: value for key, value in now.items() if value is not ABSENT})
            if records:
                yield Run(time, records)
        if left := {key: value for key, value in removed.items() if value is not ABSENT}:
            yield Run(time, _records(left))

    def scan(self, upto: Frontier) -> ScopeScan:
        return _KeyedScan(self, upto)

    def _replaced(
        self, upto: Frontier, since: tuple[Time, Change] | None, before: dict[Any, Any]
    ) -> tuple[Time, Change] | None:
        """Add to `before` the values replaced outside `upto` after `since`.

        Returns the last log entry seen.
        """
        later = self.later(upto, since)
        for _, (_, replaced) in later:
            for key, value in replaced.items():
                before.setdefault(key, value)
        return later[-1] if later else since

    def load(self, run: Run) -> None:
        assert isinstance(run.batch, list)
        keys = [record[1] for record in run.batch]
        if not are_canonical(keys):  # a NaN that was read is an object of its own
            keys = list(map(canonical, keys))
        self.write(run.time, {key: record[2] for key, record in zip(keys, run.batch, strict=True) if len(record) == 3})
        self.remove(run.time, [key for key, record in zip(keys, run.batch, strict=True) if len(record) == 2])

    def write(self, time: Time, updates: dict[Any, Any]) -> None:
        values = self.values
        if self.pastless:
            if self.settled is not None and time < self.settled:
                self.check_order(time)
            self.settled = time
            values.update(updates)
            return
        get = values.get
        replaced = {key: get(key, ABSENT) for key in updates}
        if self.log or (self.settled is not None and time < self.settled):
            self.record(time, updates, replaced)
        else:  # compacted at once, as is usual: nothing to compare with
            self.log.append((time, (updates, replaced)))
        values.update(updates)

    def remove(self, time: Time, keys: Iterable[Any]) -> None:
        present = [key for key in keys if key in self.values]
        if present:
            replaced = {key: self.values.pop(key) for key in present}
            self.record(time, dict.fromkeys(present, ABSENT), replaced)

    def record(self, time: Time, wrote: dict[Any, Any], replaced: dict[Any, Any]) -> None:
        log = self.log
        if self.pastless:
            self.check_order(time)
            self.settled = time
            return
        if log and log[-1][0] == time:
            wrote_before, replaced_before = log[-1][1]
            log[-1] = (time, ({**wrote_before, **wrote}, {**replaced, **replaced_before}))
            return
        last = log[-1][0] if log else self.settled
        if last is not None and time < last:
            self.check_order(time)
        log.append((time, (wrote, replaced)))

    def measure(self) -> tuple[int, int]:
        sample = [list(item) for item in _first(self.values, 4)]
        each = nbytes(sample) // len(sample) if sample else 0
        rows = len(self.values) + sum(len(change[0]) for _, change in self.log)
        return rows, rows * each


class _KeyedScan(ScopeScan):
    def __init__(self, scope: _Keyed, upto: Frontier) -> None:
        self._scope = scope
        removed = [key for _, change in scope.later(upto) for key in change[1] if key not in scope.values]
        self._keys = [*scope.values, *dict.fromkeys(removed)]
        self._next = 0

    @property
    def over(self) -> bool:  # type: ignore[override]
        return self._next >= len(self._keys)

    def pieces(self, upto: Frontier, rows: Rows) -> Iterator[Run]:
        scope = self._scope
        before: dict[Any, Any] = {}
        seen: tuple[Time, Change] | None = None
        time = scope.newest(upto)
        while time is not None and not self.over:
            keys = self._keys[self._next : self._next + rows()]
            self._next += len(keys)
            seen = scope._replaced(upto, seen, before)
            get = scope.values.get
            now = {key: before[key] if key in before else get(key, ABSENT) for key in keys}
            # What is not there any more was removed since the walk began: that is written down where it happened.
            if records := _records({key: value for key, value in now.items() if value is not ABSENT}):
                yield Run(time, records)


def _first(values: dict[Any, Any], count: int) -> list[tuple[Any, Any]]:
    return [item for item, _ in zip(values.items(), range(count), strict=False)]


def _records(updates: dict[Any, Any]) -> list[Any]:
    return [
        (shard_of(stable_hash(key)), key) if value is ABSENT else (shard_of(stable_hash(key)), key, value)
        for key, value in updates.items()
    ]


class KeyedState(Scopes[_Keyed], NoMapping):
    """Key-value state; the last write wins.

    Keys are hashable, with NaN as in `timely.data.keys`; values must not be changed once written.

    Runs hold (shard, key, value) records, and (shard, key) where a key was removed.

    >>> state = falkirk.KeyedState()
    >>> state.write((0,), {"a": 1})
    >>> state.write((1,), {"a": 2, "b": 5})
    >>> dict(state.read((1,)))
    {'a': 2, 'b': 5}
    >>> state.keep(falkirk.Frontier.before([(1,)]))
    >>> dict(state.read((1,)))
    {'a': 1}
    """

    _use = "state.read(time) gives one, and state.write(time, {key: value}) and state.remove(time, [key]) change it"
    _event: Event | None = None

    def written_in(self, event: Event) -> None:
        """Set the event of all writes from now on."""
        self._event = event

    def _new(self) -> _Keyed:
        return _Keyed()

    def read(self, time: Time) -> Mapping[Any, Any]:
        """Newest version in the scope of `time`.

        Valid until the next write; not to be changed.
        """
        scope = self._scopes.get(time[:-1])
        return _NOTHING if scope is None else scope.values

    def write(self, time: Time, updates: dict[Any, Any]) -> None:
        """Set the keys of `updates`; the state keeps that dictionary.

        Raises:
            ValueError: if the scope was written at a later time before, or `time` is not that of the event.
        """
        if self._event is not None and self._event.time != time:
            raise _another_time(self._event.time, time)
        scope = self._scopes.get(time[:-1])
        if scope is None:
            scope = self._scope(time)
        scope.write(time, updates)

    def remove(self, time: Time, keys: Iterable[Any]) -> None:
        """Remove keys; missing ones are ignored.

        Raises as `write`.
        """
        if self._event is not None and self._event.time != time:
            raise _another_time(self._event.time, time)
        self._scope(time).remove(time, keys)


def _another_time(now: Time, time: Time) -> ValueError:
    """Error about a write at another time than that of its event.

    It would be saved with the event's time.
    """
    return ValueError(
        f"state by key was written at {visible(time)} in an event at {visible(now)}: it holds the newest values, whatever the "
        "time, so write them at the event's own time, and what is meant for a later one into TimedBatches or TimedValues"
    )
