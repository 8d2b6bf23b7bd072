"""`Join`: the join of two collections on equal keys.

What meets at a time is the changes of that time on one side with those before it on the other, those of that time on both
sides, and earlier ones whose least upper bound it is (`Pending`). Where that is very much, as under a key with many records on
both sides, an event makes a part of it, and asks to be notified of the same time once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from libraries.differential.arrangement import TraceReading
from libraries.differential.checked import over_columns
from libraries.differential.operators import (
    Few,
    InputBuffer,
    KeyedOperator,
    Sums,
    added_up,
    formed,
    send_many,
    summed_rows,
)
from libraries.differential.rows import FEW, I64, NOTHING, Rows, groups, made_rows, summed
from libraries.differential.trace import Change
from libraries.differential.values import Form, Values, are_integers
from timely.data.batch import Batch
from timely.operators.base import Context
from timely.time import Time, join, leq

Select = Callable[[Any, Any, Any], Any]
"""Function from a key, a left value and a right value to a record."""

Meeting = tuple[int, int, int, int]
"""Matched pair in codes: key, left value, right value, difference."""

PAIRS = 1 << 17
"""Limit of pairs in one event in columns."""

PAIRS_OF_RECORDS = 1 << 12
"""Limit of pairs in one event with calls of `select`."""


@dataclass(frozen=True, slots=True)
class Meetings:
    """Matched pairs: groups of rows on one side with the rows of the other side.

    `ends`: the number of pairs of all rows of the other side up to each one.
    """

    key: I64
    mine: tuple[I64, I64]
    """Value and difference, in order of groups."""
    starts: npt.NDArray[np.intp]
    """Index of the first row of each group, and the end of the last one."""
    of: npt.NDArray[np.intp]
    """Group of each row of the other side."""
    theirs: tuple[I64, I64]
    turned: bool
    """True if the first side is the right input."""
    ends: I64
    single: bool
    """True if each group is one row, so each row of the other side makes one pair."""

    @classmethod
    def between(
        cls,
        key: I64,
        mine: tuple[I64, I64],
        starts: npt.NDArray[np.intp],
        of: npt.NDArray[np.intp],
        theirs: tuple[I64, I64],
        turned: bool = False,
    ) -> Meetings:
        """All pairs of these rows."""
        counts = starts[1:] - starts[:-1]
        single = len(counts) == len(key) and bool((counts == 1).all())
        ends = np.arange(1, len(of) + 1) if single else np.cumsum(counts[of])
        return cls(key, mine, starts, of, theirs, turned, ends, single)

    def summed(self) -> Meetings:
        """Same pairs with rows of the other side sorted and consolidated, for determinism."""
        (of, value), diff = summed([self.of, self.theirs[0]], self.theirs[1])
        return self.between(self.key, self.mine, self.starts, of, (value, diff), self.turned)

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def part(self, begin: int, end: int) -> tuple[I64, I64, I64, I64]:
        """Pairs numbered `begin` to `end`: key, left value, right value, difference."""
        mine: npt.NDArray[np.intp]
        theirs: npt.NDArray[np.intp] | slice
        if self.single:
            mine, theirs = self.of[begin:end], slice(begin, end)
        else:
            mine, theirs = self._places(begin, end)
        one, other = self.mine[0][mine], self.theirs[0][theirs]
        left, right = (other, one) if self.turned else (one, other)
        return self.key[mine], left, right, self.mine[1][mine] * self.theirs[1][theirs]

    def _places(self, begin: int, end: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Row numbers on both sides for the pairs numbered `begin` to `end`."""
        first, last = (int(at) for at in self.ends.searchsorted([begin, end - 1], "right"))
        rows = np.arange(first, last + 1)
        starting = self.ends[rows] - (self.starts[self.of[rows] + 1] - self.starts[self.of[rows]])
        counts = np.minimum(self.ends[rows], end) - np.maximum(starting, begin)
        theirs = np.repeat(rows, counts)
        offsets = np.repeat(self.starts[self.of[rows]] - starting, counts)
        return np.arange(begin, end) + offsets, theirs


class _Made:
    """Output of one event: of all pairs of a time, or of a part of them."""

    def __init__(self) -> None:
        self.changes: list[tuple[Any, int]] = []
        self.columns: list[Rows] = []

    def send(self, ctx: Context, values: Values, apart: bool = False) -> None:
        """Send the output, consolidated by record.

        With `apart`, changes of pairs that are not integers are sent one by one.

        What is sent at a time must not depend on codes, as the parts do into which pairs fall that have some.
        """
        if self.changes and apart:
            ctx.send([*self.changes, *(pair for each in self.columns for pair in each.pairs())])
        elif self.changes:
            for each in self.columns:
                self.changes += each.pairs()
            ctx.send(formed(added_up(self.changes)))
        elif self.columns:
            send_many(ctx, values, *summed_rows(self.columns))


