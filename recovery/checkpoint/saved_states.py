"""Saved states of all workers, for readers beside the job.

A group's cuts have common bounds, so an operator's state at one bound is the union of its workers' states there. Nothing
is decoded before it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from recovery.checkpoint.checkpoints import Checkpoints
from recovery.metadata import Bound
from timely.state.interface import Runs


class SavedStates:
    """States by processor and bound, in the checkpoints of each worker in order."""

    def __init__(self, workers: Sequence[Checkpoints]) -> None:
        self._workers = workers

    def bounds(self, processor: int) -> list[Bound]:
        """Bounds with a checkpoint on every worker, ascending."""
        of_workers = [{saved.bound for saved in each.of(processor).saved} for each in self._workers]
        return sorted(set.intersection(*of_workers))

    def runs(self, processor: int, bound: Bound) -> list[Runs]:
        """Runs of the state at one of its `bounds`, by worker."""
        return [checkpoints.runs(processor, bound) for checkpoints in self._workers]
