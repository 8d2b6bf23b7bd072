"""Whole jobs in every trouble that a job knows of: whatever is refused, their outputs are right in the end."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from falkirk.simulate.outside import Result
from falkirk.simulate.simulation import Simulation
from tests.falkirk.simulate import programs
from tests.falkirk.simulate.troubled import TroubledWorld, histories, small_histories
from tests.support.profile import effort

SEEDS = effort(2, 6, 300)


PROGRAMS = {
    build.__name__: build
    for build in (
        programs.logged_exchange,
        programs.mixed,
        programs.capabilities,
        programs.loop,
        programs.sinks,
        histories,
    )
}


@cache
def expected(name: str) -> Result:
    return Simulation(PROGRAMS[name], 1).expected


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_outputs_after_any_trouble_are_those_of_a_run_without(name: str) -> None:
    for seed in range(SEEDS):
        world = TroubledWorld(PROGRAMS[name], 1 + seed % 3, seed)
        try:
            with small_histories():
                world.run(60_000)
            world.outside.compare(expected(name))
        except Exception as error:
            raise AssertionError(f"{name}, seed {seed}: {error}") from error


def test_every_kind_of_trouble_is_met() -> None:
    met: Counter[str] = Counter()
    for seed in range(12):
        world = TroubledWorld(programs.acyclic, 1 + seed % 3, seed)
        world.run(60_000)
        met.update(world.met)
    kinds = {"a question", "an error", "nonsense", "told twice", "a long absence", "a loss that is not noticed"}
    kinds |= {"a loss before the decision is durable", "a silence", "another program"}
    assert kinds <= met.keys()
