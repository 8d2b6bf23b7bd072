"""Event log of a job: one JSON object per line, appended to a file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from errno import ENXIO
from pathlib import Path
from stat import S_ISFIFO
from typing import IO, TYPE_CHECKING, Any

import msgspec

from timely.errors import FalkirkError

if TYPE_CHECKING:
    from runtime.control import Stats
    from runtime.session.job import OnStats


class EventLog:
    """Writer of events as JSON lines: `at` (ISO 8601, UTC), `kind`, more by kind.

    Events are those of `monitor.coordination.effects.TimelineEvent`.
    """

    def __init__(self, file: IO[bytes], on_note: Callable[[str], None]) -> None:
        self._file = file
        self._on_note = on_note
        self._broken = False

    @classmethod
    def open(cls, path: str | os.PathLike[str], on_note: Callable[[str], None]) -> EventLog:
        """Open the file at `path` for appending; `on_note` is called if writes fail later.

        Raises FalkirkError if it cannot be opened.
        """
        try:
            # It is open for as long as the job runs.
            file = open(path, "ab", buffering=0, opener=_without_waiting)  # noqa: SIM115
            os.set_blocking(file.fileno(), not S_ISFIFO(os.fstat(file.fileno()).st_mode))
            return cls(file, on_note)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            if getattr(error, "errno", None) == ENXIO and Path(path).is_fifo():
                reason = "it is a pipe, and nobody reads it: start its reader first"
            raise FalkirkError(
                f"events cannot be written to {os.fspath(path)!r}: {reason}; name another file"
            ) from error

    def __call__(self, kind: str, at: float, data: dict[str, Any]) -> None:
        """Write an event; `at` is in seconds since 1970.

        A log that cannot be written is no reason to end the job.
        """
        if self._broken:
            return
        when = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
        line = msgspec.json.encode({"at": when, "kind": kind, **data}) + b"\n"
        try:
            reason = None if self._file.write(line) == len(line) else "it takes no more, as its reader does not keep up"
        except OSError as error:
            reason = error.strerror
        if reason is not None:
            self._broken = True
            self._on_note(f"events are no longer written to {self._file.name}: {reason}; the job goes on")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking.

    Opening a pipe does not wait for the reader, nor do later writes for a slow one.
    """
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)


class WorkLog:
    """Writer of the progress of operators' jobs and sources' queries, upon change.

    Events have the kind `working`. Called with the statistics of a job's workers; passes them on to `then`.
    """

    def __init__(self, log: EventLog, then: OnStats | None, clock: Callable[[], float] = time.time) -> None:
        self._log = log
        self._then = then
        self._clock = clock
        self._last: dict[tuple[int, str], dict[str, Any]] = {}

    def __call__(self, stats: Mapping[int, Stats]) -> None:
        """Log the progress of each worker, if changed."""
        for worker, stats_of in stats.items():
            for job in stats_of.jobs:
                waits = {name: getattr(job, name) for name in ("operator", "epoch", "what", "done", "total")}
                if waits != self._last.get((worker, job.operator)):
                    self._last[worker, job.operator] = waits
                    self._log("working", self._clock(), {"worker": worker, **waits})
        if self._then is not None:
            self._then(stats)
