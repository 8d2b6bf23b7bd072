"""Mark of a starting job, until it uses its store; `stop_job` waits for it."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from recovery.store.address import StoreAddress
from runtime.folders.scratch import PREFIX, Scratch, sweep
from timely.errors import FalkirkError


class JobStopped(FalkirkError):
    """Job stopped on request; run again, it goes on."""


class JobSaved(JobStopped):
    """Job stopped at a savepoint: all it had read is complete and published."""


_marks: list[Scratch] = []
"""Marks of this process."""


def begin(store: StoreAddress) -> None:
    """Mark the start of a job with a store, which need not exist."""
    _marks.append(Scratch(_kind(store)))


def begun() -> None:
    """Remove the mark: the job of this process uses its store."""
    while _marks:
        _marks.pop().close()


def starts(store: StoreAddress) -> bool:
    """True if a job of this user, on this machine, is about to use this store."""
    where = Path(tempfile.gettempdir())
    sweep(where)  # those of processes that are gone
    return any(where.glob(f"{PREFIX}{_kind(store)}-*"))


def _kind(store: StoreAddress) -> str:
    return "starts-" + hashlib.sha256(os.fsencode(os.path.realpath(store.local))).hexdigest()[:12]
