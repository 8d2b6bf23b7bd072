"""Access to a Spark Connect server, over gRPC.

The server may see the job's files or not. If it does, names of files go to it, as to a Spark of one's own; if not, rows go
there and come back as Arrow, and the files are read and written here. So for everybody else a run is from files to files.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import random
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pyarrow as pa
import pyarrow.dataset as pads
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql import DataFrame
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession as ConnectSession
from pyspark.sql.pandas.types import from_arrow_schema

from libraries.spark.client.failures import error_text
from libraries.spark.client.handover import Handover
from libraries.spark.client.job_files import own_options, read_files, read_table_files, write_files
from libraries.spark.errors import SparkError, SparkLost
from libraries.spark.files.parquet import carried_schema, gathered, write_output
from libraries.spark.files.pinned_file import PinnedFile
from libraries.spark.files.schemas import read_schema
from libraries.spark.protocol import Frames, Release, RunTask, ServerOrders, ServerUp, session_id
from libraries.spark.versions import arrow_schema, check_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from libraries.spark.client.publisher import Publisher

_CHANNEL = [
    ("grpc.use_local_subchannel_pool", 1),  # who failed to connect must not make others wait
    ("grpc.initial_reconnect_backoff_ms", 100),  # within the tries of a call there must be some of a connection
    ("grpc.max_reconnect_backoff_ms", 250),
]
_RETRIES = 3
"""Retries of a call to an unresponsive server, within a second.

No server starts anew in that time.
"""

_AGAIN_SECONDS = 0.2
_LOOK_SECONDS = 0.02
_END_SECONDS = 120.0
"""Seconds to wait for the end of interrupted work in a server's session."""

_BUSY_SECONDS = 2.0
_MOST_BUSY_SECONDS = 60.0
_STOPPING_SECONDS = 20.0
"""Seconds to wait for the end of a stopping server."""

_LATE = "Python worker failed to connect back"
_STOPPING = re.compile(
    "SparkContext was shut down|SparkContext has been shutdown|stopped SparkContext|Application error processing RPC"
)
"""Error messages of a stopping server, as after a heap overflow; it still answers."""

_REFUSED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED)

logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # what it has to say is said by the exceptions


