"""State of operators over changes: the distinct rows of each key, with counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from libraries.columns.kernels.parts import Part
from libraries.columns.state.expiring import ExpiringTotals
from timely.state.interface import Run, Runs


class CountedRows(ExpiringTotals):
    """Multiset of signed rows: each distinct row with the sum of its signs.

    The rows of given keys are found by `alike`.

    Args:
        keys: the columns of the key.
        sign: the column of the sign.
    """

    def __init__(self, keys: Sequence[str], sign: str) -> None:
        self.count = Part("sum", sign)
        super().__init__(keys, [Part("values", sign), Part("max", sign), self.count], sign, len(keys))
        self.leading = len(keys)
        """Number of key columns; they come first."""
        self.columns: list[str] | None = None
        """Columns of the rows; None until the first rows come."""

    @property
    def parts(self) -> list[Part]:
        """Aggregates kept for each row."""
        return self._parts

    def name(self, columns: Sequence[str]) -> None:
        """Set the columns of rows, key columns first, before any rows are held."""
        self.columns = self._keys = list(columns)
        self._scopes = {}

    def restore(self, runs: Iterable[Run]) -> None:
        """Load `runs`, in order of time, in place of all content."""
        known = Runs.of(runs)
        self.columns = None
        super().restore(Runs(known.rows, lambda: map(self._named, known)))

    def _named(self, run: Run) -> Run:
        if self.columns is None:
            assert isinstance(run.batch, pa.Table)
            self.name(run.batch.column_names[1 : -len(self._parts)])  # behind the shard, and before the parts
        return run
