"""Columns read by aggregates, and rows by key and value as rows by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from libraries.columns.agg import Aggregate, parts_of
from libraries.columns.kernels.added import Added, Values, without
from libraries.columns.kernels.index import KeyIndex
from libraries.columns.kernels.parts import Part
from timely.data.batch import Batch, Columns
from timely.data.kernels.columns import TINY, check_there, select, whole
from timely.data.kernels.series import frame_of

VALUE = "value()"
"""Last key column of the state with the values of each key."""

ROWS = [Part("rows")]


class Reading:
    """Columns read by aggregates, including those they make (`Aggregate.made`).

    Args:
        keys: the key columns.
        aggregates: output column → aggregate.
    """

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, Aggregate]) -> None:
        self.keys = list(keys)
        self.parts = parts_of(aggregates)
        """All parts kept for a key."""
        self.distinct = [str(part.column) for part in self.parts if part.kind == "distinct"]
        """Columns with counted distinct values."""
        self.grouping = list(dict.fromkeys([*keys, *self.distinct]))
        """Key columns of partial tables: keys, then columns with counted values."""
        self.carried = [part for part in self.parts if part.kind != "distinct"]
        """Parts stored in partial tables."""
        makers = {each.read: each for each in aggregates.values() if each.makes}
        self._makers = [each for each in makers.values() if not any(set(each.read) < set(other) for other in makers)]
        self.makes = bool(self._makers)
        """True if some columns are computed from the batch."""
        self.given = list(dict.fromkeys([*keys, *(name for each in aggregates.values() for name in each.columns())]))
        """Columns required in a batch."""
        read = (name for each in aggregates.values() for name in each.read)
        self.names = list(dict.fromkeys([*keys, *read])) if self._makers else self.given
        """Names of the columns read."""

    def rows(self, batch: Batch) -> Columns:
        """Part of `batch` read by aggregates.

        A frame of a few rows stays a frame. See `table`.
        """
        if self._makers or not isinstance(batch, pl.DataFrame) or len(batch) >= TINY:
            return self.table(batch)
        if batch.columns == self.names:
            return batch
        check_there(batch.columns, self.names)
        return frame_of([batch.get_column(name) for name in self.names])

    def table(self, batch: Batch) -> pa.Table:
        """Part of `batch` read by aggregates, as a table.

        Raises:
            KeyError: if a column is missing. TypeError: for records, and where a column cannot be made.
        """
        table = select(batch, self.given)
        if not self._makers:
            return table
        made = self.made(table)
        return pa.Table.from_arrays([made[name] if name in made else table[name] for name in self.names], self.names)

    def made(self, table: pa.Table) -> dict[str, pa.Array]:
        """Columns made by aggregates."""
        return {
            name: column
            for each in self._makers
            for name, column in zip(each.read, each.made(*(whole(table[of]) for of in each.columns())), strict=True)
        }

    def by_key(self, many: Sequence[Added], new: Callable[[str, list[Added]], list[pa.Array]]) -> list[Added]:
        """Convert rows by key and value into rows by key, with new values counted.

        `new` is given rows by key and value of a column, and returns the keys and the values that it meets for the first time.
        """
        if not self.distinct or not many:
            return list(many)
        count = len(self.keys)
        found = []
        for each in many:
            of = zip(self.carried, zip(each.kinds, each.values, each.valid, strict=True), strict=True)
            found.append(self._added(each.keys[:count], dict(of), None))
        for column in self.distinct:
            at = self.grouping.index(column)
            *keys, _ = new(column, [ones([*each.keys[:count], each.keys[at]]) for each in many])
            if len(keys[0]):
                empty = {
                    part: without(part, kind, len(keys[0]))
                    for part, kind in zip(self.carried, many[0].kinds, strict=True)
                }
                found.append(self._added(keys, empty, column))
        return found

    def _added(self, keys: list[pa.Array], carried: Mapping[Part, Values], counted: str | None) -> Added:
        """Rows from carried parts; each counts as a new value of the column `counted`."""
        made: list[Values] = []
        for part in self.parts:
            one = np.full(len(keys[0]), part.column == counted, np.int64)
            made.append((pa.int64(), one, None) if part.kind == "distinct" else carried[part])
        kinds, values, valid = map(list, zip(*made, strict=True))
        return Added(keys, kinds, values, valid)


def ones(keys: list[pa.Array]) -> Added:
    """Rows with nothing kept but their number."""
    return Added(keys, [pa.int64()], [np.ones(len(keys[0]), np.int64)], [None])


def first_met(column: str, many: list[Added]) -> list[pa.Array]:
    """Distinct keys and values of some rows.

    It is `new` of `Reading.by_key` where nothing was met before.
    """
    index = KeyIndex(len(many[0].keys))
    for each in many:
        index.ids(each.keys)
    return index.keys()
