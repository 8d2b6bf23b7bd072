"""Client process of a worker for Spark, forked from the Spark daemon.

The daemon is `libraries.spark.daemon.daemon`.

It can die, or hang, while Spark lives on: then another one takes its place. It ends when the worker is gone, or the daemon;
when Spark is gone it says so, and waits to be ended.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from contextlib import suppress

from pyspark.errors import PySparkAttributeError, PySparkNotImplementedError

from libraries.spark.client.access import Access
from libraries.spark.client.failures import error_text, hopeless
from libraries.spark.client.java_access import JavaAccess, lost_java
from libraries.spark.client.queries import Queries
from libraries.spark.client.tasks import Tasks
from libraries.spark.protocol import (
    ASKS,
    FROM_DAEMON,
    OPENS,
    SETTLED,
    TO_SPARK,
    Cancel,
    Consumed,
    Done,
    Follow,
    FromSpark,
    JavaUp,
    PrintedText,
    Ready,
    Release,
    RunFailed,
    RunProgress,
    RunTask,
    ServerUp,
    SparkEnded,
    Waits,
    encode,
)
from libraries.spark.setup.options import secrets
from runtime.control import receive_bytes, send_bytes

_POLL_SECONDS = 1.0
"""Seconds between two checks of the progress of runs.

