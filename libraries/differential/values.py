"""Codes of values: an integer is its own code; any other value gets one that stands for it in a store beside the rows.

Operators work on codes. Values that Python holds equal have one code (1, 1.0 and True are one), and NaN is one value, as it is
in the keys of the engine; what comes out is the value that came first, or the integer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from libraries.differential.rows import I64, LEAST, NOTHING
from timely.data.batch import nbytes
from timely.data.keys import canonical
from timely.state.interface import Rows as RowCount
from timely.state.interface import Run, StateSize
from timely.time import Frontier, Time

_MOST = (1 << 63) - 1
_NUMBERS = (float, np.floating, np.integer, Decimal, Fraction)


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

    def code(self, value: Any, time: Time) -> int:
        """The code of `value`, which is needed at `time`.

        Raises:
            TypeError: for a value that cannot be hashed.
        """
        if type(value) is int and LEAST <= value <= _MOST:
            return value
        try:
            code = self._codes.get(value)
        except TypeError:
            raise TypeError(
                f"{value!r:.200} ({type(value).__name__}) cannot be a key, or a value that operators compare: it cannot be "
                "hashed; make a tuple, a text or a frozen dataclass of it"
            ) from None
        if code is None:
            value = _plain(value)
            if type(value) is int and LEAST <= value <= _MOST:
                return value
            code = self._codes.get(value)
        if code is None:
            code = self._codes[value] = self._next
            self._next += 1
            self._values[code] = value
            self._times[code] = time
        elif time < self._times[code]:
            self._times[code] = time
        return code

    def known(self, value: Any) -> int:
        """The code of `value`, if it has one; NOTHING if not."""
        return self._codes.get(value, NOTHING)

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
            value = self._values.pop(code)
            del self._times[code]
            if self._codes.get(value) == code:
                del self._codes[value]

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
            self._values[code] = value = _plain(value)
            self._codes[value] = code
            self._times[code] = min(time, self._times.get(code, time))
            self._next = code + 1

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


def _plain(value: Any) -> Any:
    """`value`, or the integer that equals it."""
    if type(value) is bool:
        return int(value)
    if isinstance(value, _NUMBERS) and math.isfinite(value) and value == int(value):
        return int(value)
    return canonical(value)
