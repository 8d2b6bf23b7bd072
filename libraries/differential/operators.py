"""Operators on collections: each acts on a time when it is complete, on all keys that have work there, and on no other.

What an operator sends at a time T it makes in the event at T, of changes at T and before it. So it can be rolled back to any
frontier: what it keeps of the times inside is what it would have kept had nothing else ever come. Where changes at two times,
neither before the other, have a common effect, that is at their least upper bound: the key is left for it in `Pending`, and a
notification asked for. (The *interesting times* of McSherry et al., *Differential dataflow*, CIDR 2013.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from libraries.differential.pending import Pending
from libraries.differential.reducers import Reducer
from libraries.differential.rows import (
    FEW,
    I64,
    LEAST,
    NOTHING,
    Rows,
    as_pairs,
    distinct,
    joined,
    made_rows,
    split,
    summed,
)
from libraries.differential.trace import Change, History, Trace
from libraries.differential.values import Values, are_integers
from timely.data.batch import Batch
from timely.errors import OperatorError
from timely.operators.base import Context, Operator
from timely.state import Parts, TimedBatches
from timely.time import Frontier, Time, join, leq

Few = dict[tuple[int, int], int]
"""Few changes: (key, value), as codes → difference."""

Sums = tuple[I64, I64, I64]
"""Many changes: key, value, difference, in order, each once."""


class _Input:
    """One input of an operator: what has come of times that are not complete."""

    def __init__(self, values: Values) -> None:
        self.state = TimedBatches()
        self._values = values

    def take(self, time: Time) -> tuple[list[tuple[Any, int]], list[Rows], int]:
        """All that came at `time`."""
        return split([item for batch in self.state.pop(time) for item in batch])

    def few(self, changes: list[tuple[Any, int]], columns: list[Rows], time: Time) -> Few:
        """Few changes, summed up."""
        code, sums = self._values.code, Few()
        for each in columns:
            changes = changes + each.pairs()
        for record, diff in changes:
            if type(record) is tuple and len(record) == 2:
                place = (code(record[0], time), code(record[1], time))
            else:
                place = (code(record, time), NOTHING)
            sums[place] = sums.get(place, 0) + diff
        return {place: diff for place, diff in sums.items() if diff}

    def many(self, changes: list[tuple[Any, int]], columns: list[Rows], time: Time) -> Sums:
        """Many changes, summed up."""
        if changes:
            pairs, others = _parted(changes)
            codes = self._values.codes
            if pairs:
                key = codes([record[0] for record, _ in pairs], time)
                value = codes([record[1] for record, _ in pairs], time)
                columns = [*columns, Rows(key, value, np.array([diff for _, diff in pairs], np.int64))]
            if others:
                key = codes([record for record, _ in others], time)
                diff = np.array([diff for _, diff in others], np.int64)
                columns = [*columns, Rows(key, np.full(len(key), NOTHING, np.int64), diff)]
        return _summed_rows(columns)


def _parted(changes: list[tuple[Any, int]]) -> tuple[list[tuple[Any, int]], list[tuple[Any, int]]]:
    """The changes of records that are pairs, and those of others."""
    pairs = [(record, by) for record, by in changes if type(record) is tuple and len(record) == 2]
    return pairs, [(record, by) for record, by in changes if type(record) is not tuple or len(record) != 2]


def _summed_rows(columns: Sequence[Rows]) -> Sums:
    key, value = joined([each.key for each in columns]), joined([each.value for each in columns])
    (key, value), diff = summed([key, value], joined([each.diff for each in columns]))
    return key, value, diff


def _send_few(ctx: Context, values: Values, sums: Few) -> None:
    value_of = values.value
    ctx.send(
        _formed(
            [
                (value_of(key) if value == NOTHING else (value_of(key), value_of(value)), diff)
                for (key, value), diff in sums.items()
                if diff
            ]
        )
    )


def _send_many(ctx: Context, values: Values, key: I64, value: I64, diff: I64) -> None:
    """Send changes that are in order of key and value, each once."""
    plain = value == NOTHING
    bare = bool(plain.any())
    if bare and not plain.all():  # rows are pairs, or none of them is
        _send_many(ctx, values, key[plain], value[plain], diff[plain])
        _send_many(ctx, values, key[~plain], value[~plain], diff[~plain])
    elif len(key) > FEW and are_integers(key) and (bare or are_integers(value)):
        ctx.send([Rows(key, value, diff)] if len(key) else [])
    elif bare:
        ctx.send(list(zip(values.values(key), diff.tolist(), strict=True)))
    else:
        records = zip(values.values(key), values.values(value), strict=True)
        ctx.send(list(zip(records, diff.tolist(), strict=True)))


def _formed(changes: list[tuple[Any, int]]) -> Batch:
    """Changes, each once, in the form that `_send_many` gives them: columns where they are many and hold integers.

    The form depends on nothing but the changes: work that is done again after a failure must send the same, whichever way it
    goes.
    """
    if len(changes) <= FEW:
        return changes
    pairs, others = _parted(changes)
    return [*_columns(pairs, True), *_columns(others, False)]


def _columns(changes: list[tuple[Any, int]], pairs: bool) -> list[Any]:
    parts = [part for record, _ in changes for part in record] if pairs else [record for record, _ in changes]
    if len(changes) <= FEW or set(map(type, parts)) != {int} or min(parts) < LEAST or max(parts) >= 1 << 63:
        return changes
    numbers = np.array(parts, np.int64).reshape(len(changes), -1)
    value = numbers[:, 1] if pairs else np.full(len(changes), NOTHING, np.int64)
    (key, value), diff = summed([numbers[:, 0], value], np.array([by for _, by in changes], np.int64))
    return [Rows(key, value, diff)]


def _added_up(changes: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """The changes of each record as one. Records that cannot be hashed stay as they are."""
    sums: dict[Any, int] = {}
    try:
        for record, by in changes:
            sums[record] = sums.get(record, 0) + by
    except TypeError:
        return changes
    return [(record, by) for record, by in sums.items() if by]


def _groups(rising: I64) -> tuple[I64, npt.NDArray[np.intp]]:
    """The distinct numbers, and where each begins, with the end behind the last one."""
    new = np.ones(len(rising), np.bool_)
    np.not_equal(rising[1:], rising[:-1], out=new[1:])
    starts = np.flatnonzero(new)
    return rising[starts], np.append(starts, len(rising))


_COLLECT = 4096
"""Number of values in a store from which on, if they are twice those needed the last time, unnamed ones are dropped."""


class _Pended(Operator):
    """The work that events find for later times, and the values of what is kept."""

    traces: tuple[Trace, Trace]
    transient = ("_collect",)

    def __init__(self) -> None:
        self.values = Values()
        self._pending = Pending()
        self._collect = _COLLECT

    def on_watermark(self, frontier: Frontier) -> None:
        super().on_watermark(frontier)
        if len(self.values) >= self._collect:
            self.values.forget_others(joined([each.named() for each in (*self.traces, self._pending)]))
            self._collect = max(_COLLECT, 2 * len(self.values))

    def _later(self, ctx: Context, found: dict[Time, set[int]]) -> None:
        for due, keys in found.items():
            self._pending.add(ctx.time, due, keys)
            ctx.notify_at(due)

    def _later_many(self, ctx: Context, time: Time, keys: I64, history: History, rows: npt.NDArray[np.bool_]) -> None:
        """Leave the keys of the given rows of a history for the times at which these and `time` meet."""
        if rows.any():
            for due, numbers in history.dues(time, history.at[rows]).items():
                self._leave(ctx, time, due, keys, history.key[rows & numbers[history.at]])

    def _leave(self, ctx: Context, time: Time, due: Time, keys: I64, which: npt.NDArray[np.intp]) -> None:
        chosen = np.zeros(len(keys), np.bool_)
        chosen[which] = True
        self._pending.add(time, due, keys[chosen])
        ctx.notify_at(due)


_MANY = 16
"""Of more later times than so many nobody asks beforehand whether a key has work there."""


class Reduce(_Pended):
    """The results of a `Reducer` for each key, kept up to date."""

    def __init__(self, reducer: Reducer) -> None:
        super().__init__()
        self._reducer = reducer
        self.traces = (Trace(), Trace())
        self._in, self._out = self.traces
        self._input = _Input(self.values)
        self.state = Parts(self._input.state, self.values, self._in, self._out, self._pending)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        assert isinstance(batch, list)
        self._input.state.add(time, batch)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        changes, columns, count = self._input.take(time)
        pended = self._pending.at(time)
        if count + len(pended) <= FEW:
            self._few(ctx, time, self._input.few(changes, columns, time), pended.tolist())
        else:
            self._many(ctx, time, self._input.many(changes, columns, time), pended)

    def _few(self, ctx: Context, time: Time, sums: Few, pended: list[int]) -> None:
        for (key, value), diff in sums.items():
            self._in.add_one(key, value, time, diff)
        later: dict[Time, set[int]] = {}
        out: Few = {}
        for key in dict.fromkeys([*(key for key, _ in sums), *pended]):
            have, gave = self._in.changes(key), self._out.changes(key)
            made = self._difference(key, have, gave, time) or {}
            for value, by in made.items():
                out[key, value] = by
                gave.append((value, time, by))
            for due in self._dues(key, have, gave, time):
                later.setdefault(due, set()).add(key)
        for (key, value), diff in out.items():
            self._out.add_one(key, value, time, diff)
        if later:
            self._later(ctx, later)
        _send_few(ctx, self.values, out)

    def _difference(
        self, key: int, have: list[Change], gave: list[Change], time: Time, early: bool = False
    ) -> dict[int, int] | None:
        """The output of a key at `time`, less what was given of it. None if `early`, and what came is not all, as one sees."""
        group: dict[int, int] = {}
        for value, at, diff in have:
            if at == time or leq(at, time):
                group[value] = group.get(value, 0) + diff
        if early and min(group.values(), default=0) < 0:
            return None
        new = self._output(key, group, time)
        for value, at, diff in gave:
            if at == time or leq(at, time):
                new[value] = new.get(value, 0) - diff
        return {value: by for value, by in new.items() if by}

    def _dues(self, key: int, have: list[Change], gave: list[Change], time: Time) -> Collection[Time]:
        """The later times at which a key has work, as far as is known: those at which its output is not what was given.

        Whatever comes to the key later looks at all its times again, and so does the work at a due time. But what is known of
        times that a rollback could part from this one counts for nothing, and a function of the user's is given nothing that
        may not be all: then it is all times at which something meets.
        """
        times = {at for _, at, _ in have if not leq(at, time)}
        times.update(at for _, at, _ in gave if not leq(at, time))
        if not times:
            return ()
        if max(times) > time or not self._reducer.early:
            return {join(at, time) for at in times}
        closed = {time}
        for at in times:
            closed |= {join(at, each) for each in closed}
            if len(closed) > _MANY:
                return {join(at, time) for at in times}
        closed.discard(time)
        return [due for due in closed if self._difference(key, have, gave, due, early=True) != {}]

    def _output(self, key: int, group: dict[int, int], time: Time) -> dict[int, int]:
        """The output of one key, in codes."""
        reducer, values = self._reducer, self.values
        entries = [(value, times) for value, times in group.items() if times]
        if not entries:
            return {}
        if reducer.positive:
            for value, times in entries:
                if times < 0:
                    self._refuse(key, value, times)
        if reducer.on_codes:
            found = reducer.one(key, entries)
        else:
            decoded = [(None if value == NOTHING else values.value(value), times) for value, times in entries]
            found = [(values.code(value, time), times) for value, times in reducer.one(values.value(key), decoded)]
        sums: dict[int, int] = {}
        for value, times in found:
            sums[value] = sums.get(value, 0) + times
        return sums

    def _refuse(self, key: int, value: int, times: int) -> None:
        of = self.values.value
        record = of(key) if value == NOTHING else (of(key), of(value))
        raise ValueError(
            f"the record {record!r:.200} is there {times} times: more of it was removed than was ever inserted; remove only "
            "what was inserted, or use threshold(), which takes any number"
        )

    def _many(self, ctx: Context, time: Time, sums: Sums, pended: I64) -> None:
        key, value, diff = sums
        self._in.add(key, value, time, diff)
        keys, starts = _groups(key)
        if len(pended):
            keys = distinct(np.concatenate([keys, pended]))
        if not len(keys):
            return  # all that came cancels
        before = self._out.history(keys)
        gave = self._as_of(before, before.until(time))
        made = None
        if (
            not len(pended)
            and self._in.all_until(time)
            and diff.min(initial=1) > 0
            and (self._reducer.on_codes or are_integers(value))
        ):
            # Nothing can be due later, and nothing has gone: what was given before may tell what is to be given now.
            made = self._reducer.grown(gave, (np.repeat(np.arange(len(keys)), starts[1:] - starts[:-1]), value, diff))
        if made is None:
            history = self._in.history(keys)
            until = history.until(time)
            self._later_many(ctx, time, keys, history, ~until)
            made = self._outputs(keys, *self._as_of(history, until), time)
        (of, value), diff = summed(
            [joined([made[0], gave[0]]), joined([made[1], gave[1]])], joined([made[2], -gave[2]])
        )
        key = keys[of]
        self._out.add(key, value, time, diff)
        _send_many(ctx, self.values, key, value, diff)

    @staticmethod
    def _as_of(history: History, until: npt.NDArray[np.bool_]) -> Sums:
        if until.all():
            (of, value), diff = summed([history.key, history.value], history.diff)
        else:
            (of, value), diff = summed([history.key[until], history.value[until]], history.diff[until])
        return of, value, diff

    def _outputs(self, keys: I64, of: I64, value: I64, times: I64, time: Time) -> Sums:
        """The output of many keys: the number of the key, code, how often."""
        reducer = self._reducer
        if reducer.positive and len(times) and times.min() < 0:
            wrong = int(np.argmin(times))
            self._refuse(int(keys[of[wrong]]), int(value[wrong]), int(times[wrong]))
        if not len(of):
            return of, value, times
        if reducer.columnar and (reducer.on_codes or are_integers(value)):
            try:
                return reducer.many((of, value, times))
            except OverflowError:
                pass
        ends = np.append(np.flatnonzero(of[1:] != of[:-1]) + 1, len(of)).tolist()
        found: list[tuple[int, int, int]] = []
        start = 0
        for end in ends:
            group = dict(zip(value[start:end].tolist(), times[start:end].tolist(), strict=True))
            number = int(of[start])
            found += [(number, code, n) for code, n in self._output(int(keys[number]), group, time).items()]
            start = end
        columns = np.array(found, np.int64).reshape(-1, 3)
        return columns[:, 0], columns[:, 1], columns[:, 2]


Select = Callable[[Any, Any, Any], Any]
"""Of the key, the left and the right value of a pair that meets: the record that comes of it."""


Meeting = tuple[int, int, int, int]
"""A key with the left and the right value that meet under it, all as codes, and the difference."""


class _Made:
    """The output of one event of a join."""

    def __init__(self) -> None:
        self.changes: list[tuple[Any, int]] = []
        self.columns: list[Rows] = []

    def send(self, ctx: Context, values: Values) -> None:
        """Send it, the changes of each record as one."""
        if self.changes:
            for each in self.columns:
                self.changes += each.pairs()
            ctx.send(_formed(_added_up(self.changes)))
        elif self.columns:
            _send_many(ctx, values, *_summed_rows(self.columns))


class Join(_Pended):
    """The pairs of records of two collections whose keys are equal. Port 0 is left, port 1 is right.

    `select` makes the record; `columns`: it takes arrays as well as single values, and gives a pair of such, or one.
    """

    def __init__(self, select: Select, columns: bool) -> None:
        super().__init__()
        self._select = select
        self._columns = columns
        self._inputs = (_Input(self.values), _Input(self.values))
        self.traces = (Trace(), Trace())
        stashes = (each.state for each in self._inputs)
        self.state = Parts(*stashes, self.values, *self.traces, self._pending)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        assert isinstance(batch, list)
        self._inputs[port].state.add(time, batch)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        left, right = (each.take(time) for each in self._inputs)
        pended = self._pending.at(time)
        if left[2] + right[2] + len(pended) <= FEW:
            few = [each.few(*taken[:2], time) for each, taken in zip(self._inputs, (left, right), strict=True)]
            self._few(ctx, time, few[0], few[1], pended.tolist())
        else:
            many = [each.many(*taken[:2], time) for each, taken in zip(self._inputs, (left, right), strict=True)]
            self._many(ctx, time, many[0], many[1], pended)

    # One by one

    def _few(self, ctx: Context, time: Time, left: Few, right: Few, pended: Sequence[int]) -> None:
        lefts, rights = self.traces
        later: dict[Time, set[int]] = {}
        out: list[Meeting] = []
        for key in pended:  # before what came at `time` itself is added, which meets all there is
            out += self._meeting(key, time, lefts.changes(key), rights.changes(key))
        self._met(out, later, time, left, rights, False)
        for (key, value), diff in left.items():
            lefts.add_one(key, value, time, diff)
        self._met(out, later, time, right, lefts, True)
        for (key, value), diff in right.items():
            rights.add_one(key, value, time, diff)
        if later:
            self._later(ctx, later)
        select, value_of = self._select, self.values.value
        made = [
            (select(value_of(key), _given(value_of, one), _given(value_of, other)), diff)
            for key, one, other, diff in out
        ]
        ctx.send(_formed(_added_up(made)))

    @staticmethod
    def _met(
        out: list[Meeting], later: dict[Time, set[int]], time: Time, new: Few, others: Trace, turned: bool
    ) -> None:
        """Add to `out` what each new change makes with those of the other side, and to `later` when it does so later."""
        known: dict[int, list[Change]] = {}
        for (key, value), diff in new.items():
            if key not in known:
                known[key] = others.changes(key)
            for other, at, by in known[key]:
                if leq(at, time):
                    out.append((key, other, value, diff * by) if turned else (key, value, other, diff * by))
                else:
                    later.setdefault(join(at, time), set()).add(key)

    @staticmethod
    def _meeting(key: int, time: Time, left: list[Change], right: list[Change]) -> list[Meeting]:
        """The pairs of earlier changes that meet at `time`."""
        right = [change for change in right if leq(change[1], time)]
        return [
            (key, one, other, diff * by)
            for one, at, diff in left
            if leq(at, time)
            for other, when, by in right
            if join(at, when) == time
        ]

    # All at once

    def _many(self, ctx: Context, time: Time, left: Sums, right: Sums, pended: I64) -> None:
        lefts, rights = self.traces
        made = _Made()
        if len(pended):
            self._meet_pended(made, time, pended)
        self._meet(ctx, made, time, left, rights, False)
        lefts.add(left[0], left[1], time, left[2])
        self._meet(ctx, made, time, right, lefts, True)
        rights.add(right[0], right[1], time, right[2])
        made.send(ctx, self.values)

    def _meet(self, ctx: Context, made: _Made, time: Time, new: Sums, others: Trace, turned: bool) -> None:
        key, value, diff = new
        if not len(key) or not len(others):
            return
        keys, starts = _groups(key)
        history = others.history(keys)
        until = history.until(time)
        if until.all():
            of, other, by = history.key, history.value, history.diff
        else:
            self._later_many(ctx, time, keys, history, ~until)
            of, other, by = history.key[until], history.value[until], history.diff[until]
        rows, theirs = _products(of, starts)
        one, two = (other[theirs], value[rows]) if turned else (value[rows], other[theirs])
        self._make(made, key[rows], one, two, diff[rows] * by[theirs])

    def _meet_pended(self, made: _Made, time: Time, pended: I64) -> None:
        left, right = (trace.history(pended) for trace in self.traces)
        others = right.present(time)
        for number in left.present(time):
            numbers = [other for other in others if join(left.times[number], right.times[other]) == time]
            if not numbers:
                continue
            mine, theirs = np.flatnonzero(left.at == number), np.flatnonzero(np.isin(right.at, numbers))
            mine = mine[np.argsort(left.key[mine], kind="stable")]
            starts = np.searchsorted(left.key[mine], np.arange(len(pended) + 1))
            rows, them = _products(right.key[theirs], starts)
            rows, them = mine[rows], theirs[them]
            self._make(
                made, pended[left.key[rows]], left.value[rows], right.value[them], left.diff[rows] * right.diff[them]
            )

    def _make(self, made: _Made, key: I64, left: I64, right: I64, diff: I64) -> None:
        if not len(key):
            return
        if self._columns and are_integers(key) and _plain(left) and _plain(right):
            one, other = (None if each[0] == NOTHING else each for each in (left, right))
            made.columns.append(made_rows(self._select(key, one, other), diff))
            return
        select = self._select
        values = [self.values.values(key), *(self._given_many(each) for each in (left, right))]
        made.changes += [(select(*each), by) for *each, by in zip(*values, diff.tolist(), strict=True)]

    def _given_many(self, codes: I64) -> list[Any]:
        if len(codes) and codes.min() == NOTHING:
            return [_given(self.values.value, code) for code in codes.tolist()]
        return self.values.values(codes)


def _given(value_of: Callable[[int], Any], code: int) -> Any:
    return None if code == NOTHING else value_of(code)


def _plain(codes: I64) -> bool:
    return are_integers(codes) or bool((codes == NOTHING).all())


def _products(of: npt.NDArray[np.intp], starts: npt.NDArray[np.intp]) -> tuple[I64, I64]:
    """All pairs of a row of group g, which are those from starts[g] to starts[g + 1], and a place in `of`, which holds g."""
    counts = (starts[1:] - starts[:-1])[of]
    total = int(counts.sum())
    theirs = np.repeat(np.arange(len(of)), counts)
    mine = np.arange(total) + np.repeat(starts[of] - (np.cumsum(counts) - counts), counts)
    return mine, theirs


class Consolidate(Operator):
    """The changes of each time summed up; those that cancel go. In a loop, with a limit: what goes round must come to an end.

    A time of the iteration `limit` at which anything is left is an error that names the loop, and records that still change.
    """

    def __init__(self, loop: str | None = None, limit: int | None = None) -> None:
        self._values = Values()
        self._input = _Input(self._values)
        self._loop = loop
        self._limit = limit
        self.state = self._input.state

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        assert isinstance(batch, list)
        self._input.state.add(time, batch)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        changes, columns, count = self._input.take(time)
        if count <= FEW:
            _send_few(ctx, self._values, self._input.few(changes, columns, time))
        else:
            _send_many(ctx, self._values, *self._input.many(changes, columns, time))
        self._values.restore(())  # codes are of use within the event only
        if self._limit is not None and time[-1] >= self._limit and ctx.out:
            changing = [record for _, _, batch in ctx.out for record, _ in as_pairs(batch[:1])[:8]]
            raise OperatorError(
                f"the loop {self._loop!r} ({ctx.site}) still changes after {self._limit} iterations of epoch {time[0]}: it may "
                f"never end; among what changes: {', '.join(f'{record!r:.80}' for record in dict.fromkeys(changing))}. "
                "Mend its body, so that what goes round comes to rest, or give it a higher limit="
            )