Each check takes Python and Java some milliseconds.
"""

_END_SECONDS = 1.0
"""Seconds to wait for the daemon's report of Java's end, after a lost connection."""

_PRINTED_SECONDS = 2.0


class SparkClient:
    """Client's side of its connections: to the worker, and to the Spark daemon."""

    def __init__(self, control: socket.socket, news: socket.socket) -> None:
        self._control = control
        self._news = news
        self._sending = threading.Lock()
        self._up: JavaUp | ServerUp | None = None
        self._settled = threading.Event()
        """Set once Spark is up, or has ended."""
        self._ended = False
        self._ending = threading.Lock()
        self._access: Access | None = None
        self._printed = ""
        self._printed_came = threading.Event()
        self._tasks: Tasks | None = None
        self._queries: Queries | None = None

    def serve(self) -> None:
        """Connect to Spark, then serve requests, each run in its own thread."""
        threading.Thread(target=self._read_news, daemon=True).start()
        threading.Thread(target=self._listen, daemon=True).start()
        self._settled.wait()
        if self._up is not None and self._open(self._up):
            assert self._tasks is not None
            assert self._queries is not None
            while not self._ended:
                with suppress(Exception):  # when Spark ends in the midst of an answer
                    for number, done, total in self._tasks.progress():
                        self.tell(RunProgress(number, done, total))
                for message in self._queries.look():
                    self.tell(message)
                time.sleep(_POLL_SECONDS)
        threading.Event().wait()  # the worker knows that nothing goes on here, and closes the connection

    def tell(self, message: FromSpark) -> None:
        """Send the worker a message."""
        with self._sending, suppress(OSError):
            send_bytes(self._control, encode(message))

    def _open(self, up: JavaUp | ServerUp) -> bool:
        """Connect to Spark and report the result; True on success."""
        try:
            self._access = access = self._opened(up)
        except Exception as error:
            if not self._ended:
                self.tell(RunFailed(-1, self._error_text(error), not hopeless(error), self._all_printed()))
            return False
        self._tasks = Tasks(access)
        self._queries = Queries(access, lambda number, batches: self.tell(RunProgress(number, batches, 0)))
        self.tell(Ready(access.jvm, access.version, access.page))
        with suppress(OSError):
            self._news.send(SETTLED)
        return True

    def _opened(self, up: JavaUp | ServerUp) -> Access:
        if isinstance(up, ServerUp):
            from libraries.spark.client.connect_access import ConnectAccess

            def opens() -> None:
                self._news.send(OPENS)

            return ConnectAccess(up, opens, lambda text: self.tell(Waits(self._without_secrets(text))))
        try:
            return JavaAccess(up)
        except Exception as error:
            if lost_java(error):
                self._wait_for_the_end()
            raise

    def _listen(self) -> None:
        while (data := receive_bytes(self._control)) is not None:
            message = TO_SPARK.decode(data)
            match message:
                case RunTask() | Follow():
                    threading.Thread(target=self._run, args=(message,), daemon=True).start()
                case Consumed(number, batch):
                    if self._queries is not None:
                        self._queries.consumed(number, batch)
                case Cancel(number):
                    if self._tasks is not None and self._queries is not None and not self._queries.cancel(number):
                        self._tasks.cancel(number)
        os._exit(0)

    def _read_news(self) -> None:
        while (data := receive_bytes(self._news)) is not None:
            message = FROM_DAEMON.decode(data)
            match message:
                case JavaUp() | ServerUp():
                    self._up = message
                    self._settled.set()
                case PrintedText(text, kept=True):
                    self._printed = text
                    self._printed_came.set()
                case PrintedText():
                    self.tell(message)
                case SparkEnded(how, killed):
                    self._ended = True
                    self.tell(RunFailed(-1, how, True, self._printed, ended=True, lost=killed))
                    self._settled.set()
                case Release():
                    raise AssertionError("a child is not told that: it is for one without a worker")
        if self._access is not None:
            self._access.leave()
        os._exit(1)

    def _run(self, task: RunTask | Follow) -> None:
        assert self._tasks is not None  # nothing is asked for before Spark is ready
        assert self._queries is not None
        try:
            done = self._tasks.run(task) if isinstance(task, RunTask) else (self._queries.run(task), ())
            self.tell(Done(task.number, *done))
        except Exception as error:
            if not self._is_gone(error):
                self.tell(RunFailed(task.number, self._error_text(error), again=not hopeless(error)))

    def _is_gone(self, error: Exception) -> bool:
        """True after an error due to the loss of Spark; the worker is notified."""
        access = self._access
        if access is not None and access.gone(error):
            if access.jvm is not None:
                self._wait_for_the_end()
            else:
                with self._ending:
                    if not self._ended:
                        self._ended = True
                        text = f"the Spark Connect server does not answer any more: {self._error_text(error)}"
                        self.tell(RunFailed(-1, text, again=True, ended=True, lost=access.lost(error)))
        return self._ended

    def _wait_for_the_end(self) -> None:
        """Wait for the daemon's report of Java's end, after a lost connection."""
        deadline = time.monotonic() + _END_SECONDS
        while not self._ended and time.monotonic() < deadline:
            time.sleep(0.02)

    def _error_text(self, error: Exception) -> str:
        text = error_text(error)
        if isinstance(self._up, ServerUp) and isinstance(error, PySparkNotImplementedError | PySparkAttributeError):
            where = self._up.server.url.partition("/;")[0]
            asked = "sail=True" if self._up.server.sail else f"connect={where!r}"
            text += f". This comes of SparkOptions({asked}): take a Spark of the job's own for it"
        return self._without_secrets(text)

    def _without_secrets(self, text: str) -> str:
        up = self._up
        for secret in secrets(up.server.url) if isinstance(up, ServerUp) else ():
            text = text.replace(secret, "***")
        return text

    def _all_printed(self) -> str:
        """Last output of Spark's processes, requested from the Spark daemon."""
        self._printed_came.clear()
        with suppress(OSError):
            self._news.send(ASKS)
            self._printed_came.wait(_PRINTED_SECONDS)
        return self._printed


def main(control: socket.socket | None, news: socket.socket) -> int:
    """Serve a worker; without a connection to one, do one job for the daemon, and end.

    That is to have a Java that is spare open its session, or to release sessions on a server.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it has to say is said by the exceptions
    if control is not None:
        SparkClient(control, news).serve()
    elif (data := receive_bytes(news)) is not None:
        message = FROM_DAEMON.decode(data)
        if isinstance(message, JavaUp):
            JavaAccess(message).warm()
        elif isinstance(message, Release):
            from libraries.spark.client.connect_access import release

            release(message)
    return 0
