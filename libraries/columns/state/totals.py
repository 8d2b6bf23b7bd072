"""State of column aggregates: running totals per key in dense arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from libraries.columns.kernels.added import Added
from libraries.columns.kernels.grouping import union
from libraries.columns.kernels.parts import Part
from libraries.columns.kernels.totals import Result, Totals
from timely.data.kernels.columns import Numbers, whole
from timely.data.kernels.tables import Ids
from timely.data.routing import hash_columns, shards_of
from timely.data.sums.terms import assigned, stacked
from timely.state.interface import Rows, Run, Runs
from timely.state.scopes import Scopes, ScopeScan, ScopeState
from timely.time import Frontier, Time

SHARD = "shard()"
"""Column of a run with the shard of each key (uint16)."""

_UNKNOWN = np.uint16(0xFFFF)
"""Marker for an unknown shard, above all shards."""

_SPARSE = 64
"""Sort changed ids if less than one key in this many changed; else mark them."""

_BLOCK = 1 << 18
"""Number of marks scanned for one piece."""

_MERGED = 1 << 14
"""Maximum length of a run to merge: longer merges would pause everything else."""

Change = tuple[int, Ids, list[Numbers]]
"""Change of one time: (keys before, changed keys, their former parts)."""


Differs = Callable[[Mapping[Part, Numbers], Mapping[Part, Numbers]], npt.NDArray[np.bool_]]
"""Predicate for changed results, given keys' parts before and after."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Changed keys, by id, with their parts now."""

    totals: Totals
    ids: Ids
    values: list[Numbers]
    known: int = 0
    """First id of the new keys."""
    before: Sequence[Numbers] = ()
    """Parts before the change, if known."""

    def signed(self) -> tuple[Changed, npt.NDArray[np.int8]]:
        """Former totals with sign -1, new keys excepted, then present ones with +1."""
        there = np.flatnonzero(self.ids < self.known)
        values = [stacked([was[there], now]) for was, now in zip(self.before, self.values, strict=True)]
        signs = np.ones(len(there) + len(self), np.int8)
        signs[: len(there)] = -1
        return Changed(self.totals, np.concatenate([self.ids[there], self.ids]), values), signs

    def __len__(self) -> int:
        return len(self.ids)

    def frame(self, named: Sequence[Result]) -> pl.DataFrame | None:
        """Keys and results as a frame: see `Totals.frame`."""
        return self.totals.frame(self.ids, self.values, named)

    def columns(self, only: Collection[Part]) -> dict[str, pa.Array]:
        """Columns by name: the keys, and the given parts."""
        return self.totals.columns(self.ids, self.values, only)


