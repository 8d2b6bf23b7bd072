"""Interface to a Spark: over Py4J (`java_access`), or over gRPC (`connect`)."""

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

    from libraries.spark.client.publisher import Publisher
    from libraries.spark.files.pinned_file import PinnedFile
    from libraries.spark.protocol import Frames, RunTask


class Access(Protocol):
    """Operations of a Spark needed by runs and queries beyond sessions; thread-safe."""

    version: str
    jvm: int | None
    """Process id of its Java on this machine; None if it is elsewhere."""
    page: str | None
    """Address of Spark's own page, if it has one."""
    own_options: dict[str, str]
    """Options of the files written by Spark for a job.

    See `libraries.spark.client.job_files`.
    """

    def new_session(self) -> SparkSession:
        """New session with its own views and settings."""

    def release(self, session: SparkSession) -> None:
        """Release a session after its last use."""

    def leave(self) -> None:
        """Release all sessions at once, after the loss of the Spark daemon."""

    def activate(self, session: SparkSession) -> None:
        """Make it the current session of this thread, for PySpark and for Spark."""

    def running(self, session: SparkSession, task: RunTask) -> AbstractContextManager[None]:
        """Attribute all jobs of this thread in the session to this run, as a context."""

    def cancel(self, number: int) -> None:
        """Cancel a run's jobs, present and future."""

    def progress(self, number: int) -> tuple[int, int]:
        """Completed and known tasks of a run."""

    def read(self, session: SparkSession, frames: Frames) -> DataFrame:
        """Rows of an input, with a known schema.

        So no file need be opened to learn it.
        """

    def read_table(self, session: SparkSession, name: str, files: Sequence[PinnedFile]) -> DataFrame:
        """Rows of the files of table `name`; folders `name=value` are columns."""

    def write(self, frame: DataFrame, output: str, rows: int) -> None:
        """Write files `part-*.parquet` of at most `rows` rows into a new folder `output`.

        0 stands for any number of rows.
        """

    def publishing(
        self, session: SparkSession, publisher: Publisher
    ) -> AbstractContextManager[Callable[[DataStreamWriter], StreamingQuery]]:
        """Context with a function to start a query; its micro-batches are published."""

    def gone(self, error: BaseException) -> bool:
        """True for an error caused by the loss of Spark, or of the connection to it."""

    def lost(self, error: BaseException) -> bool:
        """True if such an error is independent of the query.

        Others have ended Spark, or the connection.
        """

    def intact(self, session: SparkSession) -> bool:
        """False if Spark has lost an existing session, the likely cause of its errors.

        Raises what is raised where Spark is gone.
        """


def group_of(number: int) -> str:
    """Spark job group of a run, unique across processes.

    Another process may have had a run of the same number.
    """
    return f"falkirk-{_unique(os.getpid())}-{number}"


@cache
def _unique(process: int) -> str:
    """Unique token of a process, forks included."""
    return uuid.uuid4().hex
