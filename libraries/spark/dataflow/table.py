"""`write`: a stream as a Parquet table for Spark, each epoch published atomically.

    columns → spill (each worker) ⇉ publish (one worker)

    PATH/epoch=0000000012/<file>.parquet       what is published; with folders for values below the epoch, if asked for
    PATH/.falkirk/                             hidden from Spark: files of epochs that are not, and the schema

Each worker writes its part of an epoch into hidden files. The sink is given their names, as state of an exactly-once sink;
it moves them into a hidden folder, and renames that, which makes all of the epoch visible in one step. An epoch that is
published again after a failure has the same names, by which it is known to be there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import ClassVar

from libraries.columns.verbs.columns import Columns
from libraries.connect.claim import Claim, Owner
from libraries.connect.files.sink import cannot_write
from libraries.spark.dataflow.operators import Spill, changed
from libraries.spark.dataflow.partitioned import PartitionedSpill
from libraries.spark.dataflow.placement import HOME
from libraries.spark.errors import SparkError
from libraries.spark.files import parquet as files
from libraries.spark.files.deliveries import Consumer, deliver
from libraries.spark.files.epoch_table import HIDDEN, SCHEMA, partitioned_by
from libraries.spark.files.manifest import ManifestEntry, entries_of
from libraries.spark.files.parquet import epoch_of, sync_folder
from libraries.spark.files.schemas import read_schema
from timely.data.batch import Batch
from timely.errors import GraphError, SinkError, user_site
from timely.time import INF

LAST = (1 << 31) - 1
"""Epoch of rows after the end of input, such as last windows: Spark's max int."""

_REMEDY = "Name another folder, or remove this one. To go on with the job that wrote it, run that with its own store."
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def write(
    stream: Columns,
    path: str | os.PathLike[str],
    *,
    column: str = "epoch",
    partition_by: Sequence[str] = (),
    name: str | None = None,
    require: str | None = None,
) -> None:
    """Publish a stream as a table in folder `path`, for batch and streaming reads.

    Spark reads it by `spark.read.parquet(path)` and `spark.readStream`.

    A reader sees whole epochs only, over all workers, also while the job runs; one that streams sees each once. The table
    has one more column, `column`, with the epoch. With a store an epoch comes exactly once, whatever fails. A folder
    has the table of one job; that of another is not touched, but an error.

    Args:
        stream: columns, with one schema throughout.
        path: the folder, which all workers must see. It is made if it is missing.
        column: the name of the column for the epoch. What comes when all input is over has the epoch `LAST`.
        partition_by: columns of text, integers, booleans or dates, by whose values rows are in folders `name=value` below that
            of their epoch, as Spark and Hive lay tables out. Spark gives the columns back, behind the others.
        name: of the sink; by it it is found again after a restart.
        require: as for other sinks: what failures may do to it at most.

    Raises:
        GraphError: for arguments that cannot be, at the user's line.
    """
    site = user_site()
    if not isinstance(stream, Columns):
        raise GraphError(
            f"{site}: write takes a stream of columns, not {type(stream).__name__}: use to_columns() first"
        )
    if stream.scope.depth != 1:
        raise GraphError(f"{site}: a table takes whole epochs, but this stream is in {stream.scope}: leave() first")
    if not isinstance(column, str) or not _NAME.fullmatch(column):
        raise GraphError(f"{site}: column={column!r} cannot be the name of a column: use letters, digits and _")
    by = [partition_by] if isinstance(partition_by, str) else list(partition_by)
    if any(not isinstance(each, str) for each in by) or len({*by, column}) <= len(by):
        raise GraphError(f"{site}: partition_by={partition_by!r} must name columns, each once, and not {column!r}")
    table = Path(path).absolute()
    name = name or stream.graph.fresh_name("table")
    consumer = Consumer(name, "rows", folder=table / HIDDEN)

    def spill(consumers: Sequence[Consumer]) -> Spill:
        return PartitionedSpill(consumers, by) if by else Spill(consumers)

    spilled = deliver(stream, consumer, f"{name}-spill", spill, separate=bool(by))
    spilled.exchange(lambda _: HOME, f"{name}-gather").to(_TableSink(table, column), name, require)


