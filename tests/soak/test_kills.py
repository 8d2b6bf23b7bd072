"""Hundreds of kills at random moments leave no trace in the output, and nothing grows."""

from __future__ import annotations

import pytest

from tests.soak import drawn_kills
from tests.soak.kills import soak


@pytest.mark.soak
@pytest.mark.parametrize("eager", [False, True], ids=["lazy", "eager"])
def test_hundreds_of_kills_leave_no_trace(eager: bool) -> None:
    tally = soak(kills=200, monitors=20, workers=[2, 4], seconds=20.0, seed=1, eager=eager)
    assert {"assembling", "gathering", "restoring", "running"} <= set(tally.phases)
    assert eager or "checkpointing" in tally.phases  # of commits nobody is told before they are made
    assert tally.store_bytes < 20_000_000
    assert tally.memory[-1][1] < tally.memory[0][1] + 100_000_000
    assert tally.survivors
    for early, late in tally.survivors:
        assert late < early + 20_000_000


@pytest.mark.soak
def test_workers_mates_and_pairs_are_killed_without_a_trace() -> None:
    tally = soak(kills=200, monitors=20, workers=[2, 3], seconds=40.0, seed=1, mates=1)
    assert tally.takeovers > 20
    assert {"the worker, caught up", "the mate, caught up", "both, caught up"} <= set(tally.pairs)


@pytest.mark.soak
def test_drawn_programs_leave_no_trace_of_kills() -> None:
    programs, killed = drawn_kills.soak(range(200), kills=4)
    assert programs > 80
    assert killed > 250
