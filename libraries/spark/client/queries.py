"""Streaming queries on Spark, each micro-batch published as a folder atomically.

    FOLDER/checkpoint/                   what Spark knows: the offsets of each batch, which were committed, state
    FOLDER/batch-<id>/w<worker>/<n>.parquet
    FOLDER/end                           the last batch; there when the query has ended by itself

Spark writes down which input a batch is of before it runs it, and that it is done after. What dies in between it runs again,
with the same number over the same input. So a batch whose folder is there is not written again: what was read of it stays
true, even if the query is not deterministic. Whoever removes folders leaves the last one, by which that is known.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import cloudpickle
import pyarrow.parquet as pq

from libraries.spark.client.access import Access
from libraries.spark.client.job_files import write_files
from libraries.spark.client.region_session import current
from libraries.spark.client.streaming import has_read_all, noting_the_end
from libraries.spark.client.tasks import call, check_types, described
from libraries.spark.errors import SparkError, SparkLost
from libraries.spark.files.batches import CHECKPOINT, batch_folder, last_batch, set_end, share_folder
from libraries.spark.files.parquet import sync_folder
from libraries.spark.protocol import Follow, QueryProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_LOCK_SECONDS = 30.0


class _Stopped(Exception):
    """Query cancelled by the worker."""


class Queries:
    """Runs streaming queries on one Spark, each in its own session.

    `tell(number, n)`: n batches of it are there.
    """

    def __init__(self, access: Access, tell: Callable[[int, int], None]) -> None:
        self._access = access
        self._tell = tell
        self._running: dict[int, Publisher] = {}
        self._looked: dict[int, QueryProgress] = {}
        self._lock = threading.Lock()

    def run(self, task: Follow) -> tuple[tuple[str, int], ...]:
        """Run the query until it ends, or is cancelled.

        Raises SparkError for what would fail again, and what Spark raises otherwise.
        """
        publisher = Publisher(task, lambda batches: self._tell(task.number, batches), self._access.own_options)
        with self._lock:
            self._running[task.number] = publisher
        try:
            with _alone(Path(task.folder)):
                self._follow(task, publisher)
        finally:
            with self._lock:
                del self._running[task.number]
                self._looked.pop(task.number, None)
        return ()

    def consumed(self, number: int, batch: int) -> None:
        """Record the batches before `batch` as read."""
        with self._lock:
            publisher = self._running.get(number)
        if publisher is not None:
            publisher.read(batch)

    def look(self) -> list[QueryProgress]:
        """Changes in the progress of queries since the last call."""
        with self._lock:
            running = list(self._running.items())
        found = []
        for number, publisher in running:
            with suppress(Exception):  # it ends, or Spark does
                now = QueryProgress(number, *publisher.look())
                if now != self._looked.get(number):
                    self._looked[number] = now
                    found.append(now)
        return found

    def cancel(self, number: int) -> bool:
        """Stop a query; False if there is none of this number."""
        with self._lock:
            publisher = self._running.get(number)
        if publisher is None:
            return False
        threading.Thread(target=publisher.stop, daemon=True).start()  # the query may take its time
        return True

    def _follow(self, task: Follow, publisher: Publisher) -> None:
        folder = Path(task.folder)
        for left in folder.glob(".batch-*"):
            shutil.rmtree(left, ignore_errors=True)
        session = self._access.new_session()
        try:
            query = self._run_in(session, task, publisher)
            if not self._access.intact(session):  # with which the query has ended
                raise SparkLost("Spark has lost the session of the query")
            if not (publisher.stopped or (task.now and has_read_all(query, last_batch(folder)))):
                raise SparkLost("somebody else has stopped the query")
        except Exception:
            if not publisher.stopped:
                raise
        finally:
            self._access.release(session)
        if task.now and not publisher.stopped:
            set_end(folder, last_batch(folder))

    def _run_in(self, session: SparkSession, task: Follow, publisher: Publisher) -> StreamingQuery:
        """Run the query in a session to its end; a batch's original error is raised."""
        function = cloudpickle.loads(task.function)
        with current(self._access, session):
            frame = streaming(session, function, task.query)
        check_types(frame)
        writer = frame.writeStream.queryName(f"falkirk: {task.name} {uuid.uuid4().hex}")
        writer = writer.option("checkpointLocation", str(publisher.folder / CHECKPOINT))
        writer = triggered(writer, task.mode, task.now, task.every)
        with self._access.publishing(session, publisher) as start:
            with noting_the_end(frame.sparkSession) if task.now else nullcontext():
                query = start(writer)
            publisher.begun(query)
            try:
                query.awaitTermination()
            except Exception:
                if publisher.error is not None:
                    raise publisher.error from None
                raise
        return query


def streaming(session: SparkSession, function: Callable[[SparkSession], DataFrame], query: str | None) -> DataFrame:
    """Streaming DataFrame of a user's function, or of SQL over it.

    Raises SparkError if it is no stream.
    """
    frame = call(function, session)
    if not frame.isStreaming:
        raise SparkError(
            f"{described(function)} returned a DataFrame that is not a stream: make it with session.readStream, or use "
            "Parquet(...) for files that are all there"
        )
    if query is None:
        return frame
    frame.createOrReplaceTempView("input")
    return session.sql(query)