class _TableSink:
    """Publishes the files named by its input."""

    exactly_once: ClassVar[bool] = True

    def __init__(self, path: Path, column: str) -> None:
        self._path = path
        self._column = column
        self._owner: Owner | None = None

    def for_job(self, job: str, name: str) -> _TableSink:
        """The same sink, for the table of this job only."""
        same = copy(self)
        same._owner = Owner(job, name)
        return same

    def open(self, worker: int, workers: int) -> _TableWriter:
        """Open a writer; only one worker's has work to do.

        Raises SinkError if the folder cannot be written, or has the table of another job.
        """
        hidden = self._path / HIDDEN
        try:
            hidden.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(hidden, error) from error
        if not os.access(hidden, os.W_OK | os.X_OK):
            raise SinkError(f"{hidden}: you may not write here. Change its permissions, or name another folder.")
        claim = None
        if self._owner is not None:
            try:
                claim = Claim(self._path, hidden / "job", self._owner, self._epochs, _REMEDY)
            except OSError as error:
                raise cannot_write(hidden, error) from error
        return _TableWriter(self._path, self._column, claim)

    def _epochs(self) -> list[str]:
        """Folders of published epochs, in order."""
        return sorted(name for name in os.listdir(self._path) if "=" in name and not name.startswith("."))


class _TableWriter:
    """Publishes epochs, one after the other."""

    def __init__(self, path: Path, column: str, claim: Claim | None) -> None:
        self._path = path
        self._claim = claim
        self._hidden = path / HIDDEN
        self._column = column
        self._pending: dict[int, list[ManifestEntry]] = {}

    def write(self, epoch: int, batch: Batch) -> None:
        """Remember the files named by the entries in `batch`."""
        self._pending.setdefault(epoch, []).extend(entries_of(batch))

    def commit(self, epoch: int) -> None:
        """Publish the epoch; SinkError if another is there, SparkError for other columns."""
        entries = [entry for entry in self._pending.pop(epoch, []) if entry.rows]
        try:
            if self._claim is not None:
                self._claim.check()
            if entries:
                for entry in entries:
                    self._check(entry.schema, epoch)
                self._publish(epoch, {Path(entry.path).name: entry.place for entry in entries})
            self._sweep(epoch)
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def _publish(self, epoch: int, names: dict[str, str]) -> None:
        """Publish files, each in its folder below that of the epoch."""
        number = LAST if epoch == INF else epoch
        target = self._path / f"{self._column}={number:010}"
        wanted = {Path(place, name) for name, place in names.items()}
        if not target.exists():
            gathered = self._hidden / f"epoch-{number}"
            for left in _files(gathered) - wanted:  # of a run before this one
                files.remove([str(gathered / left)])
            folders = sorted({gathered, *(gathered / path for file in wanted for path in file.parents)}, reverse=True)
            for folder in reversed(folders):
                folder.mkdir(exist_ok=True)
            for file in sorted(wanted):
                if not (gathered / file).exists():  # it was moved before a failure
                    (self._hidden / file.name).rename(gathered / file)
            for folder in folders:
                sync_folder(folder)
            gathered.rename(target)
            sync_folder(self._path)
        elif _files(target) != wanted:
            raise SinkError(
                f"{target} is there already, and was written by another run: remove the folder {self._path}, or name an "
                "empty one"
            )

    def _check(self, schema: bytes, epoch: int) -> None:
        """Check columns against those of the table's first epoch."""
        path = self._hidden / SCHEMA
        arrow = read_schema(schema)
        if self._column in arrow.names:
            raise SinkError(f"there is a column {self._column!r} already: name the one for the epoch with column=...")
        if not path.exists():
            unfinished = path.with_name("schema.part")
            unfinished.write_bytes(schema)
            unfinished.replace(path)
        known = read_schema(path.read_bytes())
        before, now = (partitioned_by(each) for each in (known, arrow))
        if before != now:
            raise SparkError(
                f"the table is partitioned by {before}, and not, as asked for now, by {now}: name another folder"
            )
        if not known.equals(arrow):
            raise SparkError(changed(self._path.name, known, arrow, f"at epoch {epoch}"))

    def _sweep(self, upto: int) -> None:
        """Remove hidden files of epochs up to `upto`, left over from failed attempts."""
        for path in self._hidden.glob("[0-9]*"):
            if epoch_of(path) <= upto:
                with suppress(FileNotFoundError):
                    path.unlink()

    def abort(self) -> None:
        """Discard pending epochs; their files stay hidden, for a job that goes on."""
        self._pending.clear()

    def close(self) -> None:
        """Discard pending epochs, at the end of the job."""
        self._pending.clear()


def _files(folder: Path) -> set[Path]:
    """Files in a folder and below, as relative paths."""
    return {Path(place, name).relative_to(folder) for place, _, names in os.walk(folder) for name in names}
