"""A mark of a job that starts, until it uses its store: whoever asks the job to stop waits for that, and finds it there."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from runtime.scratch import PREFIX, Scratch, sweep

_marks: list[Scratch] = []
"""Of this process."""


def begin(folder: str | os.PathLike[str]) -> None:
    """This process is about to run a job with the store `folder`, which need not be there."""
    _marks.append(Scratch(_kind(folder)))


def begun() -> None:
    """The job of this process uses its store."""
    while _marks:
        _marks.pop().close()


def starts(folder: str | os.PathLike[str]) -> bool:
    """True if a job of this user's, on this machine, is about to use this store."""
    where = Path(tempfile.gettempdir())
    sweep(where)  # those of processes that are gone
    return any(where.glob(f"{PREFIX}{_kind(folder)}-*"))


def _kind(folder: str | os.PathLike[str]) -> str:
    return "starts-" + hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:12]
