"""Simulated mates, followers of journals on the simulated disk."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from falkirk.simulate.disk import SimulatedDisk
from falkirk.simulate.process import Process
from recovery.checkpoint.following import Following
from recovery.layout import Layout
from recovery.place import journal_of
from timely.dataflow.plan import Plan

_RATES = (0.0, 0.002, 0.02)
"""Probabilities of a mate's death in a step, one for each seed."""


class SimulatedMate:
    """Mate of a worker: looks at the journal, or loads a piece, one turn at a time."""

    def __init__(
        self, disk: SimulatedDisk, plan: Plan, layout: Layout, worker: int, store_id: bytes, kept: int
    ) -> None:
        self.plan, self.layout = plan, layout
        of = disk, journal_of(worker, layout.number), store_id
        self.following = Following(plan, layout, worker, *of)
        self.following.kept_limit = kept


class SimulatedMates:
    """Mates of the workers of a simulated job, begun and killed by chance.

    Args:
        make: starts the mate of a worker.
        workers: how many.
        seed: of all chance.
    """

    def __init__(self, make: Callable[[int, int], SimulatedMate], workers: int, seed: int) -> None:
        self._make, self._workers = make, workers
        self._random = Random(f"mates {seed}")
        self._dies = self._random.choice(_RATES)
        self._kept = self._random.choice((0, 200, 1 << 20))
        self._there: dict[int, SimulatedMate] = {}
        self.died = self.took_over = 0
        """Numbers of killed mates, and of take-overs."""
        self.ahead = 0
        """Number of operators restored from a mate's memory."""

    def turn(self) -> None:
        """Let one mate do something: begin, look, load, or die."""
        worker = self._random.randrange(self._workers)
        if worker not in self._there:
            self._there[worker] = self._make(worker, self._kept)
        elif self._random.random() < self._dies:
            self.died += 1
            del self._there[worker]
        else:
            self._there[worker].following.turn()

    def take(self, worker: int) -> SimulatedMate | None:
        """Remove and return the mate of a worker, to take its place; None for none."""
        mate = self._there.pop(worker, None)
        self.took_over += mate is not None
        return mate

    def turned(self, process: Process) -> None:
        """Count operators restored from memory, after a turn of their process."""
        if process.recovery is not None:
            checkpoints = process.recovery.agent.checkpoints
            self.ahead += checkpoints.used_ahead
            checkpoints.used_ahead = 0

    def die(self, workers: int) -> None:
        """Kill all mates, with all other processes; `workers` begin next."""
        self._there.clear()
        self._workers = workers
