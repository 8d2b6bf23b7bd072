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
from timely.state.interface import Run
from timely.state.scopes import Scope, Scopes

SHARD = "shard()"
"""The column of a run that holds the shard of each key (uint16)."""

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

    def changes(self, entries: list[tuple[Time, Change]], rows: int) -> Iterator[Run]:
        time = entries[-1][0]
        done = np.zeros(len(self.totals), dtype=bool)
        gathered: list[tuple[Ids, list[Numbers]]] = []
        count = 0
        for _, (_, touched, _, after) in reversed(entries):
            fresh = ~done[touched]
            ids = touched[fresh]
            done[ids] = True
            gathered.append((ids, [array[fresh] for array in after]))
            count += len(ids)
            if count >= rows:
                yield Run(time, self._joined(gathered))
                gathered, count = [], 0
        if count:
            yield Run(time, self._joined(gathered))

    def _joined(self, gathered: list[tuple[Ids, list[Numbers]]]) -> pa.Table:
        ids = np.concatenate([ids for ids, _ in gathered])
        arrays = [np.concatenate(each) for each in zip(*(arrays for _, arrays in gathered), strict=True)]
        return self._sharded(self.totals.table(ids, arrays))

    def whole(self, upto: Frontier, time: Time, rows: int) -> Iterator[Run]:
        count = len(self.totals)
        for known, _, _, _ in self.later(upto):
            count = known  # the oldest of them says how many keys there were before all of them
        for start in range(0, count, min(rows, max(count, 1))):
            end = min(start + rows, count)
            ids = np.arange(start, end, dtype=np.intp)
            values = self.totals.gather(ids)
            for _, touched, before, _ in self.later(upto):
                here = (touched >= start) & (touched < end)
                at = touched[here] - start
                if len(at):
                    for array, replaced in zip(values, before, strict=True):
                        array[at] = replaced[here]
            yield Run(time, self._sharded(self.totals.table(ids, values)))

    def _sharded(self, table: pa.Table) -> pa.Table:
        shards = shards_of(hash_columns([table[key] for key in self.totals.keys]))
        return table.add_column(0, SHARD, pa.array(shards))

    def rows(self, change: Change) -> int:
        return len(change[1])

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
