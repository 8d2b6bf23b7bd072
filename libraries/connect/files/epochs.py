"""Epochs of file rows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from timely.data.batch import Batch, as_arrow, length
from timely.errors import SourceError, at_line

EpochSpec = str | int | Callable[[Any], Any]
"""Rule for the epochs of a file's rows:

- "file": the number of the file among all files;
- "batch": the number of the batch (Parquet: row group) within its file;
- an int n: n rows of a file are an epoch;
- any other string: the column that holds the epoch, by which each file is sorted;
- a function from a batch to one integer a row.
"""


class EpochPiece(msgspec.Struct, frozen=True):
    """Rows `start` to `stop` of a block, all of one `epoch`.

    `closes`: the epoch is known to be over after them.
    """

    start: int
    stop: int
    epoch: int
    closes: bool


class Block(msgspec.Struct, frozen=True):
    """Block of a file with its place, as input to an epoch rule."""

    data: Batch
    index: int
    first_row: int
    last: bool


class EpochRule:
    """Stateless cutter of a file's blocks into pieces of one epoch each."""

    def __init__(self, spec: EpochSpec, file_name: str, file_index: int) -> None:
        check_spec(spec)
        self._spec = spec
        self._file_name = file_name
        self._file_index = file_index

    @property
    def start(self) -> int:
        """First epoch of the file, as far as known without reading it."""
        return self._file_index if self._spec == "file" else 0

    def pieces(self, block: Block, before: int) -> list[EpochPiece]:
        """Pieces of `block` by epoch, in order.

        `before` is the epoch of the row in front of it.

        Raises SourceError, naming file and row, if an epoch is lower than the one before it.
        """
        rows = length(block.data)
        if self._spec == "file":
            return [EpochPiece(0, rows, self._file_index, block.last)]
        if self._spec == "batch":
            return [EpochPiece(0, rows, block.index, True)]
        if rows == 0:
            return []
        if isinstance(self._spec, int):
            return _by_count(block.first_row, rows, self._spec, block.last)
        epochs = self._epochs_of(block)
        self._check(epochs, block.first_row, before)
        cuts = [0, *(np.flatnonzero(epochs[1:] != epochs[:-1]) + 1).tolist(), rows]
        spans = pairwise(cuts)
        return [EpochPiece(a, b, int(epochs[a]), b < rows or block.last) for a, b in spans]

    def _epochs_of(self, block: Block) -> np.ndarray[Any, np.dtype[np.int64]]:
        rows = length(block.data)
        if callable(self._spec):
            who = f"the epoch function {getattr(self._spec, '__name__', self._spec)!r}"
            values = self._spec(block.data)
        else:
            who = f"the epoch column {self._spec!r}"
            values = self._column_of(block.data, block.first_row)
        if hasattr(values, "to_numpy"):  # Arrow and Polars columns
            nulls = getattr(values, "null_count", 0)
            missing = int(nulls() if callable(nulls) else nulls)
            if missing:
                raise SourceError(
                    f"{self._file_name}: {who} has {missing} empty values. Fill them, or drop those rows."
                )
            values = values.to_numpy()
        array = np.asarray(values)
        if array.shape != (rows,) or not np.issubdtype(array.dtype, np.integer):
            raise SourceError(
                f"{self._file_name}: {who} must hold one integer a row; it gave shape {array.shape} of "
                f"{array.dtype} for {rows} rows. Convert it to integers."
            )
        return array.astype(np.int64)

    def _column_of(self, data: Batch, first_row: int) -> Any:
        name = str(self._spec)
        if isinstance(data, list):
            for i, record in enumerate(data):
                if name not in record:
                    raise SourceError(
                        f"{self._file_name}, row {first_row + i + 1}: the epoch column {name!r} is missing."
                    )
            return [record[name] for record in data]
        table = as_arrow(data)
        if name not in table.column_names:
            raise SourceError(
                f"{self._file_name}: there is no epoch column {name!r}. It has: "
                f"{', '.join(map(repr, table.column_names))}."
            )
        column = table[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        return column

    def _check(self, epochs: np.ndarray[Any, np.dtype[np.int64]], first_row: int, before: int) -> None:
        wrong = np.flatnonzero(np.diff(epochs, prepend=max(before, 0)) < 0)
        if wrong.size:
            at = int(wrong[0])
            previous = before if at == 0 else int(epochs[at - 1])
            why = "epochs start at 0" if epochs[at] < 0 else f"the row before it has {previous}"
            raise SourceError(
                f"{self._file_name}, row {first_row + at + 1}: epoch {int(epochs[at])}, but {why}. Epochs "
                "must not fall within a file: sort the file by them."
            )


def _by_count(first_row: int, rows: int, n: int, last: bool) -> list[EpochPiece]:
    pieces, start = [], 0
    while start < rows:
        epoch = (first_row + start) // n
        stop = min(rows, (epoch + 1) * n - first_row)
        full = (first_row + stop) % n == 0
        pieces.append(EpochPiece(start, stop, epoch, full or (last and stop == rows)))
        start = stop
    return pieces


def epoch_column(spec: EpochSpec) -> str | None:
    """Column named by `spec`, if any."""
    return spec if isinstance(spec, str) and spec not in ("file", "batch") else None


def check_spec(spec: EpochSpec) -> None:
    """Raise SourceError unless `spec` has one of the forms of `EpochSpec`."""
    wrong_number = isinstance(spec, bool) or (isinstance(spec, int) and spec < 1)
    if wrong_number or not (isinstance(spec, str | int) or callable(spec)):
        raise SourceError(
            at_line(
                f'epoch={spec!r}: must be "file", "batch", a number of rows (1 or more), the name of a column, '
                "or a function from a batch to one integer a row."
            )
        )
