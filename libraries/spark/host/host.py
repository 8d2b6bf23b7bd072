"""Spark for a worker process: started on demand, supervised, killed, restarted.

All regions of a worker process with equal options share one. It is started when it is first wanted, in the background. Its Java
stays until the job ends (`libraries.spark.daemon.daemon`).
"""

from __future__ import annotations

import atexit
import itertools
import math
import re
import shutil
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from libraries.spark.errors import SparkError, SparkLost
from libraries.spark.files.small import Written
from libraries.spark.host.daemon_connection import connect, let_go
from libraries.spark.host.retries import Losses, Tries
from libraries.spark.protocol import (
    END,
    FROM_SPARK,
    LEAVE,
    SERVE,
    Cancel,
    Consumed,
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
from libraries.spark.setup.options import SparkOptions, check_master, left_out
from runtime.control import receive_bytes, send_bytes

_LOOK_SECONDS = 0.1
_CANCEL_SECONDS = 8.0
_KILL_SECONDS = 10.0
_LAST_LINES = 6
_KEPT = 50
_SLOW_SECONDS = 2.0
"""Seconds of a slow start of Spark before a stream notifies the user."""

_TELLING = re.compile(r"OutOfMemory|[Ee]xception|[Ee]rror|ERROR|Terminating")
_REFUSAL = re.compile(r'^(Exception in thread "main"|Error: )', re.MULTILINE)
_NOISE = re.compile(
    r"WARN|Setting Spark log level|[Pp]y4[Jj]|ERROR:root|During handling|ConnectionResetError|BrokenPipeError"
)
"""Output lines without information about a fault, or only about the loss of Java."""

_MOST_ATTEMPTS = 20
"""Most attempts at a run, those ended by the fault of another run included."""


class Given(SparkError):
    """Run cancelled: its result is not needed any more."""


@dataclass(slots=True)
class _Waiting:
    """State of a run under way."""

    over: threading.Event = field(default_factory=threading.Event)
    done: int = 0
    total: int = 0
    query: QueryProgress | None = None
    result: tuple[Written, Read] | None = None
    failure: RunFailed | None = None


class _Innocent(SparkLost):
    """Run ended by a kill of Spark on behalf of another run."""


class _Killed(SparkLost):
    """Loss of the Spark process with this number, not by a kill from here."""

    def __init__(self, text: str, process: int) -> None:
        super().__init__(text)
        self.process = process


class SparkHost:
    """Spark with the given options, for all threads of this process."""

    def __init__(self, options: SparkOptions) -> None:
        self.options = options
        self._lock = threading.Lock()
        self._process: _SparkProcess | None = None
        self._numbers = itertools.count()
        self._note: Callable[[str], None] = lambda text: None
        """Callback for Spark's output, from the latest caller."""
        self._page: str | None = None
        """Last known address of Spark's page."""
        self._said = False
        """True once the user was notified of ignored settings."""
        self._losses = Losses()
        self.starts = 0
        """Number of processes started so far."""

    def warm(self) -> None:
        """Start Spark in the background unless it runs; errors surface in the next `run`."""
        threading.Thread(target=self._warm, daemon=True).start()

    @property
    def pid(self) -> int | None:
        """Process id of Spark's Java; None while there is none on this machine."""
        process = self._process
        return process.ready.jvm if process is not None and process.ready is not None and not process.ended else None

    def run(
        self,
        task: RunTask,
        report: Callable[[str, int, int], None] = lambda what, done, total: None,
        stopped: Callable[[], bool] = lambda: False,
        note: Callable[[str], None] = lambda text: None,
        claim: Callable[[], int] | None = None,
    ) -> tuple[Written, Read]:
        """Run a task to its end, with retries in fresh sessions after transient failures.

        Args:
            task: what to do. Its number is given here, and each attempt has a number and an output folder of its own.
            report: told how far it is: (what, tasks done, tasks known).
            stopped: whether the result is not wanted any more.
            note: told why an attempt has failed that is followed by another one, and what Spark and the function print.
            claim: gives each attempt the number that the function may ask for; by default they are counted from 0.

        Raises:
            SparkError: for what trying again does not help, or did not help.
            Given: when it is not wanted any more.
        """
        self._note = note
        tries = Tries(self.options.retries, self._losses)
        for number in range(_MOST_ATTEMPTS):
            claimed = number if claim is None else claim()
            attempt = msgspec.structs.replace(
                task, output=f"{task.output}-{number}", attempt=claimed, first=number == 0
            )
            try:
                result = self._attempt(attempt, report, stopped, tries.failures)
                tries.done()
                return result
            except SparkLost as error:
                last = error
            shutil.rmtree(attempt.output, ignore_errors=True)
            self._count(tries, last)
            note(f"an attempt at the run has failed, and another one follows: {last}")
        raise SparkError(f"{_MOST_ATTEMPTS} attempts at the run have failed. The last time: {last}")

    def stop(self) -> None:
        """Stop Spark; the next `run` starts it again."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.leave()

    def _count(self, tries: Tries, error: SparkLost) -> None:
        """Count a failure; SparkError if there were too many."""
        with self._lock:
            match error:
                case _Innocent():
                    pass
                case _Killed(process=process):
                    tries.lost(process, str(error))
                case _:
                    tries.failed(str(error))

    def _warm(self) -> None:
        with suppress(SparkError, SparkLost):
            self._there()

    def _there(self) -> _SparkProcess:
        with self._lock:
            if self._process is None or self._process.ended:
                if not self.options.remote:
                    check_master(self.options.master)
                self.starts += 1
                self._process = _SparkProcess(self.starts, self.options, self._show, lambda text: self._note(text))
            return self._process

    def _show(self, text: str) -> None:
        lines = text.splitlines()
        self._note(f"Spark printed: {text}" if len(lines) == 1 else "Spark printed:\n  " + "\n  ".join(lines))

    def follow(
        self,
        task: Follow,
        consumed: Callable[[], int],
        stopped: Callable[[], bool],
        note: Callable[[str], None],
        report: Callable[[str, int | None, int], None] = lambda what, batch, rows: None,
    ) -> None:
        """Run a streaming query to its end, restarted after transient failures.

        Args:
            task: the query. Its number is given here.
            consumed: the batches before this one were read.
            stopped: whether no more of it is wanted; then this returns.
            note: told what the user should know: that Spark still starts, why the query begins again, what is printed.
            report: told how far it is: what it does or waits for, the batch that it is at, and the input rows of the last one.

        Raises:
            SparkError: for what trying again does not help, or did not help: `retries` counts failures with no new batch.
        """
        self._note = note
        tries = Tries(self.options.retries, self._losses)
        batches = 0
        while not stopped():
            waiting = _Waiting()
            try:
                self._follow(task, waiting, consumed, stopped, note, report, tries.failures)
                return
            except (Given, _Innocent):
                continue
            except SparkLost as error:
                last = error
            if waiting.done > batches:
                batches = waiting.done
                tries.done()
            self._count(tries, last)
            note(f"the query has failed, and begins again where it was: {last}")

    def _follow(
        self,
        task: Follow,
        waiting: _Waiting,
        consumed: Callable[[], int],
        stopped: Callable[[], bool],
        note: Callable[[str], None],
        report: Callable[[str, int | None, int], None],
        failed: int,
    ) -> None:
        began, slow = time.monotonic(), False

        def starts(what: str, done: int, total: int) -> None:
            nonlocal slow
            report(what, None, 0)
            if not slow and time.monotonic() > began + _SLOW_SECONDS:
                slow = True
                note("Spark starts; batches come when it runs")

        process = self._ready(starts, stopped, failed)
        if slow:
            note(f"Spark runs, after {time.monotonic() - began:.0f} s")
        told = consumed()
        task = msgspec.structs.replace(task, number=next(self._numbers), consumed=told)
        process.begin(task, waiting)
        cancelled: float | None = None
        while not waiting.over.wait(_LOOK_SECONDS):
            if (query := waiting.query) is not None:
                report(query.what, query.batch, query.rows)
            if stopped():
                now = time.monotonic()
                if cancelled is None:
                    cancelled = now
                    process.tell(Cancel(task.number))
                elif now > cancelled + _CANCEL_SECONDS:
                    process.forget(task.number)
                    return
            elif (upto := consumed()) != told:
                told = upto
                process.tell(Consumed(task.number, told))
        if not stopped():
            process.outcome(waiting)

    def _attempt(
        self, task: RunTask, report: Callable[[str, int, int], None], stopped: Callable[[], bool], failed: int
    ) -> tuple[Written, Read]:
        again = f", attempt {failed + 1}" if failed else ""
        process = self._ready(report, stopped, failed)
        task = msgspec.structs.replace(task, number=next(self._numbers))
        waiting = _Waiting()
        process.begin(task, waiting)
        deadline, before = time.monotonic() + self.options.limit, (0, 0)
        while not waiting.over.wait(_LOOK_SECONDS):
            if (waiting.done, waiting.total) != before:
                deadline, before = time.monotonic() + self.options.limit, (waiting.done, waiting.total)
            report(f"Spark{again}: task", waiting.done, waiting.total)
            if stopped():
                process.tell(Cancel(task.number))
                raise Given("the run is not wanted any more")
            if time.monotonic() > deadline:
                process.forget(task.number)
                process.kill("a run did not get on")
                raise SparkLost(
                    f"none of its tasks was done within limit={self.options.limit:g} s, which counts as hanging; "
                    "give a larger limit if a task needs more"
                )
        return process.outcome(waiting)

    def _ready(
        self, report: Callable[[str, int, int], None], stopped: Callable[[], bool], failed: int
    ) -> _SparkProcess:
        """Wait until Spark has started, or has failed to."""
        again = f", attempt {failed + 1}" if failed else ""
        process = self._there()
        limit = self.options.start_limit if not self.options.connect else None  # a server is waited for by others
        deadline = time.monotonic() + limit if limit is not None else math.inf
        while not process.up.wait(_LOOK_SECONDS):
            report(f"Spark starts{again}", 0, 0)
            if stopped():
                raise Given("the run is not wanted any more")
            if time.monotonic() > deadline:
                process.kill("it did not start in time")
                raise SparkLost(f"Spark did not start within {limit:g} s{process.last_words()}")
        if not self._said and not self.options.remote and (left := left_out(self.options)):
            self._note(
                "these settings of spark-defaults.conf, or of spark-submit, do not hold here, as answers rest on them, "
                f"or a job says where it runs: {', '.join(left)}. Those of SparkOptions(config=) do"
            )
        self._said = True
        if process.ready is not None and process.ready.page not in (None, self._page):
            self._page = process.ready.page
            self._note(f"Spark's own page is at {self._page}")
        return process


class _SparkProcess:
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
        self._waiting: dict[int, _Waiting] = {}
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

    def begin(self, task: RunTask | Follow, waiting: _Waiting) -> None:
        """Start a task; `waiting` is updated with its progress and result."""
        with self._lock:
            if self.ended:
                waiting.failure = self._failed
                waiting.over.set()
                return
            self._waiting[task.number] = waiting
        self.tell(task)

    def outcome(self, waiting: _Waiting) -> tuple[Written, Read]:
        """Result of a finished task, or its error raised."""
        if waiting.result is not None:
            return waiting.result
        assert waiting.failure is not None
        if not waiting.failure.again:
            raise SparkError(waiting.failure.text)
        if waiting.failure.number < 0 and not self.own_death:
            raise _Innocent(waiting.failure.text)
        if waiting.failure.lost:
            raise _Killed(waiting.failure.text, self._number)
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


_hosts: dict[SparkOptions, SparkHost] = {}
_hosts_lock = threading.Lock()


def host_of(options: SparkOptions) -> SparkHost:
    """Spark with these options in this process."""
    with _hosts_lock:
        return _hosts.setdefault(options, SparkHost(options))


def stop() -> None:
    """Stop all Sparks started by regions in this process; they restart on demand."""
    for host in list(_hosts.values()):
        host.stop()


def _leave() -> None:
    stop()
    let_go()


atexit.register(_leave)
