"""Places of processes in a job."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """Place of a process: a worker, and the number of its copy.

    Processes follow each other at a place, as its incarnations. A worker as a share of the dataflow is an index.

    >>> str(Place(3)), str(Place(3, 1)), Place(3, 1).key
    ('worker 3', 'copy 1 of worker 3', 'worker-3.1')
    """

    worker: int
    copy: int = 0
    """0 is the process at work; others follow it."""

    def __str__(self) -> str:
        return f"copy {self.copy} of worker {self.worker}" if self.copy else f"worker {self.worker}"

    @property
    def key(self) -> str:
        """Name for files and addresses: worker-3, or worker-3.1 for a copy."""
        return f"worker-{self.worker}.{self.copy}" if self.copy else f"worker-{self.worker}"
