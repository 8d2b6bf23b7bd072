"""`falkirk run`: a program with a display, up to any kind of end."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import IO, NoReturn

from falkirk.failures import Failure, explain
from falkirk.progress_view import Display, JsonDisplay, LiveDisplay, Meter, PlainDisplay, ProgressReading, QuietDisplay
from runtime.control import Stats
from runtime.session.job import OnStats, Result
from runtime.supervisor.starting import JobStopped

_ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@dataclass(frozen=True, slots=True)
class Show:
    """Display options of a job.

    `how` is "auto", "json" or "quiet"; `every` seconds a line, where it is lines. `resumes`: it has a store, and
    goes on when it is run again.
    """

    how: str = "auto"
    every: float = 5.0
    traceback: bool = False
    resumes: bool = False


class Interruption:
    """Handler of stop signals: the first ends the job, the second the process."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self.asked = False
        """True if the signal came from `falkirk stop`, as if by SIGTERM."""

    @property
    def by(self) -> str:
        """Name of the stop request's source."""
        if self.asked:
            return "falkirk stop"
        return "Ctrl-C" if self.signal == signal.SIGINT else (self.signal or signal.SIGINT).name

    @property
    def code(self) -> int:
        """Conventional exit code after a stop by this signal."""
        return 128 + (self.signal or signal.SIGINT)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signals."""
        if self.signal is not None:
            _show_cursor()
            os._exit(128 + number)  # worker processes see that this one is gone, and end as well
        self.signal = signal.Signals(number)
        raise KeyboardInterrupt(self.by)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While inside, Ctrl-C and requests to terminate raise KeyboardInterrupt, once."""
        before = {number: signal.signal(number, self.handle) for number in _ENDING}
        if hasattr(signal, "SIGQUIT"):
            # Ctrl-\ asks what holds the job back; while it starts there is no answer yet, and it must not end anything:
            # worker processes inherit that a signal is ignored, until they are ready to answer.
            before[signal.SIGQUIT] = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def run_program(job: Callable[[OnStats], Result], title: str, workers: int, show: Show) -> int:
    """Run a job to its end and say how it went; the exit code."""
    began = time.monotonic()
    meter = Meter(began)
    interruption = Interruption()
    failure: Failure | None = None
    with interruption.listening():
        try:
            with _display(show, meter, title, workers) as display:
                try:
                    result = job(lambda stats: _observe(meter, display, stats))
                    meter.observe(result.stats, time.monotonic())
                except JobStopped:
                    interruption.signal, interruption.asked = signal.SIGTERM, True
                except (Exception, KeyboardInterrupt, SystemExit) as error:
                    failure = explain(error)
                    if show.traceback and interruption.signal is None:
                        traceback.print_exception(error)
                reading = meter.total(time.monotonic())
                if interruption.signal is not None:
                    display.end("interrupted", reading, exit_code=interruption.code)
                elif failure is not None:
                    display.end("failed", reading, kind=failure.kind, error=failure.message, exit_code=failure.code)
                else:
                    display.end("finished", reading)
        except KeyboardInterrupt:
            reading = meter.total(time.monotonic())
    if interruption.signal is not None:
        say_interrupted(interruption, reading, show)
        return interruption.code
    if failure is not None:
        say(failure.message)
        return failure.code
    return 0


def say(message: str, label: str = "error") -> None:
    """Print a message on standard error, without interpretation as markup."""
    with suppress(OSError):
        if sys.stderr.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb":
            label = f"\x1b[1;31m{label}\x1b[0m"
        print(f"{label}: {message}", file=sys.stderr, flush=True)


def say_interrupted(interruption: Interruption, reading: ProgressReading, show: Show) -> None:
    """Report a stopped job: cause, time, and records read."""
    if show.how == "quiet":
        return
    message = f"by {interruption.by} after {reading.elapsed:.1f} s"
    if reading.workers:
        message += f", {reading.records:,} records read; sinks hold only epochs that were complete"
    if show.resumes:
        message += "; run it again with its store, and it goes on"
    say(message, "stopped")


def leave(code: int) -> NoReturn:
    """Exit without waiting for threads of an abandoned job.

    Python would, for ever if need be.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if code != 0 and any(not t.daemon for t in threading.enumerate() if t is not threading.main_thread()):
        os._exit(code)
    sys.exit(code)


def _show_cursor() -> None:
    """Restore the cursor hidden by the live view."""
    with suppress(OSError):
        terminal = os.open("/dev/tty", os.O_WRONLY)
        os.write(terminal, b"\x1b[?25h")
        os.close(terminal)


def _observe(meter: Meter, display: Display, stats: Mapping[int, Stats]) -> None:
    now = time.monotonic()
    meter.observe(stats, now)
    display.update(now)


@contextmanager
def _display(show: Show, meter: Meter, title: str, workers: int) -> Iterator[Display]:
    now = time.monotonic()
    if show.how == "quiet":
        yield QuietDisplay()
    elif show.how == "json":
        with _objects_only() as stream:
            yield JsonDisplay(stream, meter, show.every, now)
    elif sys.stderr.isatty() and os.environ.get("TERM") not in (None, "", "dumb"):
        with _live(meter, title, workers) as view:
            yield view
    else:
        yield PlainDisplay(sys.stderr, meter, show.every, now, title)


@contextmanager
def _live(meter: Meter, title: str, workers: int) -> Iterator[LiveDisplay]:
    from rich.console import Console

    from falkirk.program_output import ProgramOutput

    with ExitStack() as stack:
        output = ProgramOutput([1, 2] if sys.stdout.isatty() else [2])
        console = Console(file=output.terminal, force_terminal=True, highlight=False, markup=False, emoji=False)
        view = LiveDisplay(console, meter, time.monotonic, title, workers)
        stack.enter_context(view)
        stack.enter_context(output.to(view.print_above))
        yield view


@contextmanager
def _objects_only() -> Iterator[IO[str]]:
    """Standard output for JSON objects only.

    Other output of the program goes to standard error meanwhile.
    """
    sys.stdout.flush()
    saved = os.dup(1)
    stream = os.fdopen(saved, "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        yield stream
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(saved, 1)
        with suppress(OSError):
            stream.close()
