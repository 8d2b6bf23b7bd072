"""Places of processes in a job."""

from __future__ import annotations

from typing import NamedTuple


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

    @property
    def journal(self) -> str | None:
        """Owner of its journal, as segments name it; None for a copy.

        A copy keeps all in memory.

        >>> Place(3).journal, Place(3, 1).journal
        ('worker-003', None)
        """
        return journal_of(self.worker) if self.at_work else None

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


def journal_of(worker: int) -> str:
    """Owner of a worker's journal, as segments name it."""
    return f"worker-{worker:03d}"
