"""Numbers of rounds: never used by two monitors of one job, although a monitor may die before it has decided anything."""

from __future__ import annotations

from collections.abc import Callable

from monitor.coordination.commit import GroupCommit
from monitor.coordination.records import KeptRounds, SavedJob

BLOCK = 1000
"""Round numbers that are reserved at a time, so that a round need not wait for a write."""


class RoundNumbers:
    """Rising numbers above all that workers may have heard of an earlier monitor.

    Args:
        saved: what earlier monitors have journaled.
        commit: the journal.
        ready: is called when the first numbers are durably reserved.
    """

    def __init__(self, saved: SavedJob, commit: GroupCommit, ready: Callable[[], None]) -> None:
        self.last = max(saved.rounds, saved.decision.generation if saved.decision else 0)
        """The newest in use."""
        self._reserved = self.last
        self._commit = commit
        self._reserve(ready)

    @property
    def ready(self) -> bool:
        """True if there may be a next one."""
        return self._reserved > self.last

    def next(self) -> int:
        """The number of a new round."""
        assert self.ready, "no number is reserved"
        self.last += 1
        if self._reserved - self.last < BLOCK // 2:
            self._reserve(None)
        return self.last

    def _reserve(self, then: Callable[[], None] | None) -> None:
        last = self.last + BLOCK

        def stored() -> None:
            self._reserved = last
            if then is not None:
                then()

        self._commit.add(KeptRounds(last), stored)
