"""Ownership of an output folder: a marker names its job and sink.

A marker in the folder says it. It is written before the first file is.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Self

import msgspec

from timely.errors import SinkError


class Owner(msgspec.Struct, frozen=True):
    """Owner of output: a sink's name and the identity of its job.

    The identity is that of the job's store, or of this run if it has none.
    """

    job: str
    sink: str


class OwnedSink:
    """Base of sinks with the name of their job and sink beside their output."""

    def __init__(self) -> None:
        self._owner = Owner(uuid.uuid4().hex, "")
        self._of_job = False

    def for_job(self, job: str, name: str) -> Self:
        """Copy of the sink with the marks of one job."""
        same = copy(self)
        same._owner, same._of_job = Owner(job, name), True
        return same


class Claim:
    """Exclusive claim of a job's sink on an output folder.

    `marker` is the file there that names the `owner`.

    `files` names files of output that are there. `remedy` says what the user can do if they are another's.

    Raises:
        SinkError: if they are another's. OSError.
    """

    def __init__(self, folder: Path, marker: Path, owner: Owner, files: Callable[[], list[str]], remedy: str) -> None:
        self._folder = folder
        self._marker = marker
        self._owner = owner
        self._remedy = remedy
        descriptor = os.open(marker, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # all workers claim it at the same time
            known = owner_of(os.pread(descriptor, 1 << 16, 0))
            if known == owner:
                return
            there = files()
            if there or (known is not None and known.job == owner.job):
                raise self._refused(known, there)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, msgspec.json.encode(owner), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def check(self) -> None:
        """Check the claim before files appear.

        Raises SinkError if another job has taken the folder over since: it was empty.
        """
        try:
            known = owner_of(self._marker.read_bytes())
        except FileNotFoundError:
            known = None
        if known != self._owner:
            raise self._refused(known, [])

    def _refused(self, known: Owner | None, files: list[str]) -> SinkError:
        there = f"{files[0]} and {len(files) - 1:,} more" if len(files) > 1 else "".join(files)
        if known is not None and known.job == self._owner.job:
            whose = f"sink {known.sink!r} of this job writes here, too"
        elif known is None:
            whose = f"there are files that no job of this version has written ({there})" if there else "it was emptied"
        else:
            whose = f"another job writes here{f', its files are {there}' if there else ''}"
        return SinkError(f"{self._folder}: {whose}. {self._remedy}")


def owner_of(data: bytes) -> Owner | None:
    """Decode a marker; None if it is incomplete."""
    try:
        return msgspec.json.decode(data, type=Owner)
    except (
        msgspec.MsgspecError,
        ValueError,
        RecursionError,
    ):  # it was made by a process that died at once: nothing was written yet
        return None
