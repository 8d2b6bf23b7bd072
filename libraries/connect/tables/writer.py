"""Table writer: one commit an epoch, marked with the job and the epoch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from libraries.connect.tables.rows import rows_of_epoch
from timely.data.batch import Batch
from timely.errors import SinkError, at_line
from timely.io.memory import PendingEpochs

_WAITS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
"""Seconds before each try of a commit."""


class CommitConflict(Exception):
    """Conflicting change of the table by another program since the last look.

    Nothing of the commit is there.
    """


class Target(Protocol):
    """Target table of one sink of one job."""

    where: str
    """Table name for messages."""

    def look(self) -> int | None:
        """Load the table; returns the last epoch committed by the sink, or None."""

    def schema(self) -> pa.Schema | None:
        """Columns as of the last look; None if the table is missing and undeclared."""

    def append(self, rows: pa.Table, epoch: int) -> None:
        """Commit the rows of `epoch` on top of the state of the last look.

        Makes the table if it is missing.

        Raises Conflict, or SinkError.
        """


class TableWriter:
    """Writer with one commit an epoch, buffered in memory until then.

    An epoch without rows makes no commit.

    The mark of an epoch is part of its commit, and a commit goes on top of the state in which no such mark was seen: an epoch
    that comes again is not written again, even if two processes try at once.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pending = PendingEpochs()

    def write(self, epoch: int, batch: Batch) -> None:
        """Buffer the batch until its epoch is complete."""
        self._pending.add(epoch, batch)

    def commit(self, epoch: int) -> None:
        """Add the epoch to the table unless it is there; raises SinkError."""
        target = self._target
        batches = [batch for batch in self._pending.take(epoch) if len(batch)]
        if not batches:
            return
        conflict: CommitConflict | None = None
        for wait in _WAITS:
            time.sleep(wait)
            done = target.look()
            if done is not None and epoch <= done:
                return
            try:
                target.append(rows_of_epoch(batches, target.schema(), target.where), epoch)
                return
            except CommitConflict as error:
                conflict = error
        raise SinkError(
            f"{target.where}: other programs kept changing the table while epoch {epoch} was committed, {len(_WAITS)} times "
            f"({conflict}). Nothing of the epoch is there: run the job again when they are done."
        )

    def abort(self) -> None:
        """Discard uncommitted batches."""
        self._pending.clear()

    def close(self) -> None:
        """Discard uncommitted batches at the job's end."""
        self._pending.clear()


def partition_columns(given: Any, schema: pa.Schema | None) -> list[str]:
    """Check of the argument `partition_by`: a list of column names.

    Raises SinkError at the user's line.
    """
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise SinkError(at_line(f"partition_by={given!r}: must be a list of names of columns."))
    names = list(given)
    lacking = [name for name in names if schema is not None and name not in schema.names]
    if lacking or len(set(names)) != len(names):
        raise SinkError(at_line(f"partition_by={given!r}: name columns of the table, each once."))
    return names


def same_partitions(there: Sequence[str], wanted: Sequence[str], where: str) -> None:
    """Raise SinkError if the table's partitioning differs from the sink's."""
    if wanted and list(there) != list(wanted):
        how = f"by {', '.join(map(repr, there))}" if there else "by nothing"
        raise SinkError(
            f"{where}: the table is there, and partitioned {how}, not by {', '.join(map(repr, wanted))}. Leave partition_by "
            "out, or name another table."
        )
