"""Writes epochs to a table, each by one commit that also says which epoch of which job it is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from timely.data.batch import Batch
from timely.errors import SinkError, at_line
from timely.io.memory import PendingEpochs
from timely.io.tables.rows import rows_of_epoch

_WAITS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
"""Seconds before each try of a commit."""


class Conflict(Exception):
    """Another program has changed the table since it was looked at: nothing of the commit is there."""


class Target(Protocol):
    """A table that is written to, by one sink of one job."""

    where: str
    """Its name in messages."""

    def look(self) -> int | None:
        """The last epoch that the sink has committed, as the table is now; None for none."""

    def schema(self) -> pa.Schema | None:
        """Its columns as of the last look; None: it is not there yet, and nothing was said about them."""

    def append(self, rows: pa.Table, epoch: int) -> None:
        """Commit the rows of `epoch` on top of what was seen at the last look. Makes the table if it is missing.

        Raises Conflict, or SinkError.
        """


class TableWriter:
    """Commits one epoch after another. An epoch is held in memory until it is committed; one without rows makes no commit.

    The mark of an epoch is part of its commit, and a commit goes on top of the state in which no such mark was seen: an epoch
    that comes again is not written again, even if two processes try at once.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pending = PendingEpochs()

    def write(self, epoch: int, batch: Batch) -> None:
        """Keep the batch until its epoch is complete."""
        self._pending.add(epoch, batch)

    def commit(self, epoch: int) -> None:
        """Add the epoch to the table, unless it is there. Raises SinkError."""
        target = self._target
        batches = [batch for batch in self._pending.take(epoch) if len(batch)]
        if not batches:
            return
        conflict: Conflict | None = None
        for wait in _WAITS:
            time.sleep(wait)
            done = target.look()
            if done is not None and epoch <= done:
                return
            try:
                target.append(rows_of_epoch(batches, target.schema(), target.where), epoch)
                return
            except Conflict as error:
                conflict = error
        raise SinkError(
            f"{target.where}: other programs kept changing the table while epoch {epoch} was committed, {len(_WAITS)} times "
            f"({conflict}). Nothing of the epoch is there: run the job again when they are done."
        )

    def abort(self) -> None:
        """Drop what was not committed."""
        self._pending.clear()

    def close(self) -> None:
        """The job is over."""
        self._pending.clear()


def partition_columns(given: Any, schema: pa.Schema | None) -> list[str]:
    """The columns that a sink's argument `partition_by` names. Raises SinkError at the user's line."""
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise SinkError(at_line(f"partition_by={given!r}: must be a list of names of columns."))
    names = list(given)
    lacking = [name for name in names if schema is not None and name not in schema.names]
    if lacking or len(set(names)) != len(names):
        raise SinkError(at_line(f"partition_by={given!r}: name columns of the table, each once."))
    return names


def same_partitions(there: Sequence[str], wanted: Sequence[str], where: str) -> None:
    """Raise SinkError if a table is partitioned otherwise than the sink was told."""
    if wanted and list(there) != list(wanted):
        how = f"by {', '.join(map(repr, there))}" if there else "by nothing"
        raise SinkError(
            f"{where}: the table is there, and partitioned {how}, not by {', '.join(map(repr, wanted))}. Leave partition_by "
            "out, or name another table."
        )
