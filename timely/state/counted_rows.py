"""State of operators over changes: the different rows of each key, and how many of each there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from timely.data.kernels.parts import Part
from timely.state.expiring import ExpiringTotals
from timely.state.interface import Run, Runs


class CountedRows(ExpiringTotals):
    """Rows with a sign: the different ones, with the sum of the signs of each. Those of a key can be asked for, by `alike`.

    Args:
        keys: the columns of the key.
        sign: the column of the sign.
    """

    def __init__(self, keys: Sequence[str], sign: str) -> None:
        self.count = Part("sum", sign)
        super().__init__(keys, [Part("values", sign), Part("max", sign), self.count], sign, len(keys))
        self.leading = len(keys)
        """The number of the columns of the key, which come first."""
        self.columns: list[str] | None = None
        """The columns of the rows, as far as they are known: from the first one that comes."""

    @property
    def parts(self) -> list[Part]:
        """The parts that are kept of a row."""
        return self._parts

    def name(self, columns: Sequence[str]) -> None:
        """Say which columns rows have: those of the key, and others behind them. Nothing is held yet."""
        self.columns = self._keys = list(columns)
        self._scopes = {}

    def restore(self, runs: Iterable[Run]) -> None:
        """Replace everything held by what `runs` hold, in order of time."""
        known = Runs.of(runs)
        self.columns = None
        super().restore(Runs(known.rows, lambda: map(self._named, known)))

    def _named(self, run: Run) -> Run:
        if self.columns is None:
            assert isinstance(run.batch, pa.Table)
            self.name(run.batch.column_names[1 : -len(self._parts)])  # behind the shard, and before the parts
        return run
