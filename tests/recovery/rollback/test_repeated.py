"""One rollback on top of another: what came back from a store goes lower from memory; what was sent ahead is not forgotten."""

from __future__ import annotations

import pytest

from falkirk.simulate.faults import Rates
from tests.recovery.jobs import Faults, simulated
from tests.support.profile import effort

FAULTS = {"kill": Faults(Rates(until=2.0, kill=0.008)), "io": Faults(Rates(until=2.0, kill_io=0.02))}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("faults", ["kill", "io"])
@pytest.mark.parametrize("program", ["tight", "logs", "ahead"])
def test_rollbacks_on_top_of_each_other_lose_nothing(program: str, faults: str, workers: int) -> None:
    wrong = {seed: simulated(program, workers, seed, FAULTS[faults]) for seed in range(effort(2, 4, 80))}
    assert not any(wrong.values()), {seed: what for seed, what in wrong.items() if what}
