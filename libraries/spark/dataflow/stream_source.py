"""`Stream`: a streaming query of Spark as a source, one epoch a micro-batch.

Spark's process publishes each micro-batch as a folder of files, in which every worker has its share
(`libraries.spark.client.queries` says how that is exactly once). Here they are read. The worker on which regions on Spark are,
too, has the query run.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import pyarrow as pa

from libraries.spark.dataflow.placement import home
from libraries.spark.dataflow.runner import pack
from libraries.spark.errors import SparkError
from libraries.spark.files.batches import end, forget, last_batch, share_files
from libraries.spark.files.parquet import FILE_ROWS, carried_schema, read_output
from libraries.spark.files.schemas import read_schema, write_schema
from libraries.spark.host.host import SparkHost, host_of
from libraries.spark.protocol import Follow
from libraries.spark.setup.options import SparkOptions
from timely.errors import SourceError, at_line, shown
from timely.io.interface import Chunk, End, Files, Partition, Position, Wait

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_WAIT = Wait(0.02)
_END_SECONDS = 10.0


class Stream:
    """Streaming DataFrame read by all workers, a micro-batch per epoch.

    Its batch numbers are the epochs.

    Args:
        what: a function from a SparkSession to a streaming DataFrame.
        sql: a query over it, in which it is called `input`; None: it is read as it is.
        every: seconds from the beginning of a batch to that of the next; by default the next one begins at once.
        available_now: end when all that was there when the query began has been read, instead of never.
        output_mode: what of a query with aggregates a batch brings: Spark's "append", "update" or "complete".
        ahead: how many batches may wait on the disk to be read; then Spark waits.
        options: where Spark runs, and what is expected of it: `retries` is how often in a row the query may fail without a
            new batch. `limit` does not count here.

    Raises:
        SourceError: for arguments that cannot be.
    """

    rereadable: ClassVar[bool] = True
    repeats: ClassVar[bool] = True  # a batch that is published never changes, nor does its number

    def __init__(
        self,
        what: Callable[[SparkSession], DataFrame],
        *,
        sql: str | None = None,
        every: float | None = None,
        available_now: bool = False,
        output_mode: Literal["append", "update", "complete"] = "append",
        ahead: int = 4,
        options: SparkOptions | None = None,
    ) -> None:
        if not callable(what):
            raise SourceError(
                at_line(
                    f"Stream: give a function from a SparkSession to a streaming DataFrame, not {shown(what, 80)}; for a "
                    "folder of files there is Stream.files(path, schema)"
                )
            )
        if output_mode not in ("append", "update", "complete"):
            raise SourceError(at_line(f'Stream: output_mode={output_mode!r}: must be "append", "update" or "complete"'))
        if every is not None and (not every > 0 or available_now):
            raise SourceError(
                at_line(f"Stream: every={every!r}: must be a number of seconds above 0, without available_now")
            )
        if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 1:
            raise SourceError(at_line(f"Stream: ahead={ahead!r}: must be a number of batches, 1 or more"))
        self._what = what
        self._sql = sql
        self._every = every
        self._now = available_now
        self._mode = output_mode
        self._ahead = ahead
        self._options = options or SparkOptions()
        self._place: tuple[Files, str] | None = None

    @classmethod
    def files(
        cls,
        path: str | os.PathLike[str],
        schema: pa.Schema,
        format: Literal["parquet", "json", "csv", "orc", "text"] = "parquet",
        *,
        per_batch: int | None = None,
        **arguments: Any,
    ) -> Stream:
        """Stream of files arriving in a folder, each read once.

        A batch has at most `per_batch` files. The rest is as for `Stream`.

        Raises SourceError for a column that Spark cannot read.
        """
        try:
            columns = write_schema(carried_schema(schema))
        except SparkError as error:
            raise SourceError(f"Stream.files: {error}") from error
        return cls(_opener(os.fspath(path), columns, format, per_batch), **arguments)

    @property
    def ends(self) -> bool:
        """True if it ends once the available data is read."""
        return self._now

    def streaming(self, session: SparkSession) -> DataFrame:
        """Its DataFrame in a session; SparkError if that is not streaming."""
        from libraries.spark.client.streaming import streaming

        return streaming(session, self._what, self._sql)

    def triggered(self, writer: DataStreamWriter) -> DataStreamWriter:
        """Writer of a streaming DataFrame with this source's output mode and trigger."""
        from libraries.spark.client.streaming import triggered

        return triggered(writer, self._mode, self._now, self._every)

    def with_files(self, files: Files, name: str) -> Stream:
        """The same source, with a folder for its batches."""
        same = copy(self)
        same._place = files, name
        return same

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """This worker's share of all batches; one worker's has the query run, too."""
        if self._place is None:
            raise SourceError("a stream of Spark keeps files, and a simulation has no place for them: run the job")
        files, name = self._place
        folder = files.folder(f"{name}/stream")
        query = None
        if worker == home(workers):
            query = _Query(
                host_of(self._options), lambda: self._task(folder, workers), lambda text: files.note(f"{name}: {text}")
            )
        return [StreamShare(f"{name} [{worker + 1}/{workers}]", folder, worker, query)]

    def _task(self, folder: Path, workers: int) -> Follow:
        assert self._place is not None
        files, name = self._place
        return Follow(
            number=-1,
            name=name,
            function=pack(self._what, "the function"),
            query=self._sql,
            folder=str(folder),
            mode=self._mode,
            every=self._every,
            now=self._now,
            rows=FILE_ROWS,
            workers=workers,
            ahead=self._ahead,
            consumed=0,
            durable=files.durable,
        )


