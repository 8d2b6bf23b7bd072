"""Task of worker processes, pickled by their supervisor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from recovery.store.address import StoreAddress
from runtime.program import Program
from runtime.session.job import Drive
from runtime.sources.limits import Limits

MUCH = 16 << 20
"""Least bytes of durable state, for a waiting process to load Numba.

That takes seconds, and would restore so much.
"""


@dataclass(frozen=True, slots=True)
class StoreTask:
    """Store of a job, and address of its monitor.

    The monitor listens at a path, or at (host, port) for processes with `token`.
    """

    address: StoreAddress
    id: bytes
    monitor: str | tuple[str, int]
    patience: float
    """Seconds of the monitor's silence before sources pause.

    They do so where much waits for the monitor.
    """
    token: bytes = b""
    copies: int = 1
    """Processes of each worker."""
    layout: int = 0
    """Number of the layout of the workers' journals."""


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """Task common to all workers of a job.

    Without a store they begin together, when all have built the same dataflow.
    """

    program: Program
    workers: int
    limits: Limits
    job: str
    """Identity of the job, for sinks."""
    files: Path
    """Folder for the files of all workers of this host."""
    drive: Drive | None = None
    store: StoreTask | None = None
