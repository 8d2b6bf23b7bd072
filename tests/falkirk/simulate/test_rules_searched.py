"""Rules whose loss is seen in few runs only: many seeds are tried until one shows it. Without seeds that were found once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from falkirk.simulate.faults import Rates
from falkirk.simulate.simulation import Simulation
from falkirk.simulate.world import World
from recovery.memory.recorder import WorkerRecorder
from recovery.protocol import Decision
from recovery.rollback.orders import RollbackPlanner
from recovery.rollback.queues import owed
from tests.falkirk.simulate.programs import PROGRAMS
from tests.support.mutation import Instead, changed
from timely.errors import FalkirkError
from timely.time import Time

MOST = 300

pytestmark = pytest.mark.soak


def keeps_what_others_sent(
    self: RollbackPlanner, decision: Decision, remembers: bool
) -> Callable[[int, int, Time, Time], bool]:
    """As if what waits of other living workers stayed in the queue, and were refused when it comes again."""
    edges = {edge.edge: edge for edge in self._layout.edges}
    mine, inner = self._worker.index, kept(self, decision, remembers)

    def keeps(index: int, sender: int, event: Time, time: Time) -> bool:
        if sender == mine or not remembers or sender in decision.failed:
            return inner(index, sender, event, time)
        edge = edges[index]
        return owed(decision.bounds[sender][edge.source], decision.bounds[mine][edge.target], event, time)

    return keeps


kept = RollbackPlanner._keeps


def default(program: str) -> Callable[[int], bool]:
    """True if a seed goes wrong with the faults that it draws."""
    runs = Simulation(PROGRAMS[program], 3)
    assert runs.expected
    return lambda seed: runs.run(seed) is not None


def busy(program: str) -> Callable[[int], bool]:
    """The same of short turns, quick checkpoints, and workers that die."""
    right = Simulation(PROGRAMS[program], 3).expected

    def wrong(seed: int) -> bool:
        world = World(PROGRAMS[program], 3, seed, ())
        world._hurry, world._events = 0.01, 1
        world.disk.faults = replace(world.disk.faults, delay=(0.0005, 0.005))
        world.injector.rates = Rates(until=3.0, kill=0.006, in_rounds=1.0)
        try:
            world.run()
            world.outside.compare(right)
        except FalkirkError:
            return True
        return False

    return wrong


RULES: dict[str, tuple[Callable[[str], Callable[[int], bool]], str, Instead]] = {
    "each edge in the order of sending": (
        default,
        "order_of_logs",
        Instead(RollbackPlanner, "_keeps", keeps_what_others_sent),
    ),
    "what was acted on is N̄, though work that waits lowers what is complete": (
        busy,
        "unsteady",
        Instead(WorkerRecorder, "notified_bound", lambda self, processor: (0,)),
    ),
}


@pytest.mark.parametrize("says", RULES)
def test_some_seed_misses_the_rule(says: str) -> None:
    kind, program, change = RULES[says]
    wrong = kind(program)

    def found() -> Any:
        return next((seed for seed in range(MOST) if wrong(seed)), None)

    seed = changed([change], found)
    assert seed is not None, f"nobody missed the rule: {says}"
    assert not wrong(seed)
