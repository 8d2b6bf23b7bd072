"""Keys with work due at later times than the event that found it.

A change at (1, 0) and one at (0, 3) of one key meet at (1, 3): at no other time is their common effect seen. Whichever is
handled last asks for a notification at (1, 3), and leaves the key here. It is state: after a restore the notification comes,
and the key must be there. What was found in an event that is rolled back goes with it; what was done stays until nobody can go
back before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import numpy as np
import pyarrow as pa

from libraries.differential.rows import I64, LEAST, distinct, joined
from libraries.differential.trace import SHARD, spread
from timely.data.routing import shards_of
from timely.state.interface import Rows, Run, StateSize
from timely.time import Frontier, Time


class Pending:
    """Due time → time of the finding event → keys; a `State`."""

    def __init__(self) -> None:
        self._due: dict[Time, dict[Time, list[I64]]] = {}

    def add(self, event: Time, due: Time, keys: Collection[int] | I64) -> None:
        """Schedule work on `keys` at `due`, found in `event`."""
        column = keys if isinstance(keys, np.ndarray) else np.array(sorted(keys), np.int64)
        self._due.setdefault(due, {}).setdefault(event, []).append(column)

    def at(self, time: Time) -> I64:
        """Keys with work at `time`, rising."""
        found = self._due.get(time)
        if found is None:
            return np.zeros(0, np.int64)
        return distinct(joined([keys for columns in found.values() for keys in columns]))

    def named(self) -> I64:
        """Codes of stored values among the keys."""
        keys = joined([keys for found in self._due.values() for columns in found.values() for keys in columns])
        return distinct(keys[keys < LEAST])

    def snapshot(self, upto: Frontier, after: Frontier) -> list[Run]:
        """Work found by events in `upto` but not in `after`, due outside `upto`."""
        runs = []
        for due, found in self._due.items():
            for event, columns in found.items():
                if due not in upto and event in upto and event not in after:
                    keys = joined(columns)
                    lanes = {f"time{lane}": np.full(len(keys), at, np.int64) for lane, at in enumerate(due)}
                    runs.append(Run(event, pa.table({SHARD: shards_of(spread(keys)), "key": keys, **lanes})))
        return runs

    def pieces(self, upto: Frontier, after: Frontier, rows: Rows) -> Iterator[Run]:
        """Runs of `snapshot`: a run for each pair of times is small enough."""
        yield from self.snapshot(upto, after)

    def restore(self, runs: Iterable[Run]) -> None:
        """Replace the state by the contents of `runs`."""
        self._due = {}
        for run in runs:
            assert isinstance(run.batch, pa.Table)
            lanes = [name for name in run.batch.column_names if name.startswith("time")]
            if len(run.batch):
                due = tuple(run.batch[name][0].as_py() for name in lanes)
                self.add(run.time, due, run.batch["key"].to_numpy())

    def keep(self, frontier: Frontier) -> None:
        """Forget work found by events outside `frontier`."""
        for due, found in list(self._due.items()):
            inside = {event: columns for event, columns in found.items() if event in frontier}
            if inside:
                self._due[due] = inside
            else:
                del self._due[due]

    def compact(self, frontier: Frontier) -> None:
        """Forget work due in `frontier`, now done for good."""
        over = [due for due in self._due if due in frontier]
        for due in over:
            del self._due[due]

    def size(self) -> StateSize:
        """Size of the state."""
        columns = [keys for found in self._due.values() for each in found.values() for keys in each]
        rows = sum(map(len, columns))
        return StateSize(rows, 8 * rows, len(columns))
