"""Operators on collections: each handles complete times, for keys with work there.

What an operator sends at a time T it makes in the event at T, of changes at T and before it. So it can be rolled back to any
frontier: what it keeps of the times inside is what it would have kept had nothing else ever come. Where changes at two times,
neither before the other, have a common effect, that is at their least upper bound: the key is left for it in `Pending`, and a
notification asked for. (The *interesting times* of McSherry et al., *Differential dataflow*, CIDR 2013.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from libraries.differential.arrangement import Arrangement, SharedTrace, TraceReading
from libraries.differential.identity import THEMSELVES, are_themselves, identity, plain, rank
from libraries.differential.pending import Pending
from libraries.differential.reducers import COUNTED, Linear, Reducer
from libraries.differential.rows import (
    FEW,
    I64,
    LEAST,
    NOTHING,
    Rows,
    as_pairs,
    constant,
    distinct,
    groups,
    joined,
    split,
    summed,
)
from libraries.differential.trace import WIDE, Change, History, Trace
from libraries.differential.values import Form, Values, are_integers
from timely.data.batch import Batch
from timely.data.content import by_content
from timely.errors import OperatorError, shown
from timely.operators.base import Context, Operator
from timely.state import Parts, TimedBatches
from timely.time import Frontier, Time, join, leq, visible

Few = dict[tuple[int, int], int]
"""Few changes: difference by (key, value), in codes."""

Sums = tuple[I64, I64, I64]
"""Many changes as sorted, consolidated columns: key, value, difference."""


class InputBuffer:
    """Buffered changes of one input, by times not yet complete."""

    def __init__(self, values: Values) -> None:
        self.state = TimedBatches()
        self._values = values

    def take(self, time: Time) -> tuple[list[tuple[Any, int]], list[Rows], int]:
        """Remove and return all changes at `time`: single ones, columns, total number."""
        return split([item for batch in self.state.pop(time) for item in batch])

    def few(self, changes: list[tuple[Any, int]], columns: list[Rows], time: Time) -> Few:
        """Consolidated changes as a dictionary, for small batches."""
        place_of, sums = self._values.place, Few()
        for each in columns:
            changes = changes + each.pairs()
        for record, diff in changes:
            place = place_of(record, time)
            sums[place] = sums.get(place, 0) + diff
        return {place: diff for place, diff in sums.items() if diff}

    def many(self, changes: list[tuple[Any, int]], columns: list[Rows], time: Time) -> Sums:
        """Consolidated changes as columns, for large batches."""
        if changes:
            codes = self._values.codes
            for part, pair in zip(_parted(changes), (True, False), strict=True):
                if not part:
                    continue
                keys = [record[0] if pair else record for record, _ in part]
                if THEMSELVES.issuperset(map(type, keys)):
                    key = codes(keys, time)
                    value = (
                        codes([record[1] for record, _ in part], time) if pair else np.full(len(key), NOTHING, np.int64)
                    )
                else:
                    key, value = self._values.places([record for record, _ in part], time)
                columns = [*columns, Rows(key, value, np.array([diff for _, diff in part], np.int64))]
        return summed_rows(columns)


def _parted(changes: list[tuple[Any, int]]) -> tuple[list[tuple[Any, int]], list[tuple[Any, int]]]:
    """Changes of pairs, and those of other records."""
    pairs = [(record, by) for record, by in changes if type(record) is tuple and len(record) == 2]
    return pairs, [(record, by) for record, by in changes if type(record) is not tuple or len(record) != 2]


def summed_rows(columns: Sequence[Rows]) -> Sums:
    """Columns of all rows, sorted and consolidated."""
    key, value = joined([each.key for each in columns]), joined([each.value for each in columns])
    (key, value), diff = summed([key, value], joined([each.diff for each in columns]))
    return key, value, diff


def send_few(ctx: Context, values: Values, sums: Few) -> None:
    """Send consolidated changes from a dictionary."""
    record = values.record
    ctx.send(formed([(record(key, value), diff) for (key, value), diff in sums.items() if diff]))


def send_many(ctx: Context, values: Values, key: I64, value: I64, diff: I64) -> None:
    """Send consolidated changes from columns sorted by key and value."""
    plain = value == NOTHING
    bare = bool(plain.any())
    if bare and not plain.all():  # rows are pairs, or none of them is
        send_many(ctx, values, key[plain], value[plain], diff[plain])
        send_many(ctx, values, key[~plain], value[~plain], diff[~plain])
    elif len(key) > FEW and are_integers(key) and (bare or are_integers(value)):
        ctx.send([Rows(key, value, diff)] if len(key) else [])
    else:
        ctx.send(list(zip(values.records(key, value), diff.tolist(), strict=True)))


def formed(changes: list[tuple[Any, int]]) -> Batch:
    """Consolidated changes in the form of `send_many`: columns if many and integers.

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


