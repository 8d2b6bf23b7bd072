"""Access over Py4J to a Spark in a Java started by the Spark daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from libraries.spark.client.access import group_of
from libraries.spark.client.attach import attach
from libraries.spark.client.job_files import own_options, read_files, read_table_files, write_files
from libraries.spark.files.pinned_file import PinnedFile
from libraries.spark.protocol import Frames, JavaUp, RunTask
from libraries.spark.setup.options import is_local
from runtime.folders.scratch import Scratch

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from libraries.spark.client.publisher import Publisher

_ATTACH_SECONDS = 120.0
"""Seconds for a Java with earlier sessions to open one; otherwise it is killed.

It takes less than one, and for as long as it cannot be stopped in the work for these.
"""

_WARM_RUNS, _WARM_ROWS = 3, 1000
_WARM_QUERY = "select k, count(*) as n, sum(v) as sum, max(v) as most from input where v > 1 group by k order by k"


class JavaAccess:
    """Spark in a Java on this machine, with access to the job's files."""

    def __init__(self, up: JavaUp) -> None:
        self._spark = attach(up, _ATTACH_SECONDS)
        self.own_options = own_options(up.settings)
        self.version = self._spark.version
        self.jvm: int | None = up.pid
        self.page: str | None = self._spark.sparkContext.uiWebUrl
        self._over: dict[int, dict[int, tuple[int, int]]] = {}
        """Finished Spark jobs of each run, with task counts.

        To ask for one takes tens of calls of Java.
        """
        self._tables: dict[SparkSession, dict[str, tuple[list[PinnedFile], DataFrame]]] = {}
        """Tables of each session, as of its last run.

        To list their files and learn their columns is a job.
        """

    def warm(self) -> None:
        """Run typical queries, to make Java load and compile their classes."""
        if not is_local(self._spark.sparkContext.master or ""):  # others do not see our files
            self._spark.range(1).count()
            return
        with closing(Scratch("warm")) as scratch:
            for number in range(_WARM_RUNS):
                session = self.new_session()
                rows, folder = (
                    session.range(_WARM_ROWS).selectExpr("id % 7 as k", "id as v"),
                    str(scratch.path / f"{number}"),
                )
                write_files(rows, folder, 0, self.own_options)
                session.read.schema(rows.schema).parquet(folder).createOrReplaceTempView("input")
                write_files(session.sql(_WARM_QUERY), f"{folder}-out", 0, self.own_options)
                session.sql(_WARM_QUERY).toArrow()

    def new_session(self) -> SparkSession:
        return self._spark.newSession()

    def release(self, session: SparkSession) -> None:
        """Drop a session's tables; Java collects the rest."""
        self._tables.pop(session, None)

    def leave(self) -> None:
        """No-op: Java ends with the Spark daemon."""

    def activate(self, session: SparkSession) -> None:
        SparkSession._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)

    @contextmanager
    def running(self, session: SparkSession, task: RunTask) -> Iterator[None]:
        self._spark.sparkContext.setJobGroup(group_of(task.number), f"falkirk: {task.region}", interruptOnCancel=True)
        self._over[task.number] = {}
        try:
            yield
        finally:
            del self._over[task.number]

    def cancel(self, number: int) -> None:
        self._spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(group_of(number))

    def progress(self, number: int) -> tuple[int, int]:
        tracker = self._spark.sparkContext.statusTracker()
        over = self._over.get(number, {})
        running = []
        for job in tracker.getJobIdsForGroup(group_of(number)):
            if job not in over and (info := tracker.getJobInfo(job)) is not None:
                found = [each for stage in info.stageIds if (each := tracker.getStageInfo(stage)) is not None]
                tasks = sum(each.numCompletedTasks for each in found), sum(each.numTasks for each in found)
                if info.status in ("SUCCEEDED", "FAILED"):
                    over[job] = tasks
                else:
                    running.append(tasks)
        all_of_them = [*over.values(), *running]
        return sum(done for done, _ in all_of_them), sum(total for _, total in all_of_them)

    def read(self, session: SparkSession, frames: Frames) -> DataFrame:
        return read_files(session, frames)

    def read_table(self, session: SparkSession, name: str, files: Sequence[PinnedFile]) -> DataFrame:
        tables = self._tables.setdefault(session, {})
        known = tables.get(name)
        if known is None or known[0] != list(files):  # files that have changed are others
            known = tables[name] = list(files), read_table_files(session, files)
        return known[1]

    def write(self, frame: DataFrame, output: str, rows: int) -> None:
        write_files(frame, output, rows, self.own_options)

    @contextmanager
    def publishing(
        self, session: SparkSession, publisher: Publisher
    ) -> Iterator[Callable[[DataStreamWriter], StreamingQuery]]:
        yield lambda writer: writer.foreachBatch(publisher).start()

    def gone(self, error: BaseException) -> bool:
        return lost_java(error)

    def lost(self, error: BaseException) -> bool:
        return True  # the daemon says how Java has ended

    def intact(self, session: SparkSession) -> bool:
        return True  # it is lost with its Java only


def lost_java(error: BaseException) -> bool:
    """True for an error due to the loss of the connection to Java."""
    return isinstance(error, ConnectionError | EOFError) or type(error).__module__.startswith("py4j")
