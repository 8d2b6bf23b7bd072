"""What happens to a job, as a log for programs: a JSON object a line, added to a file as it happens."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import IO, Any

import msgspec

from timely.errors import FalkirkError


class EventLog:
    """Writes the events of the timeline (`monitor.effects.Event`): `at` (ISO 8601, UTC), `kind`, and more by kind."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> EventLog:
        """Add to the file at `path`. Raises FalkirkError if that cannot be."""
        try:
            return cls(open(path, "ab", buffering=0))  # for as long as the job runs
        except OSError as error:
            raise FalkirkError(f"events cannot be written to {os.fspath(path)}: {error.strerror}") from error

    def __call__(self, kind: str, at: float, data: dict[str, Any]) -> None:
        """An event. `at`: seconds since 1970."""
        when = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
        self._file.write(msgspec.json.encode({"at": when, "kind": kind, **data}) + b"\n")

    def close(self) -> None:
        """No more events."""
        self._file.close()
