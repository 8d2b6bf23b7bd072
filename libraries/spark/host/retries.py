"""Retry counts: failures of a query, and losses of a whole Spark separately.

A query that fails is tried again as often as its options say. A Spark that is killed, or does not answer any more, takes all
that runs there with it, whosever fault it is: such losses end a job only in a row, with nothing done between them. A job may
lose any number of Sparks in its life.
"""

from __future__ import annotations

from libraries.spark.errors import SparkError

MOST_LOSSES = 5
"""Most losses in a row before a job fails."""


class Losses:
    """Losses in a row of one Spark, shared by its users; a process counts once."""

    def __init__(self) -> None:
        self._lost: set[int] = set()

    def __len__(self) -> int:
        return len(self._lost)

    def add(self, process: int) -> None:
        """Record the loss of a process."""
        self._lost.add(process)

    def clear(self) -> None:
        """Reset the count, after a success."""
        self._lost.clear()


class Tries:
    """Retries of one query: at most `retries` after the first attempt.

    >>> losses = Losses()
    >>> tries = Tries(1, losses)
    >>> for process in range(MOST_LOSSES):
    ...     tries.lost(process, "killed")
    >>> tries.failed("no such file")
    >>> tries.failed("no such file")
    Traceback (most recent call last):
    libraries.spark.errors.SparkError: Spark has failed 2 times on what was asked of it. The last time: no such file
    """

    def __init__(self, retries: int, losses: Losses) -> None:
        self._retries = retries
        self._losses = losses
        self.failures = 0

    def failed(self, why: str) -> None:
        """Count a failure of the query; SparkError after the last retry."""
        self.failures += 1
        if self.failures > self._retries:
            times = "once" if self.failures == 1 else f"{self.failures} times"
            raise SparkError(f"Spark has failed {times} on what was asked of it. The last time: {why}")

    def lost(self, process: int, why: str) -> None:
        """Count the loss of a process; SparkError after too many in a row."""
        self._losses.add(process)
        if len(self._losses) > max(MOST_LOSSES, self._retries):
            raise SparkError(
                f"Spark was lost {len(self._losses)} times in a row, with nothing done between. The last time: {why}"
            )

    def done(self) -> None:
        """Reset the counts, after progress."""
        self.failures = 0
        self._losses.clear()
