"""Simulated mates, followers of journals on the simulated disk."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from falkirk.simulate.disk import SimulatedDisk
from falkirk.simulate.process import Process
from recovery.agent.events import Held, MateBegan, MateEnded
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
        self.of: Process | None = None
        """Sending process of the worker."""
        self.was: Process | None = None
        """The last such process."""

    def attend(self, process: Process) -> None:
        """Begin to take segments of a process."""
        self.leave()
        self.following.forget_held()
        self.of = process
        process.to_mate.clear()
        process.of_mate.append(MateBegan())

    def hear(self) -> bool:
        """Take one message of the worker; False if there is none."""
        if self.of is None or not self.of.to_mate:
            return False
        name, data = self.of.to_mate.popleft()
        if data is None:
            self.following.let_go(name)
        else:
            self.following.hold(name, data)
            self.of.of_mate.append(Held(name))
        return True

    def leave(self) -> None:
        """End the connection to the worker."""
        if self.of is not None:
            self.of.to_mate.clear()
            self.of.of_mate.append(MateEnded())
        self.was, self.of = self.of, None


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

    def turn(self, process: Callable[[int], Process | None]) -> None:
        """Let one mate begin, look, load, listen to its worker's `process`, or die."""
        worker = self._random.randrange(self._workers)
        if worker not in self._there:
            self._there[worker] = self._make(worker, self._kept)
            return
        mate, now = self._there[worker], process(worker)
        if self._random.random() < self._dies:
            self.died += 1
            mate.leave()
            del self._there[worker]
        elif self._random.random() < self._dies:
            mate.leave()  # given up as too slow
        elif now is not None and now is not mate.of and self._random.random() < 0.3:
            mate.attend(now)
        elif not (self._random.random() < 0.7 and mate.hear()):
            mate.following.turn()

    def take(self, worker: int) -> SimulatedMate | None:
        """Remove and return the mate of a worker, to take its place; None for none."""
        mate = self._there.pop(worker, None)
        self.took_over += mate is not None
        if mate is not None:
            while self._random.random() < 0.7 and mate.hear():  # what was on its way
                pass
            mate.leave()
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
