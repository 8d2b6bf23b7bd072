"""Codes of values: an integer is its own code; any other value gets one that stands for it in a store beside the rows.

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
    """The value of a record whose key is not plain, with the key as the record says it. `bare`: the record is no pair."""

    key: Any
    value: Any
    bare: bool

    @property
    def record(self) -> Any:
        """The record."""
        return self.key if self.bare else (self.key, self.value)


register(
    Form,
    lambda form: (form.key, form.value, form.bare),
    lambda parts: Form(*parts),
    name="differential.Form",
)


class Values:
    """The store of one operator: value ↔ code. A `State` (timely.state.interface) whose runs hold (code, value).

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
        """Codes of values that are not plain, and of forms: others may equal them."""

    def code(self, value: Any, time: Time) -> int:
        """The code of `value`, which is needed at `time`.

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
        """The codes of a record: of its key, and of its value; what is no pair is its own key."""
        pair = type(record) is tuple and len(record) == 2
        key, value = record if pair else (record, None)
        code = self.code(key, time)
        if code in self.odd:
            return self.key(key, time), self.code(Form(key, value, not pair), time)
        return code, self.code(value, time) if pair else NOTHING

    def key(self, key: Any, time: Time) -> int:
        """The code of a key: that of the plain value which equals it."""
        code = self.code(key, time)
        return self.code(plain(key), time) if code in self.odd else code

    def places(self, records: Sequence[Any], time: Time) -> tuple[I64, I64]:
        """The codes of many records."""
        place = self.place
        return _columns([place(record, time) for record in records])

    def record(self, key: int, value: int) -> Any:
        """The record of two codes."""
        if value == NOTHING:
            return self.value(key)
        found = self.value(value)
        return found.record if type(found) is Form else (self.value(key), found)

    def records(self, keys: I64, values: I64) -> list[Any]:
        """The records of many codes."""
        if are_integers(values) or not self.odd:
            if not (values == NOTHING).any():
                return list(zip(self.values(keys), self.values(values), strict=True))
            if (values == NOTHING).all():
                return self.values(keys)
        return list(map(self.record, keys.tolist(), values.tolist()))

    def are_plain(self, codes: I64) -> bool:
        """True if no two of these codes, in different places, can stand for values that are equal."""
        if not self.odd or are_integers(codes):
            return True
        return self.odd.isdisjoint(codes[codes < LEAST].tolist())

    def known(self, value: Any) -> int:
        """The code of `value`, if it has one; NOTHING if not."""
        return self._codes.get(identity(value), NOTHING)

    def codes(self, values: Sequence[Any], time: Time) -> I64:
        """The codes of many values."""
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
        """The value of a code."""
        return code if code >= LEAST else self._values[code]

    def values(self, codes: I64) -> list[Any]:
        """The values of many codes."""
        if are_integers(codes):
            return list(codes.tolist())
        held = self._values
        return [code if code >= LEAST else held[code] for code in codes.tolist()]

    def __len__(self) -> int:
        return len(self._values)

    def forget_others(self, codes: I64) -> None:
        """Nothing names any values but those of `codes`. A value that comes again gets another code."""
        for code in self._values.keys() - codes.tolist():
            name = identity(self._values.pop(code))
            del self._times[code]
            self.odd.discard(code)
            if self._codes.get(name) == code:
                del self._codes[name]

    # The state

    def snapshot(self, upto: Frontier, after: Frontier) -> list[Run]:
        """The values that rows in `upto` and none in `after` needed."""
        found: dict[Time, list[Any]] = {}
        for code, time in self._times.items():
            if time in upto and time not in after:
                found.setdefault(time, []).append((code, self._values[code]))
        return [Run(time, entries) for time, entries in found.items()]

    def pieces(self, upto: Frontier, after: Frontier, rows: RowCount) -> Iterator[Run]:
        """The same in runs of about `rows()` rows."""
        for run in self.snapshot(upto, after):
            start = 0
            while start < len(run.batch):
                assert isinstance(run.batch, list)
                piece = run.batch[start : start + rows()]
                start += len(piece)
                yield Run(run.time, piece)

    def restore(self, runs: Iterable[Run]) -> None:
        """Replace everything held by what `runs` hold."""
        self._clear()
        entries = [(code, value, run.time) for run in runs for code, value in run.batch]
        for code, value, time in sorted(entries, key=lambda entry: entry[0]):  # of two codes the later one is in use
            self._hold(code, identity(value), value, min(time, self._times.get(code, time)))

    def keep(self, frontier: Frontier) -> None:
        """Nothing: values that nothing names do no harm."""

    def compact(self, frontier: Frontier) -> None:
        """Nothing: codes never change."""

    def size(self) -> StateSize:
        """The size of the store."""
        return StateSize(len(self._values), nbytes(list(self._values.values())), 1 if self._values else 0)


def are_integers(codes: I64) -> bool:
    """True if all codes are integers that stand for themselves."""
    return not len(codes) or int(codes.min()) >= LEAST


def _columns(places: list[tuple[int, int]]) -> tuple[I64, I64]:
    both = np.array(places, np.int64).reshape(-1, 2)
    return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])