def added_up(changes: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """Changes consolidated by record; unchanged if a record cannot be hashed."""
    if len(changes) < 2:
        return [change for change in changes if change[1]]
    sums: dict[Any, int] = {}
    try:
        if are_themselves([record for record, _ in changes]):
            for record, by in changes:
                sums[record] = sums.get(record, 0) + by
            return [(record, by) for record, by in sums.items() if by]
        named: dict[Any, Any] = {}
        for record, by in changes:
            name = identity(record)
            named.setdefault(name, record)
            sums[name] = sums.get(name, 0) + by
    except TypeError:
        return changes
    return [(named[name], by) for name, by in sums.items() if by]


_COLLECT = 4096
"""Least size of a store of values at which unnamed values are dropped.

The store must also have twice the size that it had after the last time.
"""

STAYS = "is of a collection, which keeps values by codes of its own worker, and cannot change workers yet"
"""Reason against another number of workers."""


class KeyedOperator(Operator):
    """Operator with traces, a store of their values, and keys pending at later times."""

    repeats_over = "time"
    stays = STAYS

    traces: tuple[Trace | SharedTrace, ...]
    transient: Collection[str] = ("_collect",)
    shared: Sequence[SharedTrace] = ()
    """Shared traces of arrangements read by the operator."""

    def __init__(self) -> None:
        self.values = Values()
        self.pending = Pending()
        self._collect = _COLLECT

    def trace(self, reading: TraceReading | None) -> Trace | SharedTrace:
        """New trace, or a view of a shared one."""
        return Trace() if reading is None else SharedTrace(reading, self.values)

    @property
    def busy(self) -> bool:
        """True while a time is in progress, when codes may be held outside of the traces."""
        return False

    def kept(self, *inputs: InputBuffer) -> Parts:
        """State of the operator itself, without shared traces."""
        self.shared = [each for each in self.traces if isinstance(each, SharedTrace)]
        own = [each for each in self.traces if isinstance(each, Trace)]
        return Parts(*(each.state for each in inputs), self.values, *own, self.pending)

    def read(self, operators: Sequence[Operator]) -> None:
        for shared, operator in zip(self.shared, operators, strict=True):
            assert isinstance(operator, Arrange)
            shared.attach(operator.arrangement)

    def on_watermark(self, frontier: Frontier) -> None:
        if self.busy:
            return
        super().on_watermark(frontier)
        for shared in self.shared:
            shared.compact(frontier)
        if len(self.values) >= self._collect:
            self.values.forget_others(joined([each.named() for each in (*self.traces, self.pending)]))
            self._collect = max(_COLLECT, 2 * len(self.values))

    def later(self, ctx: Context, found: dict[Time, set[int]]) -> None:
        for due, keys in found.items():
            self.pending.add(ctx.time, due, keys)
            ctx.notify_at(due)

    def later_many(self, ctx: Context, time: Time, keys: I64, history: History, rows: npt.NDArray[np.bool_]) -> None:
        """Schedule keys of a history at the least upper bounds of their times and `time`."""
        if rows.any():
            for due, which in history.meetings(time, rows):
                self.pending.add(time, due, keys[which])
                ctx.notify_at(due)


_MANY = 16
"""Limit of later times tested for work by `Reduce`; beyond it, all count."""


class Reduce(KeyedOperator):
    """Results of a `Reducer` for each key, maintained incrementally."""

    def __init__(self, reducer: Reducer, reading: TraceReading | None = None) -> None:
        super().__init__()
        self.reducer = reducer
        self._in, self._out = self.trace(reading), Trace()
        self.traces = (self._in, self._out)
        self._input = InputBuffer(self.values)
        self.state = self.kept(self._input)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        assert isinstance(batch, list)
        self._input.state.add(time, batch)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        for each in self.shared:
            each.time = time
        changes, columns, count = self._input.take(time)
        pended = self.pending.at(time)
        linear = self.reducer if isinstance(self.reducer, Linear) else None
        if count + len(pended) <= FEW:
            few = self._input.few(changes, columns, time)
            self._few(ctx, time, few if linear is None else self._weighed(linear, few, time), pended.tolist())
        else:
            many = self._input.many(changes, columns, time)
            self._many(ctx, time, many if linear is None else self._weighed_many(linear, many, time), pended)

    def _weighed(self, reducer: Linear, sums: Few, time: Time) -> Few:
        """Weights of changes; forms without a value count each spelling of a key."""
        values, found = self.values, Few()
        for (key, value), diff in sums.items():
            known = None if value == NOTHING else values.value(value)
            if type(known) is Form:
                shown = key, values.code(Form(known.key, None, True), time)
                found[shown] = found.get(shown, 0) + diff
                known = known.value
                value = NOTHING if known is None else values.code(known, time)
            weights = reducer.weigh(known)
            for place, weight in ({COUNTED: 1, value: 1} if weights is None else weights).items():
                found[key, place] = found.get((key, place), 0) + weight * diff
        return {place: weight for place, weight in found.items() if weight}

    def _weighed_many(self, reducer: Linear, sums: Sums, time: Time) -> Sums:
        key, value, diff = sums
        if self.values.are_plain(value) and (reducer.on_codes or are_integers(value)):
            parts = reducer.weigh_many(value, diff)
            if parts is not None:
                return summed_rows([Rows(key[rows], constant(place, len(key[rows])), by) for rows, place, by in parts])
        few = dict(zip(zip(key.tolist(), value.tolist(), strict=True), diff.tolist(), strict=True))
        weighed = self._weighed(reducer, few, time)
        columns = np.array([(*place, weight) for place, weight in weighed.items()], np.int64).reshape(-1, 3)
        return summed_rows([Rows(columns[:, 0], columns[:, 1], columns[:, 2])])

    def _few(self, ctx: Context, time: Time, sums: Few, pended: list[int]) -> None:
        for (key, value), diff in sums.items():
            self._in.add_one(key, value, time, diff)
        later: dict[Time, set[int]] = {}
        out: Few = {}
        in_order = self.reducer.greatest is not None and not pended and self._in.all_until(time)
        for key in dict.fromkeys([*(key for key, _ in sums), *pended]):
            if in_order and self._in_order(key, out):
                continue
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
            self.later(ctx, later)
        send_few(ctx, self.values, out)

    def _in_order(self, key: int, out: Few) -> bool:
        """Add a key's changed output from its first values; False if all must be read."""
        assert self.reducer.greatest is not None
        ranked = self._in.ranked(key, self.reducer.greatest)
        if ranked is None:
            return False
        new = dict(self.reducer.first(self._positive(key, ranked)))
        for value, _, times in self._out.changes(key):
            new[value] = new.get(value, 0) - times
        out |= {(key, value): by for value, by in new.items() if by}
        return True

    def _positive(self, key: int, ranked: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        for value, times in ranked:
            if times < 0:
                self._refuse(key, value, times)
            yield value, times

    def _difference(
        self, key: int, have: list[Change], gave: list[Change], time: Time, early: bool = False
    ) -> dict[int, int] | None:
        """Output of a key at `time`, less the output sent before.

        None if `early` and the group is visibly incomplete.
        """
        group: dict[int, int] = {}
        for value, at, diff in have:
            if at == time or leq(at, time):
                group[value] = group.get(value, 0) + diff
        if early and self._is_lacking(group):
            return None
        new = self._output(key, group, time)
        for value, at, diff in gave:
            if at == time or leq(at, time):
                new[value] = new.get(value, 0) - diff
        return {value: by for value, by in new.items() if by}

    def _is_lacking(self, group: dict[int, int]) -> bool:
        """True if a group is visibly incomplete, with a negative count."""
        if isinstance(self.reducer, Linear):
            return group.get(COUNTED, 0) < 0
        return min(group.values(), default=0) < 0

    def _dues(self, key: int, have: list[Change], gave: list[Change], time: Time) -> Collection[Time]:
        """Later times with a known change of a key's output.

        Whatever comes to the key later looks at all its times again, and so does the work at a due time. But what is known of
        times that a rollback could part from this one counts for nothing, and a function of the user's is given nothing that
        may not be all: then it is all times at which something meets.
        """
        times = {at for _, at, _ in have if not leq(at, time)}
        times.update(at for _, at, _ in gave if not leq(at, time))
        if not times:
            return ()
        if max(times) > time or not self.reducer.early:
            return {join(at, time) for at in times}
        closed = {time}
        for at in times:
            closed |= {join(at, each) for each in closed}
            if len(closed) > _MANY:
                return {join(at, time) for at in times}
        closed.discard(time)
        return [due for due in closed if self._difference(key, have, gave, due, early=True) != {}]

    def _output(self, key: int, group: dict[int, int], time: Time) -> dict[int, int]:
        """Output of one key, in codes."""
        reducer, values = self.reducer, self.values
        entries = [(value, times) for value, times in group.items() if times]
        if not entries:
            return {}
        if isinstance(reducer, Linear):
            return self._total(reducer, key, entries, time)
        if values.odd and not values.odd.isdisjoint(group):
            return self._output_of_forms(key, entries, time)
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

    def _total(self, reducer: Linear, key: int, entries: list[tuple[int, int]], time: Time) -> dict[int, int]:
        """Output of one key of a linear reducer, from the weights of its values."""
        values = self.values
        weights = {place: weight for place, weight in entries if place >= LEAST}
        others = [(values.value(code), times) for code, times in entries if code != NOTHING and code < LEAST]
        forms = [(each.key, times) for each, times in others if type(each) is Form]
        others = by_content([each for each in others if type(each[0]) is not Form])
        if NOTHING in (code for code, _ in entries):
            others.append((None, 1))
        shown, count = values.value(key), weights.get(COUNTED, 0)
        if forms and sum(times for _, times in forms) == count:
            shown = min((form for form, times in forms if times > 0), key=rank, default=shown)
        if count < 0 or (
            not count and (reducer.total({COUNTED: 0} | weights, others) if len(entries) > len(forms) else 0)
        ):
            raise ValueError(
                f"of the records of the key {shown!r:.200} more were removed than were ever inserted: {count} are left; remove "
                "only what was inserted, or use threshold(), which takes any number"
            )
        return {values.place((shown, reducer.total(weights, others)), time)[1]: 1} if count else {}

    def _output_of_forms(self, key: int, entries: list[tuple[int, int]], time: Time) -> dict[int, int]:
        """Output of a key with some values not plain, or with several spellings.

        Equal values are one. Of what is there of them, the one that stands for them is the first in an order of its own.
        """
        values, reducer = self.values, self.reducer
        forms: dict[Any, list[tuple[Form, int, int]]] = {}
        for code, times in entries:
            form = values.value(code) if code in values.odd else None
            if type(form) is not Form:
                form = Form(values.value(key), None if code == NOTHING else values.value(code), code == NOTHING)
            forms.setdefault((form.bare, identity(plain(form.value))), []).append((form, code, times))
        there: list[tuple[Form, int, int]] = []
        for same in forms.values():
            total = sum(times for _, _, times in same)
            if total:
                chosen = min([each for each in same if each[2] * total > 0], key=lambda each: rank(each[0].record))
                there.append((chosen[0], chosen[1], total))
                if reducer.positive and total < 0:
                    self._refuse(key, chosen[1], total)
        if not there:
            return {}
        sums: dict[int, int] = {}
        if reducer.on_codes:
            found = reducer.one(key, [(code, times) for _, code, times in there])
        else:
            shown = min((form.key for form, _, _ in there), key=rank)
            made = reducer.one(shown, [(form.value, times) for form, _, times in there])
            found = [(values.place((shown, value), time)[1], times) for value, times in made]
        for value, times in found:
            sums[value] = sums.get(value, 0) + times
        return sums

    def _refuse(self, key: int, value: int, times: int) -> None:
        record = self.values.record(key, value)
        raise ValueError(
            f"the record {record!r:.200} is there {times} times: more of it was removed than was ever inserted; remove only "
            "what was inserted, or use threshold(), which takes any number"
        )

    def _many(self, ctx: Context, time: Time, sums: Sums, pended: I64) -> None:
        key, value, diff = sums
        self._in.add(key, value, time, diff)
        keys, starts = groups(key)
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
            and (self.reducer.on_codes or are_integers(value))
            and self.values.are_plain(value)
            and self.values.are_plain(gave[1])
        ):
            # Nothing can be due later, and nothing has gone: what was given before may tell what is to be given now.
            made = self.reducer.grown(gave, (np.repeat(np.arange(len(keys)), starts[1:] - starts[:-1]), value, diff))
        if made is None and not len(pended) and self.reducer.greatest is not None and len(keys) * WIDE < len(self._in):
            made = self._many_in_order(keys, time)
        if made is None:
            history = self._in.history(keys)
            until = history.until(time)
            self.later_many(ctx, time, keys, history, ~until)
            made = self._outputs(keys, *self._as_of(history, until), time)
        (of, value), diff = summed(
            [joined([made[0], gave[0]]), joined([made[1], gave[1]])], joined([made[2], -gave[2]])
        )
        key = keys[of]
        self._out.add(key, value, time, diff)
        send_many(ctx, self.values, key, value, diff)

    def _many_in_order(self, keys: I64, time: Time) -> Sums | None:
        """Output of keys from their first values; None if one must be read as a whole."""
        assert self.reducer.greatest is not None
        if not self._in.all_until(time):
            return None
        found: list[tuple[int, int, int]] = []
        for number, key in enumerate(keys.tolist()):
            ranked = self._in.ranked(key, self.reducer.greatest)
            if ranked is None:
                return None
            found += [(number, *each) for each in self.reducer.first(self._positive(key, ranked))]
        columns = np.array(found, np.int64).reshape(-1, 3)
        return columns[:, 0], columns[:, 1], columns[:, 2]

    @staticmethod
    def _as_of(history: History, until: npt.NDArray[np.bool_]) -> Sums:
        if until.all():
            (of, value), diff = summed([history.key, history.value], history.diff)
        else:
            (of, value), diff = summed([history.key[until], history.value[until]], history.diff[until])
        return of, value, diff

    def _outputs(self, keys: I64, of: I64, value: I64, times: I64, time: Time) -> Sums:
        """Output of many keys: number of the key, code, multiplicity."""
        reducer = self.reducer
        are_plain = self.values.are_plain(value)
        if isinstance(reducer, Linear):
            # Columns do for keys of which there are numbers alone, and for which a count says that there is something.
            counts = times[value == COUNTED]
            if (
                not are_integers(value)
                or len(counts) < int((np.diff(of) != 0).sum()) + bool(len(of))
                or counts.min(initial=1) <= 0
            ):
                are_plain = False
        elif reducer.positive and are_plain and len(times) and times.min() < 0:
            wrong = int(np.argmin(times))
            self._refuse(int(keys[of[wrong]]), int(value[wrong]), int(times[wrong]))
        if not len(of):
            return of, value, times
        if reducer.columnar and are_plain and (reducer.on_codes or are_integers(value)):
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


class Arrange(KeyedOperator):
    """Operator for a shared trace (`arrangement`), with its changes as output."""

    def __init__(self) -> None:
        super().__init__()
        self.arrangement = Arrangement(self.values)
        self.traces = (self.arrangement.trace,)
        self._input = InputBuffer(self.values)
        self.state = self.kept(self._input)

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Batch) -> None:
        assert isinstance(batch, list)
        self._input.state.add(time, batch)
        ctx.notify_at()

    def on_notify(self, ctx: Context, time: Time) -> None:
        trace = self.arrangement.trace
        changes, columns, count = self._input.take(time)
        if count <= FEW:
            few = self._input.few(changes, columns, time)
            for (key, value), diff in few.items():
                trace.add_one(key, value, time, diff)
            send_few(ctx, self.values, few)
        else:
            keys, values, diffs = self._input.many(changes, columns, time)
            trace.add(keys, values, time, diffs)
            send_many(ctx, self.values, keys, values, diffs)

    def on_watermark(self, frontier: Frontier) -> None:
        unread = self.arrangement.unread(frontier)
        if unread is not None:
            super().on_watermark(unread)


class Consolidate(Operator):
    """Consolidation of each time's changes; in a loop, also the limit of iterations.

    A time of the iteration `limit` at which anything is left is an error that names the loop, and records that still change.
    """

    repeats_over = "time"
    stays = STAYS

    def __init__(self, loop: str | None = None, limit: int | None = None) -> None:
        self._values = Values()
        self._input = InputBuffer(self._values)
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
            send_few(ctx, self._values, self._input.few(changes, columns, time))
        else:
            send_many(ctx, self._values, *self._input.many(changes, columns, time))
        self._values.restore(())  # codes are of use within the event only
        if self._limit is not None and time[-1] >= self._limit and ctx.out:
            changing = [record for _, _, batch in ctx.out for record, _ in as_pairs(batch[:1])[:8]]
            raise OperatorError(
                f"the loop {self._loop!r} ({ctx.site}) still changes after {self._limit} iterations of epoch "
                f"{visible(time)[0]}: it may "
                f"never end; among what changes: {', '.join(f'{shown(record, 80)}' for record in dict.fromkeys(changing))}. "
                "Mend its body, so that what goes round comes to rest, or give it a higher limit="
            )
