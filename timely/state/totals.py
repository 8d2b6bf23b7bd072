"""State of column aggregates: running totals for each key, kept as dense arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from timely.kernels.columns import Numbers
from timely.kernels.tables import Ids
from timely.kernels.totals import Part, Totals, repeats, union
from timely.order import Frontier, Time
from timely.routing import hash_columns, shards_of
from timely.state.interface import Rows, Run
from timely.state.scopes import Scope, Scopes

SHARD = "shard()"
"""The column of a run that holds the shard of each key (uint16)."""

_MERGED = 1 << 14
"""Longer runs are not merged any more: that would keep everything else waiting."""

Change = tuple[int, Ids, list[Numbers], list[Numbers]]
"""How many keys there were before, which ones changed, their parts before and after."""


class _Totals(Scope[Change]):
    def __init__(self, keys: Sequence[str], parts: Sequence[Part]) -> None:
        super().__init__()
        self.totals = Totals(keys, parts)

    def add(self, time: Time, tables: Sequence[pa.Table]) -> tuple[Ids, list[Numbers]]:
        self.check_order(time)
        totals = self.totals
        known = len(totals)
        ids = [totals.ids(table) for table in tables]
        unique = len(ids) == 1 and not repeats(ids[0], len(totals))
        touched = ids[0] if unique else union(ids, len(totals))
        before = totals.gather(touched)
        for of, table in zip(ids, tables, strict=True):
            totals.add(of, table, unique)
        after = totals.gather(touched)
        self.log.append((time, (known, touched, before, after)))
        return touched, after

    def undo(self, change: Change) -> None:
        known, touched, before, _ = change
        self.totals.put(touched, before)
        self.totals.truncate(known)

    def changes(self, entries: list[tuple[Time, Change]], rows: Rows) -> Iterator[Run]:
        time = entries[-1][0]
        done = np.zeros(len(self.totals), dtype=bool)
        gathered: list[tuple[Ids, list[Numbers]]] = []
        count = 0
        for _, (_, touched, _, after) in reversed(entries):
            fresh = ~done[touched]
            ids = touched[fresh]
            done[ids] = True
            arrays = [array[fresh] for array in after]
            start = 0
            while start < len(ids):
                end = min(start + max(rows() - count, 1), len(ids))
                gathered.append((ids[start:end], [array[start:end] for array in arrays]))
                count += end - start
                start = end
                if count >= rows():
                    yield Run(time, self._joined(gathered))
                    gathered, count = [], 0
        if count:
            yield Run(time, self._joined(gathered))

    def _joined(self, gathered: list[tuple[Ids, list[Numbers]]]) -> pa.Table:
        ids = np.concatenate([ids for ids, _ in gathered])
        arrays = [np.concatenate(each) for each in zip(*(arrays for _, arrays in gathered), strict=True)]
        return self._sharded(self.totals.table(ids, arrays))

    def whole(self, upto: Frontier, time: Time, rows: Rows) -> Iterator[Run]:
        later = self.later(upto)
        count = later[0][1][0] if later else len(self.totals)  # the oldest says how many keys there were before all
        replaced = _Replaced()
        seen: tuple[Time, Change] | None = None
        start = 0
        while start < count:
            for entry in self.later(upto, seen):
                seen = entry
                _, touched, before, _ = entry[1]
                here = (touched >= start) & (touched < count)
                replaced.add(touched[here], [array[here] for array in before])
            end = min(start + rows(), count)
            ids = np.arange(start, end, dtype=np.intp)
            values = self.totals.gather(ids)
            replaced.put(start, end, values)
            yield Run(time, self._sharded(self.totals.table(ids, values)))
            start = end

    def _sharded(self, table: pa.Table) -> pa.Table:
        shards = shards_of(hash_columns([table[key] for key in self.totals.keys]))
        return table.add_column(0, SHARD, pa.array(shards))

    def load(self, run: Run) -> None:
        assert isinstance(run.batch, pa.Table)
        known = len(self.totals)
        ids = self.totals.ids(run.batch)
        before = self.totals.gather(ids)
        self.totals.clear(ids)
        self.totals.add(ids, run.batch, unique=True)
        self.log.append((run.time, (known, ids, before, self.totals.gather(ids))))

    def measure(self) -> tuple[int, int]:
        changed = sum(len(change[1]) for _, change in self.log)
        width = 8 * (1 + 2 * len(self.totals.parts))
        return len(self.totals) + changed, self.totals.nbytes() + changed * width


class _Replaced:
    """The parts that keys had before they were written again: of a key that was added twice, what was added first.

    Sorted runs of ids and their parts, the oldest first, merged while the older is not the larger: what was added costs
    little more with each piece that is saved, and no memory for keys that were not written.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[Ids, list[Numbers]]] = []

    def add(self, ids: Ids, parts: Sequence[Numbers]) -> None:
        """The keys `ids`, all different, had these parts."""
        order = np.argsort(ids)
        run = (ids[order], [array[order] for array in parts])
        while self._runs and len(self._runs[-1][0]) <= min(len(run[0]), _MERGED):
            older = self._runs.pop()
            ids = np.concatenate([older[0], run[0]])
            order = np.argsort(ids, kind="stable")
            ids = ids[order]
            first = np.flatnonzero(np.diff(ids, prepend=-1))
            chosen = order[first]
            run = (ids[first], [np.concatenate(pair)[chosen] for pair in zip(older[1], run[1], strict=True)])
        self._runs.append(run)

    def put(self, start: int, end: int, values: Sequence[Numbers]) -> None:
        """Set the parts of the keys from `start` to `end` to what they were, where that was added."""
        for ids, parts in reversed(self._runs):
            first, last = np.searchsorted(ids, (start, end))
            for array, old in zip(values, parts, strict=True):
                array[ids[first:last] - start] = old[first:last]


class TotalsState(Scopes[_Totals]):
    """Key columns → parts (`timely.kernels.totals`), added up along the innermost coordinate.

    Runs hold the shard, the keys that changed at a time, and their totals after it: the last one wins.
    """

    def __init__(self, keys: Sequence[str], parts: Sequence[Part]) -> None:
        super().__init__()
        self._keys = list(keys)
        self._parts = list(parts)

    def _new(self) -> _Totals:
        return _Totals(self._keys, self._parts)

    def add(self, time: Time, tables: Sequence[pa.Table]) -> pa.Table:
        """Add partial tables at `time`; the keys that they touch, with their new totals.

        Raises:
            ValueError: if the scope was written at a later time before.
            TypeError: if a column changes to a type that cannot be added to what is there.
        """
        scope = self._scope(time)
        touched, after = scope.add(time, tables)
        return scope.totals.table(touched, after)
