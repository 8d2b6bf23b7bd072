"""Progress of a running job: live on a terminal, as plain lines, or as JSON.

A `Meter` turns the workers' statistics into one `ProgressReading`; the displays only draw readings. With `--json`, each line on
the standard output is one object:

    {"event": "progress", "elapsed": 2.0, "records": 512000, "records_per_second": 256000.0, "written": 1800,
     "open_epoch": 7, "read_epoch": 8, "lag": 1, "queued_bytes": 0,
     "workers": [{"worker": 0, "records": 512000, "written": 900, "open_epoch": 7, "read_epoch": 8, "queued_bytes": 0}, ...],
     "jobs": [{"operator": "history", "epoch": 7, "what": "Spark: task", "done": 3, "total": 8, "seconds": 1.2}, ...]}

`event` is "progress" while the job runs; the last line has "finished", "failed" (with "kind", "error" and "exit_code") or
"interrupted" (with "exit_code"). Times are seconds. `open_epoch` is the oldest epoch that is not complete on every worker,
`read_epoch` the epoch that the sources are in, `lag` how many epochs are read to their end but not complete; they are null
when there is no such epoch: nothing is open any more, or all sources have ended. `jobs` are those that operators have
started outside the workers, on Spark for example, and that say how far they are (`total` 0: they do not say of how much);
their `epoch` is -1 at the end of all input.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

    from runtime.control import JobStats, Stats

_WINDOW_SECONDS = 3.0
"""Averaging window of rates, in seconds."""

_MOST_ROWS = 8
"""Maximum number of workers with their own line in the live view."""

_GAP = 2

_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class WorkerReading:
    """One worker's part of a reading.

    Epochs are None when nothing is open, or when its sources have ended.
    """

    worker: int
    records: int
    records_per_second: float
    written: int
    open_epoch: int | None
    read_epoch: int | None
    queued_bytes: int


@dataclass(frozen=True, slots=True)
class ProgressReading:
    """Progress of a job: sums over its workers, and each worker's part."""

    elapsed: float
    workers: list[WorkerReading] = field(default_factory=list)
    jobs: list[JobStats] = field(default_factory=list)

    @property
    def records(self) -> int:
        return sum(worker.records for worker in self.workers)

    @property
    def records_per_second(self) -> float:
        return sum(worker.records_per_second for worker in self.workers)

    @property
    def written(self) -> int:
        return sum(worker.written for worker in self.workers)

    @property
    def queued_bytes(self) -> int:
        return sum(worker.queued_bytes for worker in self.workers)

    @property
    def open_epoch(self) -> int | None:
        return min((w.open_epoch for w in self.workers if w.open_epoch is not None), default=None)

    @property
    def read_epoch(self) -> int | None:
        return min((w.read_epoch for w in self.workers if w.read_epoch is not None), default=None)

    @property
    def lag(self) -> int | None:
        """Number of epochs read by all sources and not complete yet; None if unknown."""
        if self.open_epoch is None or self.read_epoch is None:
            return None
        return max(0, self.read_epoch - self.open_epoch)

    def as_dict(self, event: str) -> dict[str, Any]:
        """The JSON form, as the head of this module describes it."""
        return {
            "event": event,
            "elapsed": round(self.elapsed, 3),
            "records": self.records,
            "records_per_second": round(self.records_per_second, 1),
            "written": self.written,
            "open_epoch": self.open_epoch,
            "read_epoch": self.read_epoch,
            "lag": self.lag,
            "queued_bytes": self.queued_bytes,
            "workers": [
                {
                    "worker": w.worker,
                    "records": w.records,
                    "written": w.written,
                    "open_epoch": w.open_epoch,
                    "read_epoch": w.read_epoch,
                    "queued_bytes": w.queued_bytes,
                }
                for w in self.workers
            ],
            "jobs": [{name: getattr(job, name) for name in job.__struct_fields__} for job in self.jobs],
        }


