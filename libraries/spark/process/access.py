"""The access that a child has to a Spark: `java_access` to one in a Java of its own, `connect` to one behind Spark Connect."""

from __future__ import annotations

import os
import uuid
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from libraries.spark.files.pinned_file import PinnedFile
    from libraries.spark.process.protocol import Frames, RunTask
    from libraries.spark.process.queries import Publisher


class Access(Protocol):
    """The part of a Spark that runs and queries need beyond its sessions. Methods may be called by several threads."""

    version: str
    jvm: int | None
    """The process of its Java on this machine."""
    page: str | None
    """The address of Spark's own page, if it has one."""
    own_options: dict[str, str]
    """The options of the files that it writes for a job (`libraries.spark.process.own_files`)."""

    def new_session(self) -> SparkSession:
        """A session of its own: views and settings are not shared."""

    def release(self, session: SparkSession) -> None:
        """Nobody uses this session any more."""

    def leave(self) -> None:
        """Release all sessions, at once: the keeper, which would, is gone."""

    def activate(self, session: SparkSession) -> None:
        """Make it the session of this thread, as far as PySpark and Spark themselves look for one."""

    def running(self, session: SparkSession, task: RunTask) -> AbstractContextManager[None]:
        """Inside, all that this thread has Spark do in the session belongs to this run."""

    def cancel(self, number: int) -> None:
        """End what Spark does for a run, and what the run is about to have it do."""

    def progress(self, number: int) -> tuple[int, int]:
        """The tasks of a run that are done, and those known so far."""

    def read(self, session: SparkSession, frames: Frames) -> DataFrame:
        """The rows of an input. Their schema is known, so no file need be opened to learn it."""

    def read_table(self, session: SparkSession, name: str, files: Sequence[PinnedFile]) -> DataFrame:
        """The rows of the files of the table `name`; folders `name=value` are columns."""

    def write(self, frame: DataFrame, output: str, rows: int) -> None:
        """Write files `part-*.parquet`, of at most `rows` rows, or (0) of any number, into the new folder `output`."""

    def publishing(
        self, session: SparkSession, publisher: Publisher
    ) -> AbstractContextManager[Callable[[DataStreamWriter], StreamingQuery]]:
        """Start of a query, by its writer. Inside, the micro-batches that it brings are published."""

    def gone(self, error: BaseException) -> bool:
        """True if the error says that Spark, or the connection to it, is gone."""

    def lost(self, error: BaseException) -> bool:
        """True if such an error says nothing of what was run: others have ended Spark, or the connection."""

    def intact(self, session: SparkSession) -> bool:
        """False if Spark has lost a session that it had, so that whatever it says now may be due to that.

        Raises what is raised where Spark is gone.
        """


def group_of(number: int) -> str:
    """The group of Spark's jobs that belong to a run of this process, of which another one may have had the same number."""
    return f"falkirk-{_unique(os.getpid())}-{number}"


@cache
def _unique(process: int) -> str:
    """Of each process, forks too, a word that no other one has."""
    return uuid.uuid4().hex