class Running(Protocol):
    """Control of a publishing query, used on the worker in charge of it."""

    def run(self, consumed: int, over: bool) -> None:
        """Start the query if needed, unless it is `over`.

        Batches before `consumed` were read. Raises SourceError if it failed.
        """

    def working(self) -> tuple[int, str, int, int, float] | None:
        """Its progress: see `timely.io.interface.TellingPartition`."""

    def stop(self) -> None:
        """Stop the query."""


class StreamShare:
    """One worker's share of each micro-batch.

    The position is [batch, number of the file in it] of what comes next.
    """

    def __init__(self, name: str, folder: Path, worker: int, query: Running | None) -> None:
        self.name = name
        self._folder = folder
        self._worker = worker
        self._query = query
        self._batch = 0
        self._file = 0
        self._files: list[Path] | None = None
        """Files of the current batch; None if it is not open."""

    def read(self) -> Chunk | Wait | End:
        """Next file of an available batch; SourceError if there can be none any more."""
        if self._query is not None:
            self._query.run(self._batch, over=end(self._folder) is not None)
        if self._files is None:
            self._files = share_files(self._folder, self._batch, self._worker)
        if self._files is None:
            return self._nothing()
        batch, files = self._batch, self._files
        data = read_output(str(files[self._file])) if files else None
        self._file += 1
        closes = self._file >= len(files)
        if closes:
            self._go(batch + 1, 0)
        return Chunk(batch, data, [self._batch, self._file], closes)

    def _nothing(self) -> Wait | End:
        """Result of a read without an available batch: wait, or the end."""
        last = end(self._folder)
        if last is not None and self._batch > last:
            return End()
        if last_batch(self._folder) > self._batch and share_files(self._folder, self._batch, self._worker) is None:
            raise SourceError(
                f"{self.name}: batch {self._batch} is gone from {self._folder}; start anew, without a store"
            )
        return _WAIT

    def seek(self, position: Position) -> None:
        """Go to a file of a batch; SourceError if batches that were there are gone."""
        batch, file = _place_of(position, self.name)
        if batch > last_batch(self._folder) + 1:
            raise SourceError(
                f"{self.name}: the job had read the batches before {batch}, and {self._folder} does not know of them. Bring "
                "the whole store back, or start anew with an empty one"
            )
        self._go(batch, file)

    def _go(self, batch: int, file: int) -> None:
        self._batch, self._file, self._files = batch, file, None

    def ack(self, position: Position) -> None:
        """Remove batches acknowledged as read."""
        forget(self._folder, _place_of(position, self.name)[0], self._worker)

    def working(self) -> tuple[int, str, int, int, float] | None:
        """The progress of the query: see `timely.io.interface.TellingPartition`."""
        return self._query.working() if self._query is not None else None

    def close(self) -> None:
        """Stop the query."""
        if self._query is not None:
            self._query.stop()


class _Query:
    """Streaming query on Spark, watched by a thread."""

    def __init__(self, host: SparkHost, task: Callable[[], Follow], note: Callable[[str], None]) -> None:
        self._note = note
        self._host = host
        self._task = task
        self._thread: threading.Thread | None = None
        self._error: SparkError | None = None
        self._consumed = 0
        self._stopped = False
        self._progress: tuple[int | None, str, int] = None, "Spark starts", 0
        self._since = time.monotonic()

    def run(self, consumed: int, over: bool) -> None:
        """Start the query if needed, unless `over`; SourceError if it has failed for good."""
        self._consumed = consumed
        if self._error is not None:
            raise SourceError(str(self._error))
        if self._thread is None and not over:
            try:
                task = self._task()
            except SparkError as error:
                raise SourceError(str(error)) from error
            self._thread = threading.Thread(target=self._watch, args=(task,), daemon=True)
            self._thread.start()

    def working(self) -> tuple[int, str, int, int, float] | None:
        """Progress: current batch, activity and last batch's input rows, seconds in it."""
        if self._thread is None or not self._thread.is_alive():
            return None
        batch, what, rows = self._progress
        told = f"{what}; the last batch had {rows:,} input rows" if rows else what
        return self._consumed if batch is None else batch, told, 0, 0, time.monotonic() - self._since

    def _report(self, what: str, batch: int | None, rows: int) -> None:
        if self._progress != (batch, what, rows):
            self._progress, self._since = (batch, what, rows), time.monotonic()

    def stop(self) -> None:
        """Stop the query and wait for its thread."""
        self._stopped = True
        if self._thread is not None:
            self._thread.join(_END_SECONDS)

    def _watch(self, task: Follow) -> None:
        try:
            self._host.follow(task, lambda: self._consumed, lambda: self._stopped, self._note, self._report)
        except SparkError as error:
            self._error = error
        except Exception as error:
            self._error = SparkError(f"{type(error).__name__}: {error}")


def _place_of(position: Position, name: str) -> tuple[int, int]:
    match position:
        case None:
            return 0, 0
        case [int(batch), int(file)]:
            return batch, file
    raise SourceError(f"{name}: {position!r} is not a position of this source. Was the source changed?")


def _opener(path: str, columns: bytes, format: str, per_batch: int | None) -> Callable[[SparkSession], DataFrame]:
    def opened(session: SparkSession) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(read_schema(columns), prefer_timestamp_ntz=True)
        reader = session.readStream.format(format).schema(schema)
        if per_batch is not None:
            reader = reader.option("maxFilesPerTrigger", per_batch)
        return reader.load(path)

    return opened