class Meter:
    """Latest statistics of every worker, with history for rates; `now` is in seconds."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._stats: dict[int, Stats] = {}
        self._window: deque[tuple[float, dict[int, int]]] = deque()
        self.history: deque[float] = deque(maxlen=24)
        """Records per second in each of the last seconds, for the curve."""
        self._history_at: tuple[float, int] | None = None

    def observe(self, stats: Mapping[int, Stats], now: float) -> None:
        """Store a worker's newest statistics."""
        self._stats = dict(stats)
        counts = {worker: each.records for worker, each in stats.items()}
        self._window.append((now, counts))
        while len(self._window) > 2 and self._window[1][0] <= now - _WINDOW_SECONDS:
            self._window.popleft()
        total = sum(counts.values())
        # The first news is where rates begin: before that, processes were starting.
        since, before = self._history_at = self._history_at or (now, total)
        if now - since >= 1.0:
            self.history.append((total - before) / (now - since))
            self._history_at = (now, total)

    def reading(self, now: float) -> ProgressReading:
        """The progress of the job at `now`; a job that stands still shows a falling rate."""
        since, before = self._window[0] if self._window else (now, {})
        seconds = max(now - since, 1e-3)
        workers = [
            WorkerReading(
                worker,
                stats.records,
                (stats.records - before.get(worker, stats.records)) / seconds,
                stats.written,
                # A worker that is done may not have heard of the last epochs' end: nobody asks it any more.
                None if stats.done else stats.epoch,
                stats.read_epoch,
                stats.queued_bytes,
            )
            for worker, stats in sorted(self._stats.items())
        ]
        jobs = [job for _, stats in sorted(self._stats.items()) for job in stats.jobs if not stats.done]
        return ProgressReading(now - self._began, workers, jobs)

    def total(self, now: float) -> ProgressReading:
        """Final reading; rates are means over the whole run."""
        reading = self.reading(now)
        seconds = max(reading.elapsed, 1e-3)
        return ProgressReading(
            reading.elapsed,
            [
                WorkerReading(
                    w.worker, w.records, w.records / seconds, w.written, w.open_epoch, w.read_epoch, w.queued_bytes
                )
                for w in reading.workers
            ],
        )


class Display(Protocol):
    """Display of a running job; a context manager around the job."""

    def __enter__(self) -> Display: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def update(self, now: float) -> None:
        """Update the display after new statistics."""

    def end(self, event: str, reading: ProgressReading, **more: object) -> None:
        """Show the end of the job: "finished", "failed" or "interrupted"."""


class QuietDisplay:
    """Display without output."""

    def __enter__(self) -> QuietDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def update(self, now: float) -> None:
        """Show nothing."""

    def end(self, event: str, reading: ProgressReading, **more: object) -> None:
        """Show nothing."""


class JsonDisplay(QuietDisplay):
    """One JSON object a line, at most one every `every` seconds."""

    def __init__(self, stream: IO[str], meter: Meter, every: float, now: float) -> None:
        self._stream = stream
        self._meter = meter
        self._every = every
        self._due = now + every

    def update(self, now: float) -> None:
        """Print a line when one is due."""
        if now >= self._due:
            self._due = now + self._every
            self._print(self._meter.reading(now).as_dict("progress"))

    def end(self, event: str, reading: ProgressReading, **more: object) -> None:
        """Print the last line."""
        self._print({**reading.as_dict(event), **more})

    def _print(self, entry: dict[str, Any]) -> None:
        print(json.dumps(entry), file=self._stream, flush=True)


class PlainDisplay(QuietDisplay):
    """A line of text every `every` seconds, and a last one."""

    def __init__(self, stream: IO[str], meter: Meter, every: float, now: float, title: str) -> None:
        self._stream = stream
        self._meter = meter
        self._every = every
        self._due = now + every
        self._title = title

    def update(self, now: float) -> None:
        """Print a line when one is due."""
        if now >= self._due:
            self._due = now + self._every
            print(plain_line(self._meter.reading(now)), file=self._stream, flush=True)

    def end(self, event: str, reading: ProgressReading, **more: object) -> None:
        """Print the summary of a finished job; errors are reported elsewhere."""
        if event == "finished":
            print(f"{self._title} finished: {summary(reading)}", file=self._stream, flush=True)


