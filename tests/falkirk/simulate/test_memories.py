"""What operators keep beside their state does not keep simulated jobs with faults from giving what they give without."""

from __future__ import annotations

import pytest

from falkirk.simulate.simulation import Simulation
from recovery.checkpoint import checkpoints
from recovery.checkpoint.operator_memory import look
from tests.falkirk.simulate.memories import KINDS, Counts, memories
from tests.falkirk.simulate.troubled import small_histories
from tests.soak.simulated_coverage import world


@pytest.mark.parametrize("seeds", [pytest.param(3, marks=pytest.mark.check), pytest.param(40, marks=pytest.mark.soak)])
def test_whatever_is_kept_survives_faults(seeds: int) -> None:
    expected = Simulation(memories, 1).expected
    assert len({name for name, _ in expected}) == 2 * len(KINDS) + 1
    for seed in range(seeds):
        job = world("troubled", memories, seed)
        with small_histories():
            assert checkpoints.MOST_EVENTS == 8
            job.run(100_000)
        job.outside.compare(expected)


def test_what_can_be_looked_into_and_what_cannot() -> None:
    clear = {name for name, make in KINDS.items() if look(Counts(make)) is not None}
    assert clear == {"plain", "containers", "sets", "objects", "functions", "constants"}
