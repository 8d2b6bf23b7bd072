"""Traces: a collection's changes in immutable sorted runs, with geometric merges.

A change is (key, value, time, difference); times are kept as numbers of a short list of times that each run has. What came last
is kept in columns that are not sorted, and by key in a dictionary, until it is enough for a run. Neighbouring runs merge while
the older is less than twice as large as the newer: n changes lie in O(log n) runs, and each is copied O(log n) times in all.
Large ones merge a part at a time, as more comes, so that no event pays for all of it. (O'Neil et al., *The Log-Structured
Merge-Tree*, 1996.)

*Compaction*: nobody goes back below a frontier f, so all that is still asked for lies at times outside f. Where all of these
have a coordinate of at least m, a smaller one cannot be told from m - 1, and becomes it: changes of many epochs then meet at
one time, and those that cancel go. The new time lies in f as the old one does, so what storage has and what it has not are as
before. (After McSherry et al., *Differential dataflow*, CIDR 2013, whose representatives lie outside f.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from libraries.differential.rows import I64, LEAST, constant, distinct, groups, joined, summed
from timely.data.routing import shards_of
from timely.state.interface import WHOLE, Run, StateSize
from timely.state.interface import Rows as RowCount
from timely.time import Frontier, Time, join, leq

SHARD = "shard()"
"""Column of a saved run with the shard of each row's key (uint16)."""

_RECENT = 8192
"""Limit of recent changes outside of runs."""

_SOME = 4096
"""Limit of changes added at once to the recent ones; more are a run of their own."""

_SINGLE = 256
"""Limit of recent columnar changes entered by key; more become a run."""

_AT_ONCE = 1 << 16
"""Limit of rows of two runs merged at once; larger ones merge in parts."""

_SPEED = 16
"""Rows merged for each row added: more than the levels that it passes."""

_FEW = 6
"""Limit of changes of a key returned without consolidation."""

_LONG = 16
"""Least number of a key's recent changes that are consolidated.

They must also be twice as many as after the last consolidation.
"""

WIDE = 256
"""Limit of rows of a key read as a whole; of larger keys values are read lazily."""

_GAPS = 4
"""Most places for each row of an index by distance from the least key: 16 bytes."""

_LOOK = 32
"""Rows of a key read at once, by value."""

Change = tuple[int, Time, int]
"""Change of one key: value, time, difference."""