class LiveDisplay:
    """A few lines at the bottom of the terminal, drawn anew several times a second.

    `console` writes to the terminal itself. What the program prints must come through `print_above`.
    """

    def __init__(self, console: Console, meter: Meter, clock: Callable[[], float], title: str, workers: int) -> None:
        from rich.spinner import Spinner

        self.console = console
        self._meter = meter
        self._clock = clock
        self._title = title
        self._workers = workers
        self._spinner = Spinner("dots" if _speaks_unicode(console) else "line", style="cyan")
        self._live: Live | None = None
        self._last: Text | None = None

    def __enter__(self) -> LiveDisplay:
        from rich.live import Live

        self._live = Live(
            console=self.console,
            get_renderable=self._render,
            refresh_per_second=8,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._last is not None:
            self.console.print(self._last, soft_wrap=True, highlight=False)

    def update(self, now: float) -> None:
        """Nothing to do: the view draws itself."""

    def print_above(self, text: str) -> None:
        """Show output of the program above the view."""
        from rich.text import Text

        shown = Text.from_ansi(text) if "\x1b" in text else Text(text.removesuffix("\n"))
        self.console.print(shown, soft_wrap=True, highlight=False)

    def end(self, event: str, reading: ProgressReading, **more: object) -> None:
        """Leave one line behind for a job that finished, below all that it printed."""
        if event != "finished":
            return
        from rich.text import Text

        mark = "✓" if _speaks_unicode(self.console) else "*"
        self._last = Text.assemble((f"{mark} ", "bold green"), (self._title, "bold"), f" finished: {summary(reading)}")

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        now = self._clock()
        reading = self._meter.reading(now)
        several = f"{self._workers} workers" if self._workers > 1 else "1 worker"
        head = Table.grid(padding=(0, 1))
        title = Text.assemble((self._title, "bold"), (f"  {several}  {clock_time(reading.elapsed)}", "dim"))
        head.add_row(self._spinner, title)
        if not reading.workers:
            return Group(head, Text("  starting", style="dim"))
        facts = Table.grid(padding=(0, 2))
        facts.add_column(style="dim")
        facts.add_column(justify="right")
        facts.add_column()
        curve = sparkline(list(self._meter.history)) if _speaks_unicode(self.console) else ""
        rate = Text.assemble((f"{rate_text(reading.records_per_second)}", "bold cyan"), "  ", (curve, "cyan"))
        facts.add_row("  read", f"{reading.records:,}", rate)
        facts.add_row("  written", f"{reading.written:,}", "")
        facts.add_row("  open epoch", _epoch(reading.open_epoch), Text(_lag_text(reading), style=_lag_style(reading)))
        for job in reading.jobs[:_MOST_ROWS]:
            facts.add_row(f"  {job.operator}", _job_epoch(job), Text(job_text(job), style="cyan"))
        parts: list[RenderableType] = [head, facts]
        if self._workers > 1:
            parts.append(self._table(reading))
        return Group(*parts)

    def _table(self, reading: ProgressReading) -> RenderableType:
        from rich.table import Table

        rows = reading.workers
        if len(rows) > _MOST_ROWS:
            rows = sorted(rows, key=lambda w: (w.open_epoch is None, w.open_epoch or 0))[:_MOST_ROWS]
        few = len(rows) < len(reading.workers)
        columns = {
            "  worker": [str(w.worker) for w in rows] + ["..."] * few,
            "read": [f"{w.records:,}" for w in rows] + [""] * few,
            "records/s": [f"{w.records_per_second:,.0f}" for w in rows] + [""] * few,
            "written": [f"{w.written:,}" for w in rows] + [""] * few,
            "oldest open epoch": [_epoch(w.open_epoch) for w in rows] + [f"(the {len(rows)} furthest behind)"] * few,
            "queued": [size_text(w.queued_bytes) for w in rows] + [""] * few,
        }
        widths = {name: max(map(len, (name, *cells))) for name, cells in columns.items()}
        for name in ("queued", "written", "read", "oldest open epoch"):  # the first to go where the terminal is narrow
            if sum(widths[each] + _GAP for each in columns) > self.console.width:
                del columns[name]
        table = Table(box=None, padding=(0, _GAP), collapse_padding=True, pad_edge=False, header_style="dim")
        for name in columns:
            table.add_column(name, justify="right", no_wrap=True)
        for cells in zip(*columns.values(), strict=True):
            table.add_row(*cells)
        return table


def summary(reading: ProgressReading) -> str:
    """A finished job in one line."""
    seconds = f"{reading.elapsed:.1f} s" if reading.elapsed < 120 else clock_time(reading.elapsed)
    read = f"{reading.records:,} records read in {seconds} ({rate_text(reading.records_per_second)})"
    return f"{read}, {reading.written:,} written"


def plain_line(reading: ProgressReading) -> str:
    """A running job in one line."""
    if not reading.workers:
        return f"{clock_time(reading.elapsed)}  starting"
    epochs = f"oldest open epoch {_epoch(reading.open_epoch)}"
    if len(reading.workers) > 1:
        epochs += " (" + ", ".join(f"worker {w.worker}: {_epoch(w.open_epoch)}" for w in reading.workers) + ")"
    read = f"{reading.records:,} records read, {rate_text(reading.records_per_second)}"
    jobs = "".join(f"; {job.operator}, {_job_epoch(job)}: {job_text(job)}" for job in reading.jobs)
    return f"{clock_time(reading.elapsed)}  {read}, {reading.written:,} written, {epochs}, {_lag_text(reading)}{jobs}"


def job_text(job: JobStats) -> str:
    """The progress of a job of an operator, in words.

    >>> from runtime.control import JobStats
    >>> job_text(JobStats("history", 7, "Spark: task", 3, 8, 1.25))
    'Spark: task 3 of 8, 1.2 s'
    """
    share = f" {job.done:,} of {job.total:,}" if job.total else ""
    return f"{job.what}{share}, {job.seconds:.1f} s"


def rate_text(rate: float) -> str:
    """Records a second, with a digit after the point where that says something."""
    return f"{rate:,.0f} records/s" if rate >= 10 or rate == 0 else f"{rate:.1f} records/s"


def clock_time(seconds: float) -> str:
    """Duration as minutes and seconds, with hours if any: 0:07, 12:30, 1:05:00."""
    whole = int(seconds)
    minutes = f"{whole % 3600 // 60}:{whole % 60:02}"
    return minutes if whole < 3600 else f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"


def size_text(count: float) -> str:
    """Size in bytes with a binary unit: 512 B, 1.5 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def sparkline(values: list[float]) -> str:
    """Values as a curve of block characters; empty without values above zero.

    The highest is a full block.

    >>> sparkline([1, 2, 4, 8])
    '▁▂▄█'
    """
    top = max(values, default=0.0)
    if top <= 0:
        return ""
    return "".join(_BARS[min(7, max(0, round(value / top * 8) - 1))] for value in values)


def _epoch(epoch: int | None) -> str:
    return "none" if epoch is None else f"{epoch:,}"


def _job_epoch(job: JobStats) -> str:
    return "the end" if job.epoch < 0 else f"epoch {job.epoch:,}"


def _lag_text(reading: ProgressReading) -> str:
    if reading.open_epoch is None:
        return "all complete"
    if reading.lag is None:
        return "sources at their end"
    return "no lag" if reading.lag == 0 else f"lag {reading.lag:,} epoch{'s' if reading.lag > 1 else ''}"


def _lag_style(reading: ProgressReading) -> str:
    return "yellow" if reading.lag else "dim"


def _speaks_unicode(console: Console) -> bool:
    return (console.encoding or sys.getdefaultencoding()).lower().startswith("utf")
