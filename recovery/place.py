"""Places of processes in a job."""

from __future__ import annotations

import re
from typing import NamedTuple

_WORKER = re.compile(r"worker-(\d{3,})(?:\.layout-(\d+))?")


class Place(NamedTuple):
    """Place of a process: a worker, and the number of its copy.

    Processes follow each other at a place, as its incarnations. A worker as a share of the dataflow is an index. Encoded, a
    place is the two numbers.

    >>> str(Place(3)), str(Place(3, 1)), Place(3, 1).key
    ('worker 3', 'copy 1 of worker 3', 'worker-3.1')
    """

    worker: int
    copy: int = 0
    """0 is the process at work; others follow it."""

    @property
    def at_work(self) -> bool:
        """True for the process with the worker's journal, reports that count, and outputs."""
        return self.copy == 0

    def journal(self, layout: int = 0) -> str | None:
        """Owner of its journal in the layout of this number; None for a copy.

        A copy keeps all in memory.

        >>> Place(3).journal(), Place(3, 1).journal()
        ('worker-003', None)
        """
        return journal_of(self.worker, layout) if self.at_work else None

    @property
    def fields(self) -> dict[str, int]:
        """Place in the data of an event.

        >>> Place(3).fields, Place(3, 1).fields
        ({'worker': 3}, {'worker': 3, 'copy': 1})
        """
        return {"worker": self.worker, "copy": self.copy} if self.copy else {"worker": self.worker}

    def __str__(self) -> str:
        return f"copy {self.copy} of worker {self.worker}" if self.copy else f"worker {self.worker}"

    @property
    def key(self) -> str:
        """Name for files and addresses: worker-3, or worker-3.1 for a copy."""
        return f"worker-{self.worker}.{self.copy}" if self.copy else f"worker-{self.worker}"


def places(workers: int, copies: int = 1) -> tuple[Place, ...]:
    """All places of a job: those at work, by worker, then each further copy.

    >>> [tuple(place) for place in places(2, copies=2)]
    [(0, 0), (1, 0), (0, 1), (1, 1)]
    """
    return tuple(Place(worker, copy) for copy in range(copies) for worker in range(workers))


def journal_of(worker: int, layout: int = 0) -> str:
    """Owner of a worker's journal in the layout of this number, as segments name it.

    >>> journal_of(3), journal_of(3, 2)
    ('worker-003', 'worker-003.layout-2')
    """
    return f"worker-{worker:03d}" + (f".layout-{layout}" if layout else "")


def layout_of(owner: str) -> int | None:
    """Number of the layout of a worker's journal; None for other owners.

    >>> layout_of("worker-003"), layout_of("worker-003.layout-2"), layout_of("monitor")
    (0, 2, None)
    """
    found = _WORKER.fullmatch(owner)
    return None if found is None else int(found[2] or 0)