class ConnectAccess:
    """Sessions on a server; waits for the server, and calls `waits` with the reason.

    It waits as long as the orders say.

    Raises SparkError if it does not come, or refuses; `opens` is called before each session is opened.
    """

    def __init__(self, up: ServerUp, opens: Callable[[], None], waits: Callable[[str], None]) -> None:
        self._server = up.server
        self.own_options = own_options(up.server.settings)
        self._root = up.root
        self._opens = opens
        self._numbers = itertools.count()
        self._reads = self._writes = up.server.shared
        """True if the server reads, and writes, the job's files; None: not known yet.

        It writes them as Spark does.
        """
        self._running: dict[int, Any] = {}
        self._stages: dict[str, dict[int, tuple[int, int]]] = {}
        """Completed and total tasks of each session's stages."""
        self._lock = threading.Lock()
        self._waits = waits
        self._over = False
        """True once the server has ended, or is about to."""
        self.version = self._first()
        self.jvm = up.pid
        self.page: str | None = None

    def new_session(self) -> SparkSession:
        self._opens()
        session: SparkSession = _session(self._server, session_id(self._root, next(self._numbers)))
        known = self._stages[session.client._session_id] = {}

        def progress(stages: Any = (), **_: Any) -> None:
            for stage in stages or ():
                known[stage.stage_id] = stage.num_completed_tasks, stage.num_tasks

        handler: Any = progress
        session.registerProgressHandler(handler)
        for name, value in self._server.settings.items():
            try:
                session.conf.set(name, value)
            except Exception as error:
                if _silent(error) or _stopping(error) or _status(error) in _REFUSED:
                    raise
                raise SparkError(
                    f"the setting {name!r} cannot be made over Spark Connect: {error_text(error)}"
                ) from error
        return session

    def release(self, session: SparkSession) -> None:
        client = session.client
        self._stages.pop(client._session_id, None)
        with suppress(Exception):  # then the server has forgotten it, or will
            _end(session)
            client.close()

    def leave(self) -> None:
        with suppress(Exception):
            release(Release(self._server, self._root, next(self._numbers)))

    def activate(self, session: SparkSession) -> None:
        ConnectSession._active_session.session = session

    @contextmanager
    def running(self, session: SparkSession, task: RunTask) -> Iterator[None]:
        self._probe(session, Path(f"{task.output}-probe"))
        with self._lock:
            self._running[task.number] = session
        self._stages[session.client._session_id].clear()
        try:
            yield
        finally:
            with self._lock:
                del self._running[task.number]

    def cancel(self, number: int) -> None:
        with self._lock:
            session = self._running.get(number)
        if session is not None:  # the function may be about to ask for more
            threading.Thread(target=_end, args=(session,), daemon=True).start()

    def progress(self, number: int) -> tuple[int, int]:
        with self._lock:
            session = self._running.get(number)
        stages = list(self._stages.get(session.client._session_id, {}).values()) if session is not None else []
        return sum(done for done, _ in stages), sum(total for _, total in stages)

    def read(self, session: SparkSession, frames: Frames) -> DataFrame:
        if self._reads or not frames.files:
            return read_files(session, frames)
        arrow = read_schema(frames.schema)
        schema = from_arrow_schema(arrow, prefer_timestamp_ntz=True)
        return _all(session.createDataFrame(table, schema) for table in gathered(frames.files, arrow))

    def read_table(self, session: SparkSession, name: str, files: Sequence[PinnedFile]) -> DataFrame:
        if self._reads:
            return read_table_files(session, files)
        parts = []
        for base in dict.fromkeys(file.base for file in files):
            paths = [file.path for file in files if file.base == base]
            table = pads.dataset(paths, format="parquet", partitioning="hive", partition_base_dir=base).to_table()
            table = table.cast(carried_schema(table.schema)).replace_schema_metadata(None)
            parts.append(session.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True)))
        return functools.reduce(DataFrame.unionByName, parts)

    def write(self, frame: DataFrame, output: str, rows: int) -> None:
        if self._writes:
            write_files(frame, output, rows, self.own_options)
            if not os.path.isdir(output):
                raise SparkError(
                    f"the Spark Connect server has written into {output}, and nothing is there: it does not see the job's "
                    "files, as shared=True says. Leave that out, or have both see one folder (FALKIRK_FILES)"
                )
            return
        schema = arrow_schema(frame.schema)
        write_output(Path(output), _tables(frame, schema), rows)

    @contextmanager
    def publishing(
        self, session: SparkSession, publisher: Publisher
    ) -> Iterator[Callable[[DataStreamWriter], StreamingQuery]]:
        if self._server.sail:
            raise SparkError(
                "Sail has no streaming queries: take Spark for this source, with other SparkOptions; regions of the same job "
                "may run on Sail"
            )
        self._probe(session, publisher.folder / f".probe-{uuid.uuid4().hex}")
        if not self._writes:
            raise SparkError(
                "a streaming query keeps its checkpoint and its batches among the job's files, which the Spark Connect "
                "server does not see: have both see one folder (FALKIRK_FILES), or take a Spark of the job's own"
            )
        with Handover(publisher) as handover:
            yield lambda writer: self._started(writer.foreachBatch(handover.function), publisher)

    def gone(self, error: BaseException) -> bool:
        if _stopping(error):
            self._wait_for_the_end()
            return True
        return _silent(error)

    def lost(self, error: BaseException) -> bool:
        return _silent(error)

    def intact(self, session: SparkSession) -> bool:
        try:
            session.conf.get("spark.sql.session.timeZone")
        except Exception as error:
            if self.gone(error):
                raise
            return False
        return True

    def _first(self) -> str:
        """Wait for the server and open a first session; its Spark version."""
        where = self._server.url.partition("/;")[0]
        deadline = time.monotonic() + self._server.seconds
        reported = False
        while True:
            try:
                session = self.new_session()
                version = session.version
                self.release(session)
                if found := re.match(r"(\d+)\.(\d+)", version):
                    check_version((int(found[1]), int(found[2])), f"the Spark Connect server {where} has")
                self._over = False
                return version
            except Exception as error:
                if isinstance(error, SparkError):
                    raise
                if _status(error) in _REFUSED:
                    raise SparkError(f"the Spark Connect server {where} refuses: {error_text(error)}") from error
                if not self.gone(error):
                    raise
                text = f"the Spark Connect server {where} does not answer: {error_text(error)}"
                if time.monotonic() > deadline:
                    raise SparkError(f"{text}; it was waited for, {self._server.seconds:g} s") from error
                if not reported:
                    reported = True
                    self._waits(f"{text}; it is waited for")
            time.sleep(_AGAIN_SECONDS)

    def _wait_for_the_end(self) -> None:
        """Wait until a stopping server is unreachable.

        Everything begun there meanwhile fails, and would count as tried.
        """
        deadline = time.monotonic() + _STOPPING_SECONDS
        while not self._over and time.monotonic() < deadline:
            try:
                self.release(self.new_session())
            except Exception as error:
                self._over = _silent(error)
            time.sleep(_AGAIN_SECONDS)
        self._over = True

    def _started(self, writer: DataStreamWriter, publisher: Publisher) -> StreamingQuery:
        """Start the query; wait for a busy server as for a missing one.

        Spark starts a Python process for each query, and gives up after 10 s. Nothing of the query has begun then. Others may
        be as late at the same time, so each try waits longer than the one before, by chance: else all would fail for ever.
        """
        deadline = time.monotonic() + self._server.seconds
        pause = _BUSY_SECONDS
        while True:
            try:
                return writer.start()
            except Exception as error:
                if _LATE not in str(error) or time.monotonic() > deadline:
                    raise
                self._waits(f"the Spark Connect server is busy, and the query is tried again: {error_text(error)}")
            if not publisher.pause(random.uniform(pause / 2, pause)):
                raise SparkLost("nobody wants more of the query")
            pause = min(2 * pause, _MOST_BUSY_SECONDS)

    def _probe(self, session: SparkSession, folder: Path) -> None:
        """Test the server's read and write access to local files, with Spark's names.

        One that is not Spark may heed none of the options of our own files, and rows from it come back over the connection.
        """
        if self._reads is not None:
            return
        token = uuid.uuid4().hex
        folder.mkdir()
        reads = writes = False
        try:
            (folder / "token").write_text(token)
            frame = session.read.text(str(folder / "token"))
            reads = [row[0] for row in frame.collect()] == [token]
            frame.write.text(str(folder / "back"))
            writes = reads and any(token in path.read_text() for path in (folder / "back").glob("part-*"))
        except Exception as error:
            if self.gone(error) or not self.intact(session):
                raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._reads, self._writes = reads, writes


