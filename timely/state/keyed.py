"""State of record operators: a value for each key, running on along the innermost coordinate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any

from timely.batch import nbytes
from timely.order import Time
from timely.routing import shard_of, stable_hash
from timely.state.interface import Run
from timely.state.scopes import Scope, Scopes

Change = tuple[dict[Any, Any], dict[Any, Any]]
"""What a time wrote, and what that replaced."""


ABSENT: Any = object()
"""Stands in a change where a key has no value."""

_NOTHING: Mapping[Any, Any] = MappingProxyType({})


class _Keyed(Scope[Change]):
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

    def changes(self, first: int, end: int) -> Run | None:
        wrote: dict[Any, Any] = {}
        for _, change in islice(self.log, first, end):
            wrote.update(change[0])
        return Run(self.time_of(end), _records(wrote)) if wrote else None

    def whole(self, end: int) -> Run | None:
        values = self.values
        if len(self.log) > end:
            values = dict(values)
            for _, (_, replaced) in islice(reversed(self.log), len(self.log) - end):
                values.update(replaced)
        records = _records({key: value for key, value in values.items() if value is not ABSENT})
        return Run(self.time_of(end), records) if records else None

    def load(self, run: Run) -> None:
        assert isinstance(run.batch, list)
        self.write(run.time, {record[1]: record[2] for record in run.batch if len(record) == 3})
        self.remove(run.time, [record[1] for record in run.batch if len(record) == 2])

    def write(self, time: Time, updates: dict[Any, Any]) -> None:
        values = self.values
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


def _first(values: dict[Any, Any], count: int) -> list[tuple[Any, Any]]:
    return [item for item, _ in zip(values.items(), range(count), strict=False)]


def _records(updates: dict[Any, Any]) -> list[Any]:
    return [
        (shard_of(stable_hash(key)), key) if value is ABSENT else (shard_of(stable_hash(key)), key, value)
        for key, value in updates.items()
    ]


class KeyedState(Scopes[_Keyed]):
    """Key → value, the last written wins. Keys are hashable; values must not be changed once written.

    Runs hold (shard, key, value) records, and (shard, key) where a key was removed.

    >>> state = KeyedState()
    >>> state.write((0,), {"a": 1})
    >>> state.write((1,), {"a": 2, "b": 5})
    >>> dict(state.read((1,)))
    {'a': 2, 'b': 5}
    >>> from timely.order import Frontier
    >>> state.keep(Frontier.before([(1,)]))
    >>> dict(state.read((1,)))
    {'a': 1}
    """

    def _new(self) -> _Keyed:
        return _Keyed()

    def read(self, time: Time) -> Mapping[Any, Any]:
        """The newest version in the scope of `time`. Valid until the next write; not to be changed."""
        scope = self._scopes.get(time[:-1])
        return _NOTHING if scope is None else scope.values

    def write(self, time: Time, updates: dict[Any, Any]) -> None:
        """Set the keys of `updates`, a dictionary that the state keeps.

        Raises:
            ValueError: if the scope was written at a later time before.
        """
        (self._scopes.get(time[:-1]) or self._scope(time)).write(time, updates)

    def remove(self, time: Time, keys: Iterable[Any]) -> None:
        """Remove keys; those that are not there are ignored. Raises as `write`."""
        self._scope(time).remove(time, keys)