class _Totals(ScopeState[Change]):
    def __init__(self, keys: Sequence[str], parts: Sequence[Part], expected: int) -> None:
        super().__init__()
        self.totals = Totals(keys, parts, expected)
        self.walks = 0
        """Number of unfinished walks by id: ids stay fixed meanwhile."""
        self._shards = np.zeros(0, np.uint16)
        """Cached shards by id, for slowly hashed keys; `_UNKNOWN` if not cached."""

    def add(self, time: Time, many: Sequence[Added]) -> tuple[Change, list[Numbers]]:
        """Add rows; returns the change and the changed keys' parts after it."""
        self.check_order(time)
        totals = self.totals
        known = len(totals)
        ids = [totals.ids(added.keys, added.kinds) for added in many]
        touched = union(ids, len(totals))
        if unique := len(ids) == 1 and len(touched) == len(ids[0]):
            touched = ids[0]
        before = totals.gather(touched)
        for of, added in zip(ids, many, strict=True):
            totals.add(of, added, unique)
        after = totals.gather(touched)
        change = known, touched, before
        self.note(time, change)
        return change, after

    def meet(self, time: Time, many: Sequence[list[pa.Array]]) -> tuple[Change, list[Ids]]:
        """Add keys without values; returns the change and the id of each row's key.

        The change consists of the new keys.
        """
        self.check_order(time)
        totals, known = self.totals, len(self.totals)
        rows = [totals.ids(keys, [pa.int64()] * len(totals.parts)) for keys in many]
        ids = np.arange(known, len(totals), dtype=np.intp)
        change = known, ids, totals.gather(ids)
        totals.put(ids, [np.full(len(ids), part.kind == "values", np.int64) for part in totals.parts])
        self.note(time, change)
        return change, rows

    def clear(self, time: Time, ids: Ids) -> None:
        """Remove the values of the keys `ids`, all different."""
        self.check_order(time)
        if not self.pastless:
            self.log.append((time, (len(self.totals), ids, self.totals.gather(ids))))
        self.settled = time if self.pastless else self.settled
        self.totals.clear(ids)

    def undo(self, change: Change) -> None:
        known, touched, before = change
        self.totals.put(touched, before)
        self.totals.truncate(known)
        self._shards[known:] = _UNKNOWN

    def changes(self, entries: list[tuple[Time, Change]], upto: Frontier, rows: Rows) -> Iterator[Run]:
        touched = [touched for _, (_, touched, _) in entries]
        return self._runs(_distinct(touched, len(self.totals), rows), upto, entries[-1][0])

    def whole(self, upto: Frontier, time: Time, rows: Rows) -> Iterator[Run]:
        return self._runs(_ranges(0, self._known(upto), rows), upto, time)

    def scan(self, upto: Frontier) -> ScopeScan:
        return _TotalsScan(self, self._known(upto))

    def _known(self, upto: Frontier) -> int:
        """Number of keys in `upto`."""
        later = self.later(upto)
        return later[0][1][0] if later else len(self.totals)  # the oldest says how many there were before all

    def _runs(self, pieces: Iterator[Ids], upto: Frontier, time: Time) -> Iterator[Run]:
        """One run per piece of rising ids, with the parts they had in `upto`."""
        replaced, known = _Replaced(), self._known(upto)
        seen: tuple[Time, Change] | None = None
        self.walks += 1
        try:
            for ids in pieces:
                for entry in self.later(upto, seen):
                    seen = entry
                    _, touched, before = entry[1]
                    here = (touched >= ids[0]) & (touched < known)
                    replaced.add(touched[here], [array[here] for array in before])
                values = self.totals.gather(ids)
                replaced.put(ids, values)
                yield Run(time, self._sharded(ids, self.totals.table(ids, values)))
        finally:
            self.walks -= 1

    def _sharded(self, ids: Ids, table: pa.Table) -> pa.Table:
        keys = [table[key] for key in self.totals.keys]
        if all(pa.types.is_primitive(key.type) for key in keys):
            shards = shards_of(hash_columns(keys))
        else:
            if len(self._shards) <= ids[-1]:
                longer = np.full(2 * len(self.totals), _UNKNOWN, np.uint16)
                longer[: len(self._shards)] = self._shards
                self._shards = longer
            shards = self._shards[ids]
            if (unknown := shards == _UNKNOWN).any():
                shards[unknown] = shards_of(hash_columns([key.filter(pa.array(unknown)) for key in keys]))
                self._shards[ids] = shards
        return table.add_column(0, SHARD, pa.array(shards))

    def load(self, run: Run) -> None:
        assert isinstance(run.batch, pa.Table)
        totals, table = self.totals, run.batch
        kinds = [table.schema.field(part.name).type for part in totals.parts]
        totals.put_table(totals.ids([whole(table[key]) for key in totals.keys], kinds), table)
        self.settled = run.time  # whoever goes back below what was restored restores once more

    def measure(self) -> tuple[int, int]:
        changed = sum(len(change[1]) for _, change in self.log)
        width = 8 * (1 + len(self.totals.parts))
        return len(self.totals) + changed, self.totals.nbytes() + self._shards.nbytes + changed * width


class _TotalsScan(ScopeScan):
    """Scan in order of id: keys keep their ids, and new ones get later ids."""

    def __init__(self, scope: _Totals, count: int) -> None:
        self._scope = scope
        self._next = 0
        self._count = count

    @property
    def over(self) -> bool:  # type: ignore[override]
        return self._next >= self._count

    def pieces(self, upto: Frontier, rows: Rows) -> Iterator[Run]:
        time = self._scope.newest(upto)
        if time is not None:
            for run in self._scope._runs(_ranges(self._next, self._count, rows), upto, time):
                self._next += len(run.batch)
                yield run