def triggered(writer: DataStreamWriter, mode: str, now: bool, every: float | None) -> DataStreamWriter:
    """Writer of a streaming DataFrame with output mode and trigger set.

    See `libraries.spark.protocol.Follow`.
    """
    writer = writer.outputMode(mode)
    if now:
        return writer.trigger(availableNow=True)
    return writer if every is None else writer.trigger(processingTime=f"{round(every * 1000)} milliseconds")


class Publisher:
    """Publisher of a query's micro-batches as files; a `foreachBatch` function."""

    def __init__(self, task: Follow, tell: Callable[[int], None], options: Mapping[str, str]) -> None:
        self._task = task
        self._tell = tell
        self.folder = Path(task.folder)
        self.rows = task.rows
        self.options = dict(options)
        self._query: StreamingQuery | None = None
        self._consumed = task.consumed
        self._changed = threading.Condition()
        self._synced: dict[str, int] = {}
        self._waits = False
        """True while a batch waits for earlier ones to be read."""
        self.stopped = False
        self.error: Exception | None = None
        """Original error of a batch; Spark wraps it in much text."""

    def begun(self, query: StreamingQuery) -> None:
        """Record the start of the query; stop it if it is cancelled already."""
        with self._changed:
            self._query = query
            stopped = self.stopped
        if stopped:
            query.stop()

    def read(self, batch: int) -> None:
        """Record the batches before `batch` as read."""
        with self._changed:
            self._consumed = max(self._consumed, batch)
            self._changed.notify_all()

    def look(self) -> tuple[int, str, int]:
        """Progress: current batch, activity, input rows of the last batch."""
        batch = last_batch(self.folder) + 1
        query = self._query
        if query is None:
            return batch, "the query starts", 0
        last = query.lastProgress
        rows = last.numInputRows if last is not None else 0
        if self._waits:
            return batch, f"waits until the job has read batch {batch - self._task.ahead}", rows
        status = query.status
        if status["isTriggerActive"] and status["isDataAvailable"]:
            return batch, "Spark runs the batch", rows
        if self._task.every is not None and not status["isTriggerActive"]:
            return batch, "waits until it is time for the next batch", rows
        return batch, "waits for new input", rows

    def pause(self, seconds: float) -> bool:
        """Wait for a time; False at once if the query is cancelled."""
        with self._changed:
            return not self._changed.wait_for(lambda: self.stopped, seconds)

    def stop(self) -> None:
        """End the query, and before it the wait for a batch to be read."""
        with self._changed:
            self.stopped = True
            self._changed.notify_all()
            query = self._query
        if query is not None:
            with suppress(Exception):
                query.stop()

    def __call__(self, frame: DataFrame, number: int) -> None:
        try:
            if self.turn(number):
                hidden = self.folder / f".batch-{uuid.uuid4().hex}"
                write_files(frame, str(hidden), self.rows, self.options)
                self.publish(hidden, number)
        except Exception as error:
            self.error = error
            raise

    def turn(self, number: int) -> bool:
        """Wait for permission to write a batch; False if it exists.

        Raises an error if the query is cancelled.
        """
        if number <= last_batch(self.folder):
            self._tell(number + 1)
            return False
        with self._changed:
            self._waits = number >= self._consumed + self._task.ahead
            self._changed.wait_for(lambda: self.stopped or number < self._consumed + self._task.ahead)
            self._waits = False
            if self.stopped:
                raise _Stopped
        return True

    def publish(self, hidden: Path, number: int) -> None:
        """Publish a batch written by Spark into the folder `hidden`."""
        self._deal_out(hidden)
        if self._task.durable:
            sync_tree(hidden, {})
            # The batch must not outlive what says which input it is of.
            sync_tree(self.folder / CHECKPOINT, self._synced)
        hidden.rename(batch_folder(self.folder, number))
        if self._task.durable:
            sync_folder(self.folder)
        self._tell(number + 1)

    def _deal_out(self, hidden: Path) -> None:
        """Move a batch's files into a folder per worker, empty ones included."""
        hidden.mkdir(exist_ok=True)  # Spark makes none where there are no rows
        for worker in range(self._task.workers):
            share_folder(hidden, worker).mkdir()
        count = 0
        for path in sorted(hidden.glob("part-*.parquet")):
            if pq.read_metadata(path).num_rows:
                path.rename(share_folder(hidden, count % self._task.workers) / f"{count:06}.parquet")
                count += 1
        for left in hidden.iterdir():
            if left.is_file():  # without rows, and Hadoop's checksums
                left.unlink()


def sync_tree(folder: Path, known: dict[str, int]) -> None:
    """Make all files in a folder durable, except those in `known`, by path and time."""
    for place, _, names in os.walk(folder):
        fresh = False
        for name in names:
            path = os.path.join(place, name)
            with suppress(FileNotFoundError):  # Spark removes old ones meanwhile
                changed = os.stat(path).st_mtime_ns
                if known.get(path) != changed:
                    descriptor = os.open(path, os.O_RDONLY)
                    try:
                        os.fsync(descriptor)
                    finally:
                        os.close(descriptor)
                    known[path] = changed
                    fresh = True
        if fresh or place not in known:
            known[place] = 0
            with suppress(FileNotFoundError):
                sync_folder(Path(place))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; a dead worker's process may still have it."""
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SparkLost(f"another process runs the query that keeps its files in {folder}") from None
                time.sleep(0.1)
        yield
    finally:
        os.close(descriptor)
