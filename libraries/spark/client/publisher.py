"""Publication of a query's micro-batches: each a folder that appears atomically.

A batch whose folder is there is not written again: what was read of it stays true, even if the query is not deterministic.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from libraries.spark.client.job_files import write_files
from libraries.spark.files.batches import CHECKPOINT, batch_folder, last_batch, share_folder
from libraries.spark.files.parquet import sync_folder
from libraries.spark.protocol import Follow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


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
                raise Stopped
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


class Stopped(Exception):
    """Query cancelled by the worker."""
