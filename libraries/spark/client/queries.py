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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import cloudpickle

from libraries.spark.client.access import Access
from libraries.spark.client.functions import check_types
from libraries.spark.client.publisher import Publisher
from libraries.spark.client.region_session import current
from libraries.spark.client.streaming import has_read_all, reporting_end, streaming, triggered
from libraries.spark.errors import SparkLost
from libraries.spark.files.batches import CHECKPOINT, last_batch, set_end
from libraries.spark.protocol import Follow, QueryProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOCK_SECONDS = 30.0


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
            with _locked(Path(task.folder)):
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
            with reporting_end(frame.sparkSession) if task.now else nullcontext():
                query = start(writer)
            publisher.begun(query)
            try:
                query.awaitTermination()
            except Exception:
                if publisher.error is not None:
                    raise publisher.error from None
                raise
        return query


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
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