class InParts(KeyedOperator):
    """Operator with work of one time spread over several events."""

    transient = ("_collect", "_work")  # what was not finished is begun anew when its time is done again

    def __init__(self) -> None:
        super().__init__()
        self.inputs = (InputBuffer(self.values), InputBuffer(self.values))
        self._work: dict[Time, Iterator[None]] = {}

    @property
    def busy(self) -> bool:
        """True while a time is in progress: its work holds codes that nothing else names."""
        return bool(self._work)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        assert isinstance(batch, list)
        self.inputs[port].state.add(time, batch)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        for each in self.shared:
            each.time = time
        work = self._work.pop(time, None) or self.work(ctx, time)
        if work is not None and next(work, self) is not self:
            self._work[time] = work
            ctx.notify_at()

    def work(self, ctx: Context, time: Time) -> Iterator[None] | None:
        """Work of a time: None if it is done at once, or an iterator of parts.

        Each part is enough for one event.
        """
        raise NotImplementedError


class Join(InParts):
    """Join of two collections on equal keys; port 0 is left, port 1 is right.

    `select` makes the record; `columns`: it takes arrays as well as single values, and gives a pair of such, or one. For a
    record that is no pair it gets `nothing` as the value.
    """

    def __init__(
        self, select: Select, columns: bool, readings: Sequence[TraceReading | None] = (None, None), nothing: Any = None
    ) -> None:
        super().__init__()
        self.select = select
        self.nothing = nothing
        self._columns = columns
        left, right = (self.trace(reading) for reading in readings)
        self.traces = self._sides = (left, right)
        self.state = self.kept(*self.inputs)

    def work(self, ctx: Context, time: Time) -> Iterator[None] | None:
        one, other = self.inputs
        left, right = one.take(time), other.take(time)
        pended = self.pending.at(time)
        if left[2] + right[2] + len(pended) <= FEW:
            few = one.few(left[0], left[1], time), other.few(right[0], right[1], time)
            if self._few(ctx, time, *few, pended.tolist()):
                return None
        return self._many(ctx, time, one.many(*left[:2], time), other.many(*right[:2], time), pended)

    # One by one

    def _few(self, ctx: Context, time: Time, left: Few, right: Few, pended: Sequence[int]) -> bool:
        """Join the changes of a time record by record; False without effect if too many."""
        lefts, rights = self._sides
        later: dict[Time, set[int]] = {}
        out: list[Meeting] = []
        for key in pended:
            ours, theirs = lefts.changes(key), rights.changes(key)
            if len(out) + len(ours) * len(theirs) > PAIRS_OF_RECORDS:
                return False
            out += _meeting(key, time, ours, theirs)
        theirs_of = {key: rights.changes(key) for key, _ in left}
        ours_of = {key: lefts.changes(key) for key, _ in right}
        pairs = sum(len(theirs_of[key]) for key, _ in left) + sum(len(ours_of[key]) for key, _ in right)
        if len(out) + pairs > PAIRS_OF_RECORDS:
            return False
        for (key, value), diff in left.items():
            for other, at, by in theirs_of[key]:
                if not leq(at, time):
                    later.setdefault(join(at, time), set()).add(key)
                elif at != time:
                    out.append((key, value, other, diff * by))
        for (key, value), diff in right.items():
            for other, at, by in ours_of[key]:
                if not leq(at, time):
                    later.setdefault(join(at, time), set()).add(key)
                elif at != time:
                    out.append((key, other, value, diff * by))
            if left:
                out += [(key, one, value, diff * by) for (same, one), by in left.items() if same == key]
        for (key, value), diff in left.items():
            lefts.add_one(key, value, time, diff)
        for (key, value), diff in right.items():
            rights.add_one(key, value, time, diff)
        if later:
            self.later(ctx, later)
        select, met = self.select, self._met
        made = [(select(*met(key, one, other)), diff) for key, one, other, diff in out]
        ctx.send(formed(added_up(made)))
        return True

    # Many at once

    def _many(self, ctx: Context, time: Time, left: Sums, right: Sums, pended: I64) -> Iterator[None]:
        """Do the work of a time in columns, in parts that are enough for an event."""
        lefts, rights = self._sides
        earlier = self._met_before(time, pended) if len(pended) else []
        meetings: list[Meetings] = []
        for new, others, turned in ((left, rights, False), (right, lefts, True)):
            key, value, diff = new
            if len(key) and len(others):
                keys, starts = groups(key)
                history = others.history(keys)
                before = history.before(time)
                if not before.all():
                    self.later_many(ctx, time, keys, history, ~history.until(time))
                    history = history.only(before)
                meetings.append(
                    Meetings.between(key, (value, diff), starts, history.key, (history.value, history.diff), turned)
                )
        if len(left[0]) and len(right[0]):
            keys, starts = groups(left[0])
            of = np.minimum(keys.searchsorted(right[0]), len(keys) - 1)
            both = keys[of] == right[0]
            meetings.append(Meetings.between(left[0], left[1:], starts, of[both], (right[1][both], right[2][both])))
        lefts.add(left[0], left[1], time, left[2])
        rights.add(right[0], right[1], time, right[2])
        most = PAIRS if self._columns else PAIRS_OF_RECORDS
        made, room = _Made(), most
        for columns in self._parts(earlier, most):
            self._make(made, *columns)
            room -= len(columns[0])
            if room <= 0:
                made.send(ctx, self.values)
                yield
                made, room = _Made(), most
        if sum(map(len, meetings)) > most:
            made.send(ctx, self.values)
            for number, columns in enumerate(self._parts([each.summed() for each in meetings], most)):
                if number or earlier:
                    yield
                made = _Made()
                self._make(made, *columns)
                made.send(ctx, self.values, apart=True)
        else:
            for columns in self._parts(meetings, most):
                self._make(made, *columns)
            made.send(ctx, self.values)

    @staticmethod
    def _parts(meetings: Sequence[Meetings], most: int) -> Iterator[tuple[I64, I64, I64, I64]]:
        """All pairs in parts of at most `most`."""
        for each in meetings:
            for begin in range(0, len(each), most):
                yield each.part(begin, min(begin + most, len(each)))

    def _met_before(self, time: Time, pended: I64) -> list[Meetings]:
        """Pairs of earlier changes with `time` as the least upper bound of their times."""
        left, right = (trace.history(pended) for trace in self._sides)
        found = []
        others = right.earlier(time)
        for number in left.earlier(time):
            numbers = [other for other in others if join(left.times[number], right.times[other]) == time]
            if not numbers:
                continue
            mine, theirs = np.flatnonzero(left.at == number), np.flatnonzero(np.isin(right.at, numbers))
            mine = mine[np.argsort(left.key[mine], kind="stable")]
            starts = np.searchsorted(left.key[mine], np.arange(len(pended) + 1))
            found.append(
                Meetings.between(
                    pended[left.key[mine]],
                    (left.value[mine], left.diff[mine]),
                    starts,
                    right.key[theirs],
                    (right.value[theirs], right.diff[theirs]),
                )
            )
        return found

    def _make(self, made: _Made, key: I64, left: I64, right: I64, diff: I64) -> None:
        if self._columns and are_integers(key) and _plain(left) and _plain(right):
            one, other = (self.nothing if each[0] == NOTHING else each for each in (left, right))
            changes = made_rows(over_columns(self.select, key, one, other), diff)
            if changes is not None:
                for each in changes:
                    (made.columns if isinstance(each, Rows) else made.changes).append(each)
                return
        select = self.select
        if not (self.values.are_plain(left) and self.values.are_plain(right)):
            met = map(self._met, key.tolist(), left.tolist(), right.tolist())
            made.changes += [(select(*each), by) for each, by in zip(met, diff.tolist(), strict=True)]
            return
        values = [self.values.values(key), *(self._given_many(each) for each in (left, right))]
        made.changes += [(select(*each), by) for *each, by in zip(*values, diff.tolist(), strict=True)]

    def _given_many(self, codes: I64) -> list[Any]:
        if len(codes) and codes.min() == NOTHING:
            return [self._given(code) for code in codes.tolist()]
        return self.values.values(codes)

    def _given(self, code: int) -> Any:
        return self.nothing if code == NOTHING else self.values.value(code)

    def _met(self, key: int, left: int, right: int) -> tuple[Any, Any, Any]:
        """Key as written in the left record, and both values."""
        one, other = self._given(left), self._given(right)
        if type(other) is Form:
            other = self.nothing if other.bare else other.value
        if type(one) is Form:
            return one.key, self.nothing if one.bare else one.value, other
        return self.values.value(key), one, other


def _meeting(key: int, time: Time, left: list[Change], right: list[Change]) -> list[Meeting]:
    """Pairs of earlier changes of a key that join at `time`."""
    right = [change for change in right if change[1] != time and leq(change[1], time)]
    return [
        (key, one, other, diff * by)
        for one, at, diff in left
        if at != time and leq(at, time)
        for other, when, by in right
        if join(at, when) == time
    ]


def _plain(codes: I64) -> bool:
    return are_integers(codes) or bool((codes == NOTHING).all())
