"""Codes of values: integers are their own; other values get one from a store.

Operators work on codes. Values that are the same have one code (`identity`). The code of a key is that of the plain value which
equals it, so that equal keys are one key; where a record says it otherwise, as 2.0, its value is a `Form`, which says how.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from libraries.differential.identity import THEMSELVES, identity, plain, with_one_nan
from libraries.differential.rows import I64, LEAST, NOTHING
from timely.data.batch import nbytes
from timely.data.codec import register
from timely.state.interface import Rows as RowCount
from timely.state.interface import Run, StateSize
from timely.time import Frontier, Time

_MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Form:
    """Value of a record with a key that is not plain, and the key as written.

    `bare`: the record is no pair.
    """

    key: Any
    value: Any
    bare: bool

    @property
    def record(self) -> Any:
        """Record with the key as written."""
        return self.key if self.bare else (self.key, self.value)


register(
    Form,
    lambda form: (form.key, form.value, form.bare),
    lambda parts: Form(*parts),
    name="differential.Form",
)


class Values:
    """Value store of one operator: value ↔ code; a `State` with runs of (code, value).

    Each value has the least time at which it was needed, so that a checkpoint has all that its rows name. A code never stands
    for another value.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._codes: dict[Any, int] = {}
        self._values: dict[int, Any] = {}
        self._times: dict[int, Time] = {}
        self._next = NOTHING + 1
        self.odd: set[int] = set()
        """Codes of forms and of values not in plain form; other values may equal them."""

    def code(self, value: Any, time: Time) -> int:
        """Code of `value`, needed at `time`.

        Raises:
            TypeError: for a value that cannot be hashed.
        """
        kind = type(value)
        if kind is int and LEAST <= value <= _MOST:
            return value  # type: ignore[no-any-return]
        try:
            name = value if kind in THEMSELVES else identity(value)
            code = self._codes.get(name)
        except TypeError:
            raise TypeError(
                f"{value!r:.200} ({type(value).__name__}) cannot be a key, or a value that operators compare: it cannot be "
                "hashed; make a tuple, a text or a frozen dataclass of it"
            ) from None
        if code is None:
            self._hold(code := self._next, name, value, time)
        elif time < self._times[code]:
            self._times[code] = time
        return code

    def _hold(self, code: int, name: Any, value: Any, time: Time) -> None:
        if type(value) is Form or (type(value) not in THEMSELVES and identity(plain(value)) != name):
            self.odd.add(code)
        self._codes[name] = code
        self._values[code] = with_one_nan(value)
        self._times[code] = time
        self._next = max(self._next, code + 1)

    def place(self, record: Any, time: Time) -> tuple[int, int]:
        """Codes of a record's key and value; a record that is no pair is its own key."""
        pair = type(record) is tuple and len(record) == 2
        key, value = record if pair else (record, None)
        code = self.code(key, time)
        if code in self.odd:
            return self.key(key, time), self.code(Form(key, value, not pair), time)
        return code, self.code(value, time) if pair else NOTHING

    def key(self, key: Any, time: Time) -> int:
        """Code of a key's plain form, shared by all equal keys."""
        code = self.code(key, time)
        return self.code(plain(key), time) if code in self.odd else code

    def places(self, records: Sequence[Any], time: Time) -> tuple[I64, I64]:
        """Codes of many records: keys and values."""
        place = self.place
        return _columns([place(record, time) for record in records])

    def record(self, key: int, value: int) -> Any:
        """Record with these codes of key and value."""
        if value == NOTHING:
            return self.value(key)
        found = self.value(value)
        return found.record if type(found) is Form else (self.value(key), found)

    def records(self, keys: I64, values: I64) -> list[Any]:
        """Records with these codes of keys and values."""
        if are_integers(values) or not self.odd:
            if not (values == NOTHING).any():
                return list(zip(self.values(keys), self.values(values), strict=True))
            if (values == NOTHING).all():
                return self.values(keys)
        return list(map(self.record, keys.tolist(), values.tolist()))

    def are_plain(self, codes: I64) -> bool:
        """True if different codes among these stand for unequal values."""
        if not self.odd or are_integers(codes):
            return True
        return self.odd.isdisjoint(codes[codes < LEAST].tolist())

    def known(self, value: Any) -> int:
        """Code of `value`; NOTHING if it has none."""
        return self._codes.get(identity(value), NOTHING)

    def codes(self, values: Sequence[Any], time: Time) -> I64:
        """Codes of many values."""
        if set(map(type, values)) == {int}:
            try:
                column = np.array(values, np.int64)
            except OverflowError:
                column = None
            if column is not None and column.min() >= LEAST:
                return column
        code = self.code
        return np.array([code(value, time) for value in values], np.int64)

    def value(self, code: int) -> Any:
        """Value of a code."""
        return code if code >= LEAST else self._values[code]

    def values(self, codes: I64) -> list[Any]:
        """Values of many codes."""
        if are_integers(codes):
            return list(codes.tolist())
        held = self._values
        return [code if code >= LEAST else held[code] for code in codes.tolist()]

    def __len__(self) -> int:
        return len(self._values)

    def forget_others(self, codes: I64) -> None:
        """Drop all values except those of `codes`; a dropped value gets a new code later."""
        for code in self._values.keys() - codes.tolist():
            name = identity(self._values.pop(code))
            del self._times[code]
            self.odd.discard(code)
            if self._codes.get(name) == code:
                del self._codes[name]

    # The state

    def snapshot(self, upto: Frontier, after: Frontier) -> list[Run]:
        """Values needed by rows in `upto` but not in `after`."""
        found: dict[Time, list[Any]] = {}
        for code, time in self._times.items():
            if time in upto and time not in after:
                found.setdefault(time, []).append((code, self._values[code]))
        return [Run(time, entries) for time, entries in found.items()]

    def pieces(self, upto: Frontier, after: Frontier, rows: RowCount) -> Iterator[Run]:
        """Runs of `snapshot` with about `rows()` rows each."""
        for run in self.snapshot(upto, after):
            start = 0
            while start < len(run.batch):
                assert isinstance(run.batch, list)
                piece = run.batch[start : start + rows()]
                start += len(piece)
                yield Run(run.time, piece)

    def restore(self, runs: Iterable[Run]) -> None:
        """Replace the state by the contents of `runs`."""
        self._clear()
        entries = [(code, value, run.time) for run in runs for code, value in run.batch]
        for code, value, time in sorted(entries, key=lambda entry: entry[0]):  # of two codes the later one is in use
            self._hold(code, identity(value), value, min(time, self._times.get(code, time)))

    def keep(self, frontier: Frontier) -> None:
        """Do nothing: unused values do no harm."""

    def compact(self, frontier: Frontier) -> None:
        """Do nothing: codes never change."""

    def size(self) -> StateSize:
        """Size of the store."""
        return StateSize(len(self._values), nbytes(list(self._values.values())), 1 if self._values else 0)


def are_integers(codes: I64) -> bool:
    """True if all codes are integers, their own values."""
    return not len(codes) or int(codes.min()) >= LEAST


def _columns(places: list[tuple[int, int]]) -> tuple[I64, I64]:
    both = np.array(places, np.int64).reshape(-1, 2)
    return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])