class _Sorted:
    """Immutable run: columns sorted by key, value and time."""

    def __init__(self, key: I64, value: I64, at: I64, diff: I64, times: Sequence[Time]) -> None:
        self.key = key
        self.value = value
        self.at = at
        self.diff = diff
        self.times = tuple(times)

    def __len__(self) -> int:
        return len(self.key)

    @cached_property
    def _index(self) -> tuple[int, I64 | None, npt.NDArray[Any]]:
        """Least key, distinct keys, and the start of each, with the end behind the last.

        Where keys have few gaps the places are those of all numbers from the least key on, and there is no list of keys.
        """
        low, span = int(self.key[0]), int(self.key[-1]) - int(self.key[0]) + 1
        if span <= _GAPS * len(self.key):
            places = np.zeros(span + 1, np.int32 if len(self.key) < 1 << 31 else np.int64)
            np.cumsum(np.bincount(self.key - low), out=places[1:])
            return low, None, places
        return low, *groups(self.key)

    def find(self, wanted: I64) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Start and end of the rows of each wanted key."""
        low, keys, starts = self._index
        at = wanted - low if keys is None else keys.searchsorted(wanted)
        last = len(starts) - 2
        within = np.clip(at, 0, last)
        begin = starts[within].astype(np.intp, copy=False)
        there = within == at if keys is None else keys[within] == wanted
        return begin, np.where(there, starts[within + 1], begin)

    def rows_of(self, key: int) -> tuple[int, int]:
        """Start and end of the rows of one key."""
        low, keys, starts = self._index
        at = key - low if keys is None else int(keys.searchsorted(key))
        if not 0 <= at < len(starts) - 1 or (keys is not None and keys[at] != key):
            return 0, 0
        return int(starts[at]), int(starts[at + 1])

    def ranked(self, key: int, greatest: bool, bound: int | None) -> Iterator[tuple[int, int]]:
        """Values of one key with differences, in rising or falling order, up to `bound`."""
        start, end = self.rows_of(key)
        if bound is not None:
            values = self.value[start:end]
            if greatest:
                end = start + int(values.searchsorted(bound, "right"))
            else:
                start += int(values.searchsorted(bound))
        while start < end:
            rows = slice(max(start, end - _LOOK), end) if greatest else slice(start, min(start + _LOOK, end))
            found = list(zip(self.value[rows].tolist(), self.diff[rows].tolist(), strict=True))
            yield from reversed(found) if greatest else found
            start, end = (start, rows.start) if greatest else (rows.stop, end)

    def of(self, key: int) -> list[Change]:
        """Changes of one key."""
        start, end = self.rows_of(key)
        if start == end:
            return []
        times = self.times
        if end - start == 1:
            return [(int(self.value[start]), times[self.at[start]], int(self.diff[start]))]
        rows = slice(start, end)
        numbers = map(times.__getitem__, self.at[rows].tolist())
        return list(zip(self.value[rows].tolist(), numbers, self.diff[rows].tolist(), strict=True))


class _Merging:
    """Merge of two neighbouring runs in progress: by ranges of keys, part by part."""

    def __init__(self, place: int, older: _Sorted, newer: _Sorted, least: Time | None) -> None:
        self.place = place
        """Number of the older run."""
        self.merged: _Sorted | None = None
        self._runs = (older, newer)
        self._done = [0, 0]
        self._parts: list[tuple[I64, I64, I64, I64]] = []
        numbers: dict[Time, int] = {}
        self._numbers = [
            np.array([numbers.setdefault(_no_less(time, least), len(numbers)) for time in run.times], np.int64)
            for run in self._runs
        ]
        self._times = tuple(numbers)

    def advance(self, rows: int) -> int:
        """Merge about `rows` more rows, by whole keys; the number merged."""
        ends = [len(run) for run in self._runs]
        if sum(ends) - sum(self._done) > rows:
            large = int(ends[1] - self._done[1] > ends[0] - self._done[0])
            run, at = self._runs[large], self._done[large]
            last = run.key[min(at + max(1, rows // 2), ends[large]) - 1]
            ends = [int(run.key.searchsorted(last, "right")) for run in self._runs]
        parts = [slice(done, end) for done, end in zip(self._done, ends, strict=True)]
        columns = [
            np.concatenate([run.key[part] for run, part in zip(self._runs, parts, strict=True)]),
            np.concatenate([run.value[part] for run, part in zip(self._runs, parts, strict=True)]),
            np.concatenate(
                [new[run.at[part]] for run, part, new in zip(self._runs, parts, self._numbers, strict=True)]
            ),
        ]
        diff = np.concatenate([run.diff[part] for run, part in zip(self._runs, parts, strict=True)])
        (key, value, number), diff = summed(columns, diff, runs=True)
        self._parts.append((key, value, number, diff))
        count = sum(ends) - sum(self._done)
        self._done = ends
        if all(end == len(run) for end, run in zip(ends, self._runs, strict=True)):
            key, value, number, diff = (joined([part[i] for part in self._parts]) for i in range(4))
            self.merged = _Sorted(key, value, number, diff, self._times)
        return count


@dataclass(frozen=True, slots=True)
class History:
    """Changes of some keys, unordered.

    `key`: number of the key; `at`: number of the time in `times`.
    """

    key: npt.NDArray[np.intp]
    value: I64
    at: I64
    diff: I64
    times: list[Time]

    def until(self, time: Time) -> npt.NDArray[np.bool_]:
        """Mask of changes at or before `time`."""
        within = np.array([leq(each, time) for each in self.times], np.bool_)
        return np.ones(len(self.at), np.bool_) if within.all() else within[self.at]

    def before(self, time: Time) -> npt.NDArray[np.bool_]:
        """Mask of changes strictly before `time`."""
        within = np.array([leq(each, time) and each != time for each in self.times], np.bool_)
        return np.ones(len(self.at), np.bool_) if within.all() else within[self.at]

    def only(self, rows: npt.NDArray[np.bool_]) -> History:
        """Changes selected by a mask."""
        return History(self.key[rows], self.value[rows], self.at[rows], self.diff[rows], self.times)

    def earlier(self, time: Time) -> list[int]:
        """Numbers of times strictly before `time` among those of the changes."""
        there = np.flatnonzero(np.bincount(self.at, minlength=len(self.times)))
        return [number for number in there.tolist() if self.times[number] != time and leq(self.times[number], time)]

    def meetings(self, time: Time, rows: npt.NDArray[np.bool_]) -> Iterator[tuple[Time, npt.NDArray[np.intp]]]:
        """Least upper bounds of `time` and the times of changes, with the keys of each."""
        at, key = self.at[rows], self.key[rows]
        dues: dict[Time, int] = {}
        number = np.zeros(len(self.times), np.int64)
        for each in np.flatnonzero(np.bincount(at, minlength=len(self.times))).tolist():
            number[each] = dues.setdefault(join(self.times[each], time), len(dues))
        width = int(key.max(initial=0)) + 1
        pairs = distinct(number[at] * width + key)
        ends = pairs.searchsorted(np.arange(1, len(dues) + 1) * width)
        for due, which in zip(dues, np.split(pairs, ends[:-1]), strict=True):
            yield due, which % width


@dataclass(slots=True)
class _Bound:
    """Bound on the extreme value of a key with a non-zero sum: nothing is beyond it."""

    value: int
    greatest: bool

    def reach(self, value: int) -> None:
        """Extend the bound to `value`."""
        self.value = max(self.value, value) if self.greatest else min(self.value, value)


class Trace:
    """Changes of one collection by key; a `State`.

    Codes are those of the operator's values.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._runs: list[_Sorted] = []
        self._merging: _Merging | None = None
        self._least: Time | None = None
        self._known: dict[Time, Time] = {}
        self._latest: Time | None = None
        self._bounds: dict[int, _Bound] = {}
        self._forget_recent()

    def _forget_recent(self) -> None:
        # What came last, twice: in columns, and by key; each is brought up to date when it is read.
        self._columns: list[tuple[I64, I64, I64, I64]] = []
        self._times: dict[Time, int] = {}
        self._ones: list[tuple[int, int, int, int]] = []
        self._by_key: dict[int, list[Change]] = {}
        self._not_by_key: list[tuple[I64, I64, Time, I64]] = []
        self._long: dict[int, int] = {}
        self._count = 0

    # Writing

    def add(self, key: I64, value: I64, time: Time, diff: I64) -> None:
        """Add changes at `time`, sorted by key and value, consolidated."""
        count = len(key)
        self._met(time)
        if self._bounds and count:
            self._widen(key, value)
        if count > _SOME:
            self._push(_Sorted(key, value, constant(0, count), diff, (time,)))
        elif count:
            at = constant(self._times.setdefault(time, len(self._times)), count)
            self._columns.append((key, value, at, diff))
            self._not_by_key.append((key, value, time, diff))
            self._more(count)

    def add_one(self, key: int, value: int, time: Time, diff: int) -> None:
        """Add one change at `time`."""
        self._met(time)
        if self._bounds and (bound := self._bounds.get(key)) is not None:
            bound.reach(value)
        self._ones.append((key, value, self._times.setdefault(time, len(self._times)), diff))
        self._remember(key, (value, time, diff))
        self._more(1)

    def _met(self, time: Time) -> None:
        """Raise the least upper bound of all times seen to include `time`."""
        latest = self._latest
        if latest is not time:
            self._latest = time if latest is None else join(latest, time)

    def _widen(self, key: I64, value: I64) -> None:
        """Extend the bounds by added changes."""
        if len(self._bounds) > _SINGLE:
            self._bounds = {}
        for one, bound in self._bounds.items():
            start, end = (int(key.searchsorted(one, side)) for side in ("left", "right"))
            if start < end:  # in order of values, too
                bound.reach(int(value[start]))
                bound.reach(int(value[end - 1]))

    def _more(self, count: int) -> None:
        self._count += count
        if self._count >= _RECENT:
            self._settle()

    def _remember(self, key: int, change: Change) -> None:
        changes = self._by_key.get(key)
        if changes is None:
            self._by_key[key] = [change]
            return
        changes.append(change)
        if len(changes) > self._long.get(key, _LONG):
            changes[:] = self._added_up(changes)
            self._long[key] = max(_LONG, 2 * len(changes))

    def _added_up(self, changes: list[Change]) -> list[Change]:
        """Changes consolidated at their compacted times."""
        known = self._known
        sums: dict[tuple[int, Time], int] = {}
        for value, time, diff in changes:
            at = known.get(time)
            if at is None:
                at = known[time] = _no_less(time, self._least)
            place = (value, at)
            sums[place] = sums.get(place, 0) + diff
        return [(value, time, diff) for (value, time), diff in sums.items() if diff]

    def _last(self) -> tuple[I64, I64, I64, I64]:
        """Recent changes in columns: key, value, number of the time, difference."""
        if self._ones:
            ones = np.array(self._ones, np.int64)
            self._columns.append((ones[:, 0], ones[:, 1], ones[:, 2], ones[:, 3]))
            self._ones = []
        if len(self._columns) != 1:
            key, value, at, diff = (joined([each[i] for each in self._columns]) for i in range(4))
            self._columns = [(key, value, at, diff)]
        return self._columns[0]

    def _settle(self) -> None:
        """Turn the recent changes into a run."""
        if self._count:
            key, value, at, diff = self._last()
            times = list(self._times)
            self._forget_recent()
            self._push(self._sum([key, value, at], diff, times))

    def _push(self, run: _Sorted) -> None:
        if len(run):
            self._runs.append(run)
        self._merge(_SPEED * len(run))

    def _merge(self, rows: int) -> None:
        """Merge neighbouring runs: small ones at once, about `rows` rows of large ones."""
        runs = self._runs
        while True:
            merging = self._merging
            if merging is not None and rows > 0:
                rows -= merging.advance(rows)
                if merging.merged is not None:
                    runs[merging.place : merging.place + 2] = [merging.merged] if len(merging.merged) else []
                    self._merging = merging = None
            first = 0 if merging is None else merging.place + 2
            place = len(runs) - 2
            while place >= first and len(runs[place]) >= 2 * len(runs[place + 1]):
                place -= 1
            if place < first:
                return
            both = _Merging(place, runs[place], runs[place + 1], self._least)
            if len(runs[place]) + len(runs[place + 1]) <= _AT_ONCE:
                both.advance(_AT_ONCE)
                assert both.merged is not None
                runs[place : place + 2] = [both.merged] if len(both.merged) else []
            elif merging is None and rows > 0:
                self._merging = both
            else:
                return

    def _sum(self, columns: list[I64], diff: I64, times: Sequence[Time]) -> _Sorted:
        numbers: dict[Time, int] = {}
        renumbered = np.array(
            [numbers.setdefault(_no_less(time, self._least), len(numbers)) for time in times], np.int64
        )
        columns[2] = renumbered[columns[2]]
        (key, value, at), diff = summed(columns, diff)
        return _Sorted(key, value, at, diff, tuple(numbers))

    # Reading

    def history(self, keys: I64, values: I64 | None = None) -> History:
        """Changes of the sorted distinct `keys`, or of pairs of `keys` and `values`.

        With `values`, a change has the number of its pair in place of that of its key.
        """
        found: list[tuple[npt.NDArray[np.intp], I64, I64, I64]] = []
        times: list[Time] = []
        for run in self._runs:
            begin, end = run.find(keys)
            if values is not None:
                begin, end = (_bisected(run.value, begin, end, values, right) for right in (False, True))
            counts = end - begin
            total = int(counts.sum())
            if not total:
                continue
            of = np.repeat(np.arange(len(keys)), counts)
            rows = np.arange(total) + np.repeat(begin - (np.cumsum(counts) - counts), counts)
            at = constant(len(times), total) if len(run.times) == 1 else run.at[rows] + len(times)
            found.append((of, run.value[rows], at, run.diff[rows]))
            times += run.times
        if self._count and len(keys):
            key, value, at, diff = self._last()
            of = keys.searchsorted(key)
            if values is not None:
                of = _bisected(values, of, keys.searchsorted(key, "right"), value, False)
            np.minimum(of, len(keys) - 1, out=of)
            rows = np.flatnonzero((keys[of] == key) if values is None else (keys[of] == key) & (values[of] == value))
            found.append((of[rows], value[rows], at[rows] + len(times), diff[rows]))
            times += self._times
        of, value, at, diff = (joined([each[i] for each in found]) for i in range(4))
        return History(of, value, at, diff, times)

    def changes(self, key: int) -> list[Change]:
        """Changes of one key."""
        self._sort_by_key()
        found = list(self._by_key.get(key, ()))
        for run in self._runs:
            found += run.of(key)
        return found if len(found) <= _FEW else self._added_up(found)

    def _sort_by_key(self) -> None:
        """Enter recent changes, held in columns, into the dictionary by key."""
        if not self._not_by_key:
            return
        if sum(len(each[0]) for each in self._not_by_key) > _SINGLE:
            self._settle()
        for keys, values, time, diffs in self._not_by_key:
            for one, value, diff in zip(keys.tolist(), values.tolist(), diffs.tolist(), strict=True):
                self._remember(one, (value, time, diff))
        self._not_by_key = []

    def named(self) -> I64:
        """Codes of stored values in the trace."""
        columns = [column for run in self._runs for column in (run.key, run.value)]
        if self._count:
            columns += self._last()[:2]
        return distinct(joined([column[column < LEAST] for column in columns]))

    def all_until(self, time: Time) -> bool:
        """True if every change is at `time` or before it."""
        return self._latest is None or leq(self._latest, time)

    def ranked(self, key: int, greatest: bool) -> Iterator[tuple[int, int]] | None:
        """Integer values of a large key with multiplicities, in order, ignoring times.

        No change may be at a time later than the reader's. None for a key with few values, or with some that are no
        integers. The first value found is remembered: no value before it, and before all that were added since, is left.
        """
        spans = [run.rows_of(key) for run in self._runs]
        if sum(end - start for start, end in spans) <= WIDE:
            return None
        if any(start < end and run.value[start] < LEAST for run, (start, end) in zip(self._runs, spans, strict=True)):
            return None
        self._sort_by_key()
        recent: dict[int, int] = {}
        for value, _, diff in self._by_key.get(key, ()):
            recent[value] = recent.get(value, 0) + diff
        if min(recent, default=LEAST) < LEAST:
            return None
        return self._first(key, greatest, recent)

    def _first(self, key: int, greatest: bool, recent: dict[int, int]) -> Iterator[tuple[int, int]]:
        bound = self._bounds.pop(key, None)
        beyond = bound.value if bound is not None and bound.greatest == greatest else None
        latest = sorted(recent.items(), reverse=greatest)
        if beyond is not None:
            latest = [each for each in latest if each[0] == beyond or (each[0] < beyond) == greatest]
        each = [iter(latest), *(run.ranked(key, greatest, beyond) for run in self._runs)]
        for value, same in groupby(merge(*each, key=itemgetter(0), reverse=greatest), itemgetter(0)):
            times = sum(diff for _, diff in same)
            if times:
                if key not in self._bounds:
                    self._bounds[key] = _Bound(value, greatest)
                yield value, times

    def __len__(self) -> int:
        return self._count + sum(map(len, self._runs))

    # The state

    def snapshot(self, upto: Frontier, after: Frontier) -> list[Run]:
        """Changes at times in `upto` but not in `after`, in one run."""
        return list(self.pieces(upto, after, lambda: WHOLE))

    def pieces(self, upto: Frontier, after: Frontier, rows: RowCount) -> Iterator[Run]:
        """Runs of `snapshot` with about `rows()` rows each.

        Columns: the shard, key, value, difference and coordinates of each change.
        """
        self._settle()
        for run in list(self._runs):
            wanted = [time in upto and time not in after for time in run.times]
            if not any(wanted):
                continue
            last = max(time for time, want in zip(run.times, wanted, strict=True) if want)
            lanes = np.array(run.times, np.int64)
            chosen = np.flatnonzero(np.array(wanted)[run.at])
            start = 0
            while start < len(chosen):
                piece = chosen[start : start + rows()]
                start += len(piece)
                yield Run(last, self._table(run, piece, lanes))

    @staticmethod
    def _table(run: _Sorted, rows: npt.NDArray[np.intp], lanes: I64) -> pa.Table:
        key, at = run.key[rows], run.at[rows]
        columns = {SHARD: shards_of(spread(key)), "key": key, "value": run.value[rows], "diff": run.diff[rows]}
        columns |= {f"time{lane}": lanes[at, lane] for lane in range(lanes.shape[1])}
        return pa.table(columns)

    def restore(self, runs: Iterable[Run]) -> None:
        """Replace the state by the contents of `runs`."""
        self._clear()
        tables = [run.batch for run in runs]
        if not tables:
            return
        whole = pa.concat_tables(tables)
        names = [name for name in whole.column_names if name.startswith("time")]
        lanes = [whole[name].to_numpy() for name in names]
        times, at = np.unique(np.stack(lanes, axis=1), axis=0, return_inverse=True)
        for time in times.tolist():
            self._met(tuple(time))
        columns = [whole["key"].to_numpy(), whole["value"].to_numpy(), at.reshape(-1).astype(np.int64)]
        self._push(self._sum(columns, whole["diff"].to_numpy(), list(map(tuple, times.tolist()))))

    def keep(self, frontier: Frontier) -> None:
        """Drop changes at times outside `frontier`."""
        self._settle()
        kept = []
        for run in self._runs:
            inside = np.array([time in frontier for time in run.times], np.bool_)
            if not inside.all():
                rows = inside[run.at]
                run = _Sorted(run.key[rows], run.value[rows], run.at[rows], run.diff[rows], run.times)
            if len(run):
                kept.append(run)
        self._runs, self._merging = kept, None
        self._latest, self._bounds = None, {}
        for run in kept:
            for time in run.times:
                self._met(time)

    def compact(self, frontier: Frontier) -> None:
        """Allow times inside `frontier` to be merged; they are when runs merge."""
        if frontier.antichain:
            least = tuple(max(0, min(lane) - 1) for lane in zip(*frontier.antichain, strict=True))
            if least != self._least:
                self._least, self._known = least, {}

    def size(self) -> StateSize:
        """Size of the trace."""
        return StateSize(len(self), 32 * len(self), len(self._runs) + bool(self._count))


def _bisected(
    column: I64, low: npt.NDArray[np.intp], high: npt.NDArray[np.intp], wanted: I64, right: bool
) -> npt.NDArray[np.intp]:
    """Binary search of each number in its own range of a column.

    A range is sorted, from `low` to `high`. `right`: the result is behind equal numbers, not in front of them.
    """
    while (still := low < high).any():
        middle = low + high >> 1
        there = column[np.minimum(middle, len(column) - 1)]
        before = still & ((there <= wanted) if right else (there < wanted))
        low, high = np.where(before, middle + 1, low), np.where(still & ~before, middle, high)
    return low


def _no_less(time: Time, least: Time | None) -> Time:
    return time if least is None else tuple(map(max, time, least))


def spread(codes: I64) -> npt.NDArray[np.uint64]:
    """Hashes of codes for shards of saved state; routing uses the keys themselves."""
    return codes.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
