"""The process that speaks to Spark for a worker: a fork of the keeper of Java (`libraries.spark.keeper`).

It can die, or hang, while Java lives on: then another one takes its place. It ends when the worker is gone, or the keeper; when
Java is gone it says so, and waits to be ended.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from contextlib import suppress

from libraries.spark.protocol import (
    FROM_KEEPER,
    TO_SPARK,
    Cancel,
    Consumed,
    Done,
    Follow,
    FromSpark,
    JavaEnded,
    JavaUp,
    PrintedText,
    Ready,
    RunFailed,
    RunProgress,
    RunTask,
    encode,
)
from libraries.spark.queries import Queries
from libraries.spark.session import attach
from libraries.spark.tasks import Tasks, hopeless, told
from runtime.control import receive_bytes, send_bytes

_POLL_SECONDS = 0.2
_END_SECONDS = 1.0
"""Seconds in which the keeper says that Java has ended, when a connection to it was lost."""

_PRINTED_SECONDS = 2.0
_ATTACH_SECONDS = 120.0
"""Seconds that a Java may take, which has a session for others already, to give one; it takes less than one."""


class SparkChild:
    """The child's side of the connections: to the worker, and to the keeper."""

    def __init__(self, control: socket.socket, news: socket.socket) -> None:
        self._control = control
        self._news = news
        self._sending = threading.Lock()
        self._up: JavaUp | None = None
        self._heard = threading.Event()
        """Java is up, or has ended."""
        self._ended: JavaEnded | None = None
        self._printed = ""
        self._printed_came = threading.Event()
        self._tasks: Tasks | None = None
        self._queries: Queries | None = None

    def serve(self) -> None:
        """Open a session on Java's Spark, then run what is asked for, each run in a thread of its own."""
        threading.Thread(target=self._read_news, daemon=True).start()
        threading.Thread(target=self._listen, daemon=True).start()
        self._heard.wait()
        if self._up is not None and self._open(self._up):
            assert self._tasks is not None
            while self._ended is None:
                with suppress(Exception):  # when Java ends in the midst of an answer
                    for number, done, total in self._tasks.progress():
                        self.tell(RunProgress(number, done, total))
                time.sleep(_POLL_SECONDS)
        threading.Event().wait()  # the worker knows that nothing goes on here, and closes the connection

    def tell(self, message: FromSpark) -> None:
        """Say something to the worker."""
        with self._sending, suppress(OSError):
            send_bytes(self._control, encode(message))

    def _open(self, up: JavaUp) -> bool:
        """Open a session, and say whether that went well."""
        try:
            spark = attach(up, _ATTACH_SECONDS)
            self._tasks = Tasks(spark)
            self._queries = Queries(spark, lambda number, batches: self.tell(RunProgress(number, batches, 0)))
        except Exception as error:
            if not self._java_is_gone(error):
                self.tell(RunFailed(-1, told(error), not hopeless(error), self._all_printed()))
            return False
        self.tell(Ready(up.pid, spark.version))
        return True

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
            message = FROM_KEEPER.decode(data)
            match message:
                case JavaUp():
                    self._up = message
                    self._heard.set()
                case PrintedText(text, kept=True):
                    self._printed = text
                    self._printed_came.set()
                case PrintedText():
                    self.tell(message)
                case JavaEnded(how):
                    self._ended = message
                    self.tell(RunFailed(-1, f"Spark's Java process {how}", again=True, printed=self._printed))
                    self._heard.set()
        os._exit(1)

    def _run(self, task: RunTask | Follow) -> None:
        assert self._tasks is not None  # nothing is asked for before Spark is ready
        assert self._queries is not None
        try:
            files = self._tasks.run(task) if isinstance(task, RunTask) else self._queries.run(task)
            self.tell(Done(task.number, files))
        except Exception as error:
            if not self._java_is_gone(error):
                self.tell(RunFailed(task.number, told(error), again=not hopeless(error)))

    def _java_is_gone(self, error: Exception) -> bool:
        """True if all is lost, whatever runs, as the worker hears."""
        if isinstance(error, ConnectionError | EOFError) or type(error).__module__.startswith("py4j"):
            deadline = time.monotonic() + _END_SECONDS
            while self._ended is None and time.monotonic() < deadline:
                time.sleep(0.02)
        return self._ended is not None

    def _all_printed(self) -> str:
        """The last lines that were printed, as the keeper has them."""
        self._printed_came.clear()
        with suppress(OSError):
            self._news.send(b"?")
            self._printed_came.wait(_PRINTED_SECONDS)
        return self._printed


def main(control: socket.socket | None, news: socket.socket) -> int:
    """Serve a worker; without a connection to one, have a Java that is spare open its session, and end."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it has to say is said by the exceptions
    if control is not None:
        SparkChild(control, news).serve()
    elif (data := receive_bytes(news)) is not None and isinstance(up := FROM_KEEPER.decode(data), JavaUp):
        attach(up, _ATTACH_SECONDS).range(1).count()
    return 0
