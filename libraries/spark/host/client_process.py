"""Connection of a worker to one Spark client process, until that ends."""

from __future__ import annotations

import re
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from libraries.spark.errors import SparkError, SparkLost
from libraries.spark.files.small import Written
from libraries.spark.host.daemon_connection import connect
from libraries.spark.protocol import (
    END,
    FROM_SPARK,
    LEAVE,
    SERVE,
    Done,
    Follow,
    PrintedText,
    QueryProgress,
    Read,
    Ready,
    RunFailed,
    RunProgress,
    RunTask,
    ToSpark,
    Waits,
    encode,
)
from libraries.spark.setup.options import SparkOptions
from runtime.control import receive_bytes, send_bytes

_TELLING = re.compile(r"OutOfMemory|[Ee]xception|[Ee]rror|ERROR|Terminating")


_REFUSAL = re.compile(r'^(Exception in thread "main"|Error: )', re.MULTILINE)


_NOISE = re.compile(
    r"WARN|Setting Spark log level|[Pp]y4[Jj]|ERROR:root|During handling|ConnectionResetError|BrokenPipeError"
)
"""Output lines without information about a fault, or only about the loss of Java."""


_KEPT = 50


_LAST_LINES = 6


_KILL_SECONDS = 10.0


class NotWanted(SparkError):
    """Run cancelled: its result is not needed any more."""


@dataclass(slots=True)
class Waiting:
    """State of a run under way."""

    over: threading.Event = field(default_factory=threading.Event)
    done: int = 0
    total: int = 0
    query: QueryProgress | None = None
    result: tuple[Written, Read] | None = None
    failure: RunFailed | None = None


class Innocent(SparkLost):
    """Run ended by a kill of Spark on behalf of another run."""


class SparkKilled(SparkLost):
    """Loss of the Spark process with this number, not by a kill from here."""

    def __init__(self, text: str, process: int) -> None:
        super().__init__(text)
        self.process = process


class ClientProcess:
    """Connection to one Spark client process, until it ends.

    Raises SparkError if there can be none.
    """

    def __init__(
        self, number: int, options: SparkOptions, show: Callable[[str], None], note: Callable[[str], None]
    ) -> None:
        self.up = threading.Event()
        """Set once Spark has started, or will never start."""
        self.ready: Ready | None = None
        self.ended = False
        self.own_death = True
        """True if it ended by itself, not by `kill`."""
        self._number = number
        self._options = options
        self._show = show
        self._note = note
        self._waiting: dict[int, Waiting] = {}
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._failed: RunFailed | None = None
        self._printed: deque[str] = deque(maxlen=_KEPT)
        self._control = connect(options, SERVE)
        threading.Thread(target=self._listen, daemon=True).start()

    def tell(self, message: ToSpark) -> None:
        """Send a message; a lost connection is detected by `_listen`."""
        with self._sending, suppress(OSError):
            send_bytes(self._control, encode(message))

    def begin(self, task: RunTask | Follow, waiting: Waiting) -> None:
        """Start a task; `waiting` is updated with its progress and result."""
        with self._lock:
            if self.ended:
                waiting.failure = self._failed
                waiting.over.set()
                return
            self._waiting[task.number] = waiting
        self.tell(task)

    def outcome(self, waiting: Waiting) -> tuple[Written, Read]:
        """Result of a finished task, or its error raised."""
        if waiting.result is not None:
            return waiting.result
        assert waiting.failure is not None
        if not waiting.failure.again:
            raise SparkError(waiting.failure.text)
        if waiting.failure.number < 0 and not self.own_death:
            raise Innocent(waiting.failure.text)
        if waiting.failure.lost:
            raise SparkKilled(waiting.failure.text, self._number)
        raise SparkLost(waiting.failure.text)

    def forget(self, number: int) -> None:
        """Drop the state of an abandoned run."""
        with self._lock:
            self._waiting.pop(number, None)

    def kill(self, why: str) -> None:
        """Kill Spark, with its Java, and fail all its runs.

        Java ends first, for whoever learns of the end begins another one.
        """
        self.own_death = False
        self._ask(END)
        self._end(RunFailed(-1, f"Spark's process was ended: {why}", again=True))

    def leave(self) -> None:
        """End the process, and everything started for it."""
        self.own_death = False
        self._ask(LEAVE)
        self._end(RunFailed(-1, "Spark's process was ended: it was stopped", again=True))

    def last_words(self) -> str:
        """End of the output so far, for an error message."""
        return _last_words("\n".join(self._printed))

    def _ask(self, what: bytes) -> None:
        """Send the daemon a request and wait until it closes the connection."""
        with suppress(OSError), connect(self._options, what, start=False) as sock:
            sock.settimeout(_KILL_SECONDS)
            sock.recv(1)

    def _listen(self) -> None:
        while (data := receive_bytes(self._control)) is not None:
            message = FROM_SPARK.decode(data)
            match message:
                case Ready():
                    self.ready = message
                    self.up.set()
                case Waits(text):
                    self._note(text)
                case RunProgress(number, done, total):
                    if (waiting := self._waiting.get(number)) is not None:
                        waiting.done, waiting.total = done, total
                case QueryProgress(number):
                    if (waiting := self._waiting.get(number)) is not None:
                        waiting.query = message
                case PrintedText(text):
                    self._printed.append(text)
                    if self.ready is not None:  # what it says while it starts counts if it fails to
                        self._show(text)
                case Done(number, written, read):
                    self._over(number, (written, read), None)
                case RunFailed(number) if number >= 0:
                    self._over(number, None, message)
                case RunFailed():
                    self._give_up(message)
        self._end(RunFailed(-1, "the Python process that speaks to Spark has died", again=True, lost=True))

    def _give_up(self, failed: RunFailed) -> None:
        """End the process after a failed start of Spark, or the end of its Java.

        A Java without a session is ended before anybody hears of it: who does has another one started, that must live.
        """
        text, again = failed.text, failed.again
        if self.ready is None:
            text, again = f"Spark did not start: {text}", again and _REFUSAL.search(failed.printed) is None
            if not failed.ended:
                self._ask(END)
        self._end(RunFailed(-1, f"{text}{_last_words(failed.printed)}", again, lost=failed.lost))

    def _over(self, number: int, result: tuple[Written, Read] | None, failure: RunFailed | None) -> None:
        with self._lock:
            waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting.result, waiting.failure = result, failure
            waiting.over.set()

    def _end(self, failure: RunFailed) -> None:
        with self._lock:
            if self.ended:
                return
            self.ended, self._failed = True, failure
            left, self._waiting = list(self._waiting.values()), {}
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)  # with which it ends
        for waiting in left:
            waiting.failure = failure
            waiting.over.set()
        self.up.set()


def _last_words(printed: str) -> str:
    """Informative lines at the end of the output, for an error message."""
    lines = [line for line in printed.splitlines() if _TELLING.search(line) and not _NOISE.search(line)]
    kept = lines[-_LAST_LINES:]
    return ". It printed:\n  " + "\n  ".join(kept) if kept else ""