class _Replaced:
    """Former parts of keys overwritten during a walk; the first addition wins.

    Sorted runs of ids and their parts, the oldest first, merged while the older is not the larger: what was added costs
    little more with each piece that is saved, and no memory for keys that were not written.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[Ids, list[Numbers]]] = []

    def add(self, ids: Ids, parts: Sequence[Numbers]) -> None:
        """Record the former parts of the keys `ids`, all different."""
        order = np.argsort(ids)
        run = (ids[order], [array[order] for array in parts])
        while self._runs and len(self._runs[-1][0]) <= min(len(run[0]), _MERGED):
            older = self._runs.pop()
            ids = np.concatenate([older[0], run[0]])
            order = np.argsort(ids, kind="stable")
            ids = ids[order]
            first = np.flatnonzero(np.diff(ids, prepend=-1))
            chosen = order[first]
            run = (ids[first], [stacked(pair)[chosen] for pair in zip(older[1], run[1], strict=True)])
        self._runs.append(run)

    def put(self, ids: Ids, values: list[Numbers]) -> None:
        """Restore recorded former parts in `values` of the rising keys `ids`."""
        for known, parts in reversed(self._runs):
            first, last = np.searchsorted(known, (ids[0], ids[-1] + 1))
            at = np.searchsorted(ids, known[first:last])
            met = np.flatnonzero(ids[at] == known[first:last])
            for i, old in enumerate(parts):
                if values[i].ndim > 1:
                    values[i] = assigned(values[i], at[met], old[first + met])
                else:
                    values[i][at[met]] = old[first + met]


def _ranges(start: int, count: int, rows: Rows) -> Iterator[Ids]:
    """Ids from `start` to below `count`, in pieces of `rows()`."""
    while start < count:
        end = min(start + rows(), count)
        yield np.arange(start, end)
        start = end


def _distinct(many: Sequence[Ids], count: int, rows: Rows) -> Iterator[Ids]:
    """Distinct ids, all below `count`, in order and in pieces of at most `rows()`."""
    if count > _SPARSE * sum(map(len, many)):
        ids = np.sort(np.concatenate([*many, np.zeros(0, np.intp)]))
        yield from _cut(ids[np.flatnonzero(np.diff(ids, prepend=-1))], rows)
        return
    present = np.zeros(count, np.bool_)
    for ids in many:
        present[ids] = True
    for start in range(0, count, _BLOCK):
        yield from _cut(np.flatnonzero(present[start : start + _BLOCK]) + start, rows)


def _cut(ids: Ids, rows: Rows) -> Iterator[Ids]:
    start = 0
    while start < len(ids):
        piece = ids[start : start + rows()]
        yield piece
        start += len(piece)


class TotalsState(Scopes[_Totals]):
    """Running totals (`libraries.columns.kernels.parts`) by key columns.

    They add up along the innermost coordinate.

    Runs hold the shard, the keys that changed at a time, and their totals after it: the last one wins.
    """

    def __init__(self, keys: Sequence[str], parts: Sequence[Part]) -> None:
        super().__init__()
        self._keys = list(keys)
        self._parts = list(parts)
        self._expected = 0

    @property
    def shape(self) -> str:
        """Parts in any order, and columns of the key.

        See `timely.state.shapes`.
        """
        return f"{', '.join(sorted(part.name for part in self._parts))} by {', '.join(self._keys)}"

    def _new(self) -> _Totals:
        return _Totals(self._keys, self._parts, self._expected)

    def restore(self, runs: Iterable[Run]) -> None:
        """Load `runs`, in order of time, in place of all content."""
        known = Runs.of(runs)
        self._scopes = {}  # before what takes its place is there
        self._expected = 2 * known.rows // 3  # keys may come again: some of them, and at most all
        super().restore(known)
        self._expected = 0

    def absorb(self, runs: Iterable[Run]) -> None:
        """Load `runs`, in order of time, after those loaded before."""
        super().absorb(runs)

    def add(self, time: Time, many: Sequence[Added], differs: Differs | None = None) -> Changed:
        """Add rows at `time`; returns the keys new or changed according to `differs`.

        Raises:
            ValueError: if the scope was written at a later time before.
            TypeError: if a column changes to a type that cannot be added to what is there.
        """
        scope = self._scope(time)
        (known, touched, before), after = scope.add(time, many)
        self._touched(touched)
        if differs is not None:
            chosen = differs(dict(zip(self._parts, before, strict=True)), dict(zip(self._parts, after, strict=True)))
            chosen |= touched >= known
            if not chosen.all():
                touched = touched[chosen]
                before, after = ([array[chosen] for array in arrays] for arrays in (before, after))
        return Changed(scope.totals, touched, after, known, before)

    def meet(self, time: Time, many: Sequence[list[pa.Array]]) -> Changed:
        """Add keys at `time`; returns the new ones.

        Each is as if it had had one row of zeros.

        Raises:
            ValueError: if the scope was written at a later time before.
            TypeError: if a key column changes to another type.
        """
        return self._meet(time, many)[0]

    def meet_first(self, time: Time, keys: list[pa.Array]) -> tuple[Changed, Ids]:
        """Add keys as `meet` does; returns the new ones and the first row of each.

        The rows rise.
        """
        changed, (ids,) = self._meet(time, [keys])
        rows = np.flatnonzero(ids >= changed.known)
        greatest = np.maximum.accumulate(ids[rows])  # ids count up in the order in which keys are met
        return changed, rows[np.append(True, greatest[1:] > greatest[:-1])[: len(rows)]]

    def _meet(self, time: Time, many: Sequence[list[pa.Array]]) -> tuple[Changed, list[Ids]]:
        scope = self._scope(time)
        (known, ids, before), rows = scope.meet(time, many)
        self._touched(ids)
        return Changed(scope.totals, ids, scope.totals.gather(ids), known, before), rows

    def _touched(self, ids: Ids) -> None:
        """Hook called with the keys of added rows."""
