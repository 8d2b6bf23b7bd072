"""Batch query of Spark read once, a fixed number of partitions per epoch.

    FOLDER/whole/                        what Spark has written, durable before any of it is read, less what was dealt out
    FOLDER/dealt-<number>/               a batch that is being made of it
    FOLDER/batch-<number>/w<worker>/     a batch, which never changes: see `libraries.spark.files.batches`
    FOLDER/end                           the last one

Where a file goes follows from its name alone. So who died in the midst of that is followed by somebody who does the rest, and
the query is not run again, which might have other partitions.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow.parquet as pq

from libraries.spark.dataflow.placement import home
from libraries.spark.dataflow.runner import SparkRunner
from libraries.spark.dataflow.stream_source import StreamShare
from libraries.spark.errors import SparkError
from libraries.spark.files.batches import batch_folder, end, last_batch, set_end, share_folder
from libraries.spark.files.parquet import FILE_ROWS, named_by, output_name, sync_folder, write_output
from libraries.spark.setup.options import SparkOptions
from timely.data.codec.tables import read_table
from timely.errors import SourceError
from timely.io.interface import Files, Partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WHOLE, _DEALT = "whole", "dealt-"
_END_SECONDS = 10.0


class PartitionedQuery:
    """DataFrame read by all workers, `per_epoch` partitions an epoch; not streaming.

    The position of a worker is the epoch, and the file of it.

    Args:
        what: a function from a SparkSession to the DataFrame.
        per_epoch: how many partitions, in their order, make an epoch.
        options: where Spark runs, and what is expected of it.
    """

    rereadable: ClassVar[bool] = True
    repeats: ClassVar[bool] = True

    def __init__(self, what: Callable[..., DataFrame], per_epoch: int, options: SparkOptions) -> None:
        self._what = what
        self._per_epoch = per_epoch
        self._options = options
        self._place: tuple[Files, str] | None = None

    def with_files(self, files: Files, name: str) -> PartitionedQuery:
        """The same source, with a folder for what Spark writes."""
        same = copy(self)
        same._place = files, name
        return same

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """This worker's share of all epochs; one worker's has the query run, too."""
        if self._place is None:
            raise SourceError("a query of Spark keeps files, and a simulation has no place for them: run the job")
        files, name = self._place
        folder = files.folder(f"{name}/partitions")
        reading = None
        if worker == home(workers):
            runner = SparkRunner(name, self._what, {}, self._options, "source")
            reading = QueryReading(runner, files, name, folder, self._per_epoch, workers)
        return [StreamShare(f"{name} [{worker + 1}/{workers}]", folder, worker, reading)]


class QueryReading:
    """Query run on Spark by a thread, which then deals its partitions out."""

    def __init__(
        self, runner: SparkRunner, files: Files, name: str, folder: Path, per_epoch: int, workers: int
    ) -> None:
        self.durable = files.durable
        self.stopped = False
        self._runner, self._files, self._name = runner, files, name
        self._folder, self._per_epoch, self._workers = folder, per_epoch, workers
        self._thread: threading.Thread | None = None
        self._error: SparkError | None = None
        self._progress: tuple[str, int, int] = "Spark starts", 0, 0
        self._since = time.monotonic()

    def run(self, consumed: int, over: bool) -> None:
        """Start the query if needed, unless `over`; SourceError if it has failed for good."""
        if self._error is not None:
            raise SourceError(str(self._error))
        if self._thread is None and not over:
            self._thread = threading.Thread(target=self._read, name=f"falkirk-{self._name}", daemon=True)
            self._thread.start()

    def working(self) -> tuple[int, str, int, int, float] | None:
        """Progress: epoch 0, the current activity, tasks done and known, seconds in it."""
        if self._thread is None or not self._thread.is_alive():
            return None
        return 0, *self._progress, time.monotonic() - self._since

    def stop(self) -> None:
        """Stop the query."""
        self.stopped = True
        if self._thread is not None:
            self._thread.join(_END_SECONDS)

    # The services that a run asks for: see `timely.operators.base.JobContext`.

    def folder(self, name: str, living: bool = False) -> Path:
        """Folder of the source."""
        return self._files.folder(name)

    def report(self, what: str, done: int = 0, total: int = 0) -> None:
        """Note the progress of Spark."""
        if what != self._progress[0]:
            self._since = time.monotonic()
        self._progress = what, done, total

    def note(self, text: str) -> None:
        """Send the user a note."""
        self._files.note(f"{self._name}: {text}")

    def _read(self) -> None:
        try:
            if not (self._folder / _WHOLE).is_dir() and end(self._folder) is None:
                self._run()
            deal_out(self._folder, self._per_epoch, self._workers, self.durable)
        except SparkError as error:
            self._error = error
        except Exception as error:
            self._error = SparkError(f"{type(error).__name__}: {error}")

    def _run(self) -> None:
        """Have Spark write all partitions, and make that durable as a whole."""
        for left in self._folder.glob(f"{named_by(0)}-*"):
            shutil.rmtree(left, ignore_errors=True)
        output = self._folder / output_name(0)
        written = self._runner.run(self, {}, {}, str(output), FILE_ROWS)
        if isinstance(written, bytes):
            written = write_output(output, [read_table(written)], FILE_ROWS)
        if written:
            output = Path(written[0][0]).parent
        output.mkdir(exist_ok=True)
        _tidy(output, self.durable)
        output.rename(self._folder / _WHOLE)
        if self.durable:
            sync_folder(self._folder)


def deal_out(folder: Path, per_epoch: int, workers: int, durable: bool) -> None:
    """Deal Spark's complete output out to `workers`, `per_epoch` partitions a batch.

    What was begun before is gone on with. Raises SparkError if that was with another `per_epoch`.
    """
    whole = folder / _WHOLE
    files = sorted((_partition(each), each) for each in whole.glob("part-*.parquet"))
    begun = [int(each.name.removeprefix(_DEALT)) for each in folder.glob(f"{_DEALT}*")]
    done = last_batch(folder)
    if files and files[0][0] // per_epoch <= done:
        raise SparkError(
            f"the first {done + 1} epochs were dealt out with another per_epoch= than {per_epoch}: take that again, or start "
            "anew with an empty store"
        )
    last = max([done, *begun, *(partition // per_epoch for partition, _ in files)])
    for number in range(done + 1, last + 1):
        making = folder / f"{_DEALT}{number:012}"
        for worker in range(workers):
            share_folder(making, worker).mkdir(parents=True, exist_ok=True)
        for partition, file in files:
            if partition // per_epoch == number:
                file.rename(share_folder(making, partition % workers) / file.name)
        if durable:
            for worker in range(workers):
                sync_folder(share_folder(making, worker))
            sync_folder(making)
        making.rename(batch_folder(folder, number))
        if durable:
            sync_folder(folder)
    set_end(folder, last)
    shutil.rmtree(whole, ignore_errors=True)


def _partition(file: Path) -> int:
    """Partition number in the name of a file written by Spark."""
    return int(file.name.split("-")[1].partition(".")[0])


def _tidy(folder: Path, durable: bool) -> None:
    """Remove all but files with rows; make these durable."""
    for path in folder.iterdir():
        if not path.name.startswith("part-") or path.suffix != ".parquet" or not pq.read_metadata(path).num_rows:
            path.unlink()
        elif durable:
            with path.open("rb") as file:
                os.fsync(file.fileno())
    if durable:
        sync_folder(folder)
