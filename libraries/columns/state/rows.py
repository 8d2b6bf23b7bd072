"""State of column operators over whole rows: rows by key, in order of arrival."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

import pyarrow as pa

from libraries.columns.kernels.ordered_rows import OrderedRows
from libraries.columns.kernels.rows import KeyedFrame, KeyedRows
from timely.data.batch import as_arrow, as_polars
from timely.data.routing import shards_of
from timely.state.interface import Rows, Run
from timely.state.scopes import Scopes, ScopeState
from timely.time import Frontier, Time

SHARD = "shard()"
"""Column of a saved run with the shard of each row's key (uint16)."""

Change = int
"""Number of rows before the change."""


Kind = TypeVar("Kind", bound=KeyedRows | OrderedRows)


class _Rows(ScopeState[Change], Generic[Kind]):
    def __init__(self, keys: Sequence[str], rows: Kind) -> None:
        super().__init__()
        self.keys = keys
        self.rows = rows

    def append(self, time: Time, given: KeyedFrame) -> None:
        count = len(self.rows)
        times = given.times or (time,)
        self.check_order(times[0])
        for at, before in zip(times, (0, *given.ends), strict=False):
            self.note(at, count + before)
        self.rows.append(given)

    def undo(self, change: Change) -> None:
        self.rows.truncate(change)

    def changes(self, entries: list[tuple[Time, Change]], upto: Frontier, rows: Rows) -> Iterator[Run]:
        return self._runs(entries[0][1], upto, entries[-1][0], rows)

    def whole(self, upto: Frontier, time: Time, rows: Rows) -> Iterator[Run]:
        return self._runs(0, upto, time, rows)

    def _runs(self, start: int, upto: Frontier, time: Time, rows: Rows) -> Iterator[Run]:
        later = self.later(upto)
        end = later[0][1] if later else len(self.rows)  # the oldest says how many there were before all
        while start < end:
            stop = min(start + rows(), end)
            for frame, hashes in self.rows.between(start, stop):
                yield Run(time, as_arrow(frame).add_column(0, SHARD, pa.array(shards_of(hashes))))
            start = stop

    def load(self, run: Run) -> None:
        self.rows.append(KeyedFrame(as_polars(as_arrow(run.batch).drop_columns([SHARD])), self.keys))
        self.settled = run.time  # whoever goes back below what was restored restores once more

    def measure(self) -> tuple[int, int]:
        return self.rows.held(), self.rows.nbytes()


class _RowsState(Scopes[_Rows[Kind]], Generic[Kind]):
    """Rows by key, versioned by the innermost coordinate.

    Runs hold the shard of each row, and its columns; those of all times add up.
    """

    def __init__(self, keys: Sequence[str], make: Callable[[], Kind]) -> None:
        super().__init__()
        self._keys = list(keys)
        self._make = make
        self._none = make()

    @property
    def shape(self) -> str:
        """Columns of the key; see `timely.state.shapes`."""
        return f"rows by {', '.join(self._keys)}"

    def _new(self) -> _Rows[Kind]:
        return _Rows(self._keys, self._make())

    def append(self, time: Time, given: KeyedFrame) -> None:
        """Add rows at `time`, or at the times of a span, of one scope.

        Raises:
            ValueError: if the scope was written at a later time before.
            TypeError: if the columns are not those of earlier rows.
        """
        self._scope(time).append(time, given)

    def rows(self, time: Time) -> Kind:
        """Rows in the scope of `time`.

        Not to be changed.
        """
        scope = self._scopes.get(time[:-1])
        found: Kind = self._none if scope is None else scope.rows
        return found

    def scan(self, upto: Frontier) -> None:
        """None: rows in both a scan and a later snapshot would be restored twice."""
        return


class RowsState(_RowsState[KeyedRows]):
    """Rows by the columns `keys`."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(keys, lambda: KeyedRows(keys))


class OrderedRowsState(_RowsState[OrderedRows]):
    """Rows by the columns `keys`, in the order of the column `by`."""

    def __init__(self, keys: Sequence[str], by: str) -> None:
        super().__init__(keys, lambda: OrderedRows(keys, by))
        self._by = by

    @property
    def shape(self) -> str:
        """Columns of the key and of the order."""
        return f"{super().shape}, in the order of {self._by}"

    def evict(self, bound: int) -> None:
        """Drop rows before `bound` by `by`.

        No later row asks for them, even after a rollback.
        """
        for scope in self._scopes.values():
            scope.rows.evict(bound)

    def evict_passed(self, bound: int, strategy: str, within: int | None) -> None:
        """Drop rows not near any row from `bound` on, and beyond the reach of rollbacks.

        Args:
            bound, strategy, within: as in `OrderedRows.evict_passed`.
        """
        for scope in self._scopes.values():
            settled = scope.log[0][1] if scope.log else len(scope.rows)
            scope.rows.evict_passed(bound, strategy, within, settled)