def release(message: Release) -> None:
    """Release the sessions of a dead client process, after their work has ended."""
    sessions = [_session(message.server, session_id(message.root, number)) for number in range(message.count)]
    if all(map(_interrupt, sessions)):
        for session in sessions:
            _end(session)


def _end(session: Any) -> None:
    """Interrupt a session's work, wait for its end, and release the session.

    The server's planning goes on for a while after it was interrupted.
    """
    deadline = time.monotonic() + _END_SECONDS
    while _interrupt(session) and _runs(session) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    with suppress(Exception):  # then the server has forgotten it, or will
        session.client.release_session()


def _interrupt(session: Any) -> bool:
    """Interrupt a session's work; False without a server.

    If the server comes back it has no sessions.
    """
    try:
        session.client.interrupt_all()
    except Exception as error:
        return not _silent(error)
    return True


def _runs(session: Any) -> bool:
    """True if work in a session is known to run, interrupted or not."""
    try:
        from pyspark.sql.connect.proto.base_pb2 import GetStatusResponse

        found = session.client._get_operation_statuses().operation_statuses
    except Exception:  # there is no such session, or one of the two is older than 4.2
        return False
    return any(each.state == GetStatusResponse.OperationStatus.OPERATION_STATE_RUNNING for each in found)


def _session(server: ServerOrders, identity: str) -> Any:
    channel = DefaultChannelBuilder(server.url, list(_CHANNEL))
    channel.set(DefaultChannelBuilder.PARAM_SESSION_ID, identity)
    session = ConnectSession(connection=channel)
    session.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])
    return session


def _silent(error: BaseException) -> bool:
    """True for the error of a call to an unreachable server."""
    return bool(_status(error) == grpc.StatusCode.UNAVAILABLE)


def _stopping(error: BaseException) -> bool:
    """True for an error of a stopping server."""
    return isinstance(error, SparkConnectGrpcException) and _STOPPING.search(str(error)) is not None


def _status(error: BaseException) -> Any:
    """gRPC status of a failed call; None for another error."""
    if isinstance(error, SparkConnectGrpcException):
        return error.getGrpcStatusCode()
    return error.code() if isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call) else None


def _all(frames: Iterator[DataFrame]) -> DataFrame:
    """Union of DataFrames, as a balanced tree to keep the plan shallow."""
    found = list(frames)
    while len(found) > 1:
        found = [functools.reduce(DataFrame.union, found[at : at + 2]) for at in range(0, len(found), 2)]
    return found[0]


def _tables(frame: DataFrame, schema: pa.Schema) -> Iterator[pa.Table]:
    """Rows of a DataFrame, streamed as tables."""
    remote: Any = frame
    client = remote.sparkSession.client
    for each in client.to_table_as_iterator(remote._plan.to_proto(client), remote._plan.observations):
        if isinstance(each, pa.Table):
            yield each.cast(schema)
