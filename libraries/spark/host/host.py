"""Spark for a worker process: started on demand, supervised, killed, restarted.

All regions of a worker process with equal options share one. It is started when it is first wanted, in the background. Its Java
stays until the job ends (`libraries.spark.daemon.daemon`).
"""

from __future__ import annotations

import atexit
import itertools
import math
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from libraries.spark.errors import SparkError, SparkLost
from libraries.spark.files.small import Written
from libraries.spark.host.client_process import ClientProcess, Innocent, NotWanted, SparkKilled, Waiting
from libraries.spark.host.daemon_connection import end_daemons
from libraries.spark.host.retries import Losses, Tries
from libraries.spark.protocol import (
    Cancel,
    Consumed,
    Follow,
    Read,
    RunTask,
)
from libraries.spark.setup.options import SparkOptions, check_master, ignored_settings

_LOOK_SECONDS = 0.1
_CANCEL_SECONDS = 8.0
_SLOW_SECONDS = 2.0
"""Seconds of a slow start of Spark before a stream notifies the user."""


_MOST_ATTEMPTS = 20
"""Most attempts at a run, those ended by the fault of another run included."""


class SparkHost:
    """Spark with the given options, for all threads of this process."""

    def __init__(self, options: SparkOptions) -> None:
        self.options = options
        self._lock = threading.Lock()
        self._process: ClientProcess | None = None
        self._numbers = itertools.count()
        self._note: Callable[[str], None] = lambda text: None
        """Callback for Spark's output, from the latest caller."""
        self._page: str | None = None
        """Last known address of Spark's page."""
        self._notified = False
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
            NotWanted: when it is not wanted any more.
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
                case Innocent():
                    pass
                case SparkKilled(process=process):
                    tries.lost(process, str(error))
                case _:
                    tries.failed(str(error))

    def _warm(self) -> None:
        with suppress(SparkError, SparkLost):
            self._there()

    def _there(self) -> ClientProcess:
        with self._lock:
            if self._process is None or self._process.ended:
                if not self.options.remote:
                    check_master(self.options.master)
                self.starts += 1
                self._process = ClientProcess(self.starts, self.options, self._show, lambda text: self._note(text))
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
            waiting = Waiting()
            try:
                self._follow(task, waiting, consumed, stopped, note, report, tries.failures)
                return
            except (NotWanted, Innocent):
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
        waiting: Waiting,
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
        reported = consumed()
        task = msgspec.structs.replace(task, number=next(self._numbers), consumed=reported)
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
            elif (upto := consumed()) != reported:
                reported = upto
                process.tell(Consumed(task.number, reported))
        if not stopped():
            process.outcome(waiting)

    def _attempt(
        self, task: RunTask, report: Callable[[str, int, int], None], stopped: Callable[[], bool], failed: int
    ) -> tuple[Written, Read]:
        again = f", attempt {failed + 1}" if failed else ""
        process = self._ready(report, stopped, failed)
        task = msgspec.structs.replace(task, number=next(self._numbers))
        waiting = Waiting()
        process.begin(task, waiting)
        deadline, before = time.monotonic() + self.options.limit, (0, 0)
        while not waiting.over.wait(_LOOK_SECONDS):
            if (waiting.done, waiting.total) != before:
                deadline, before = time.monotonic() + self.options.limit, (waiting.done, waiting.total)
            report(f"Spark{again}: task", waiting.done, waiting.total)
            if stopped():
                process.tell(Cancel(task.number))
                raise NotWanted("the run is not wanted any more")
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
    ) -> ClientProcess:
        """Wait until Spark has started, or has failed to."""
        again = f", attempt {failed + 1}" if failed else ""
        process = self._there()
        limit = self.options.start_limit if not self.options.connect else None  # a server is waited for by others
        deadline = time.monotonic() + limit if limit is not None else math.inf
        while not process.up.wait(_LOOK_SECONDS):
            report(f"Spark starts{again}", 0, 0)
            if stopped():
                raise NotWanted("the run is not wanted any more")
            if time.monotonic() > deadline:
                process.kill("it did not start in time")
                raise SparkLost(f"Spark did not start within {limit:g} s{process.last_words()}")
        if not self._notified and not self.options.remote and (ignored := ignored_settings(self.options)):
            self._note(
                "these settings of spark-defaults.conf, or of spark-submit, do not hold here, as answers rest on them, "
                f"or a job says where it runs: {', '.join(ignored)}. Those of SparkOptions(config=) do"
            )
        self._notified = True
        if process.ready is not None and process.ready.page not in (None, self._page):
            self._page = process.ready.page
            self._note(f"Spark's own page is at {self._page}")
        return process


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
    end_daemons()


atexit.register(_leave)
