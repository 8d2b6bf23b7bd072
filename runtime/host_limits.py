"""Limits of a host: number of worker processes and of open files."""

from __future__ import annotations

import os
from contextlib import suppress

from timely.data.routing import SHARDS
from timely.errors import FalkirkError, at_line

_A_CORE = 8
_AT_LEAST = 64


def check_workers(workers: object) -> None:
    """Refuse an invalid number of workers.

    Keys are dealt out in shards: beyond their number, workers had nothing to do.
    """
    if not isinstance(workers, int) or isinstance(workers, bool) or not 1 <= workers <= SHARDS:
        raise FalkirkError(
            at_line(
                f"a job has at least one worker, and at most {SHARDS:,}: workers is a whole number, not {workers!r}"
            )
        )


def check_processes(workers: int, files: int) -> None:
    """Refuse more worker processes than this host has use or open files for."""
    cores = os.cpu_count() or 1
    most = max(_AT_LEAST, _A_CORE * cores)
    if workers > most:
        raise FalkirkError(
            f"{workers:,} worker processes are too many for this host, which has {cores:,} cores: take at most {most:,}, or "
            "several hosts"
        )
    allowed = _allow_files(files)
    if files > allowed:
        raise FalkirkError(
            f"{workers:,} worker processes need {files:,} open files, and this process may have {allowed:,}: take fewer "
            f"workers, or allow more (ulimit -n {files})"
        )


def _allow_files(files: int) -> int:
    """Raise this process's limit of open files towards `files`; returns the limit."""
    try:
        import resource
    except ImportError:
        return files
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= files:
        return files
    wanted = files if hard == resource.RLIM_INFINITY else min(files, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
