"""The process that Spark runs in: `python -m libraries.spark.child`, started by `libraries.spark.host` and by nobody else.

Spark's own Java process can die, hang, or run out of memory; a Python process that has lost it cannot get another one. So
this one ends with it, at once, and the one that has started it starts another. It ends, too, when that one is gone.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

from libraries.spark.protocol import (
    TO_SPARK,
    Cancel,
    Consumed,
    Done,
    Follow,
    FromSpark,
    Ready,
    RunFailed,
    RunProgress,
    RunTask,
    Start,
    encode,
)
from libraries.spark.queries import Queries
from libraries.spark.session import open_session
from libraries.spark.tasks import Tasks, hopeless, told
from runtime.control import receive_bytes, send_bytes

_POLL_SECONDS = 0.2
_END_SECONDS = 0.5
_HEARD_SECONDS = 10.0
"""Seconds that the other side has to read what was printed here, and to end this process; it takes milliseconds."""


class SparkChild:
    """The child's side of the connection."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._sending = threading.Lock()
        self._tasks: Tasks | None = None
        self._queries: Queries | None = None
        self._folder = ""
        self._java: subprocess.Popen[bytes] | None = None

    def serve(self) -> None:
        """Start Spark, then run what is asked for, each run in a thread of its own, until the other side is gone."""
        data = receive_bytes(self._control)
        if data is None:
            return
        start = TO_SPARK.decode(data)
        assert isinstance(start, Start)
        self._folder = start.folder
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            spark = open_session(start.settings)
            jvm = spark._jvm
            assert jvm is not None
            java = int(jvm.java.lang.ProcessHandle.current().pid())
            self._tasks = Tasks(spark)
            self._queries = Queries(spark, lambda number, batches: self.tell(RunProgress(number, batches, 0)))
        except Exception as error:
            self._give_up(told(error), again=not hopeless(error))
            return
        self.tell(Ready(java, spark.version))
        self._java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        while self._java.poll() is None:
            with suppress(Exception):  # when Java ends in the midst of an answer
                for number, done, total in self._tasks.progress():
                    self.tell(RunProgress(number, done, total))
            time.sleep(_POLL_SECONDS)
        self._without_java()

    def tell(self, message: FromSpark) -> None:
        """Say something to the process that has started this one."""
        with self._sending, suppress(OSError):
            send_bytes(self._control, encode(message))

    def leave(self, code: int) -> None:
        """End this process and all that it has started, and leave no files behind."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        if os.getpgid(0) == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)  # Java, and this process with it
        os._exit(code)

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
        self.leave(0)

    def _run(self, task: RunTask | Follow) -> None:
        assert self._tasks is not None  # nothing is asked for before Spark is ready
        assert self._queries is not None
        try:
            files = self._tasks.run(task) if isinstance(task, RunTask) else self._queries.run(task)
            self.tell(Done(task.number, files))
        except Exception as error:
            if self._java_is_gone(error):
                self._without_java()
            self.tell(RunFailed(task.number, told(error), again=not hopeless(error)))

    def _java_is_gone(self, error: Exception) -> bool:
        if not isinstance(error, ConnectionError | EOFError) and not type(error).__module__.startswith("py4j"):
            return False
        assert self._java is not None
        with suppress(subprocess.TimeoutExpired):
            self._java.wait(_END_SECONDS)
        return self._java.returncode is not None

    def _without_java(self) -> None:
        """All is lost, whatever runs."""
        assert self._java is not None
        code = self._java.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"has ended with code {code}"
        self._give_up(f"Spark's Java process {how}")

    def _give_up(self, why: str, again: bool = True) -> None:
        """Say that nothing goes on here, and wait to be ended: who hears it reads what was printed, then takes it away."""
        self.tell(RunFailed(-1, why, again))
        time.sleep(_HEARD_SECONDS)
        self.leave(1)


if __name__ == "__main__":
    child = SparkChild(socket.socket(fileno=int(sys.argv[1])))
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it has to say is said by the exceptions
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the job, which ends this process when it ends
    child.serve()
    sys.stderr.flush()
    child.leave(1)
