"""Programs that nobody wrote, under faults that nobody chose: their outputs are as good as the promises say."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from falkirk.simulate.simulation import Simulation, report
from tests.falkirk.simulate.drawn import ENTRIES, SOURCES, STEPS, built, draw, program

SOAK = os.environ.get("FALKIRK_TEST_PROFILE") == "soak"
EACH = 5
"""The number of programs in one test."""


@pytest.mark.parametrize("first", range(0, 4_000 if SOAK else 20, EACH))
def test_outputs_of_drawn_programs_are_those_of_a_run_without_faults(first: int) -> None:
    for seed in range(first, first + EACH):
        workers = 1 + seed % 3
        simulation = Simulation(program(seed), workers)
        for faults in range(3 if SOAK else 1):
            failure = simulation.run(1_001 * seed + faults)  # a multiple of 8 would vary few of a world's settings
            if failure is not None:
                pytest.fail(report(simulation.shrink(failure), f"drawn program {seed}: {draw(seed)}"), pytrace=False)


def test_a_cut_that_is_made_piece_by_piece_is_not_lost_beside_commits() -> None:
    """Program 20175: commits that did not wait for cuts of the same worker took the place of one, and the job never ended."""
    assert Simulation(program(20_175), 1).run(1_001 * 20_175) is None


def test_the_same_seed_draws_the_same_program() -> None:
    assert draw(7) == draw(7)
    assert built(draw(7)).graph.nodes[3].name == program(7)().graph.nodes[3].name


def test_all_policies_and_operators_are_drawn() -> None:
    """Also regions fed by two others, regions that feed two, and sources of all shapes."""
    drawn = [draw(seed) for seed in range(60)]
    policies = Counter(type(region.policy).__name__ for regions in drawn for region in regions)
    assert len(policies) == 7
    assert min(policies.values()) > 5
    assert {kind for regions in drawn for region in regions for kind, _ in region.steps} == STEPS.keys()
    fed = [region for regions in drawn for region in regions if region.inputs]
    assert {region.source for regions in drawn for region in regions if not region.inputs} == SOURCES.keys()
    assert {region.own for region in fed} == {"", "joined", "apart"}
    assert {region.entry for region in fed if len(region.inputs) == 1} == ENTRIES.keys()
    assert any(region.clocked and not region.inputs for regions in drawn for region in regions)
    assert any(after < len(region.steps) for region in fed for _, after in region.outputs)
    assert any(len(region.inputs) == 2 for regions in drawn for region in regions)
    read = [Counter(number for region in regions for number in region.inputs) for regions in drawn]
    assert any(most > 1 for each in read for most in each.values())
