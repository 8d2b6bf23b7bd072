"""Programs that nobody wrote, under faults that nobody chose: their outputs are as good as the promises say."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from falkirk.simulate.simulation import Simulation, report
from recovery.policy import Eager, Ephemeral, Lazy, LogHistory, Snapshot
from runtime.session.cluster import Cluster
from tests.falkirk.simulate import divided
from tests.falkirk.simulate.drawn import ENTRIES, SOURCES, Region, built, captured, draw, draw_divided, program
from tests.falkirk.simulate.drawn_steps import BY_BATCH, DIVIDING, ORDERED, STEPS, UNDONE
from tests.support.profile import effort
from timely.time import END, Time

SOAK = os.environ.get("FALKIRK_TEST_PROFILE") == "soak"
EACH = effort(2, 5, 5)
"""The number of programs in one test."""


@pytest.mark.parametrize("first", range(0, effort(EACH, 20, 4_000), EACH))
def test_outputs_of_drawn_programs_are_those_of_a_run_without_faults(first: int) -> None:
    for seed in range(first, first + EACH):
        workers = 1 + seed % 3
        simulation = Simulation(program(seed), workers)
        for faults in range(3 if SOAK else 1):
            failure = simulation.run(1_001 * seed + faults)  # a multiple of 8 would vary few of a world's settings
            if failure is not None:
                pytest.fail(report(simulation.shrink(failure), f"drawn program {seed}: {draw(seed)}"), pytrace=False)


@pytest.mark.check
def test_nobody_sees_into_which_batches_a_drawn_program_divides_its_records() -> None:
    """Of what survivors keep nothing is lost, and nothing comes twice, though what is done again is divided otherwise."""
    for seed in range(2_000 if SOAK else 8):
        found = divided.wrong(seed)
        assert found is None, f"drawn program {seed}: {found}: {draw_divided(seed)}"


COMMITS_BESIDE_CUTS = (
    Region(LogHistory(2, log_outputs=True), (), (("counts", 9),), (("capture", 0),), source="one part"),
    Region(Lazy(4), (), (("counts", 9),), entry="exchange", source="nothing"),
    Region(Snapshot(0.3), (1,), (("columns", 3), ("counts", 0), ("most", 4), ("twice", 4)), (("callback", 4),)),
    Region(
        Eager(),
        (0, 1, 2),
        (("columns", 8), ("ranked", 7), ("counts", 5), ("columns", 5)),
        entry="exchange",
        source="one part",
        own="joined",
    ),
    Region(
        Ephemeral(),
        (3, 2, 0),
        (("distinct in an epoch", 1), ("asked", 2), ("twice", 0)),
        source="one part",
        own="apart",
    ),
)


def test_a_cut_that_is_made_piece_by_piece_is_not_lost_beside_commits() -> None:
    """Commits that did not wait for cuts of the same worker took the place of one, and the job never ended."""
    assert Simulation(lambda: built(COMMITS_BESIDE_CUTS), 1).run(20_195_175) is None


def outputs(regions: Sequence[Region], workers: int) -> Mapping[str, Mapping[Time, Counter[Any]]]:
    """By output and time, what a run without failures gives."""
    flow = built(regions, captured)
    cluster = Cluster(flow, workers)
    cluster.run()
    found: dict[str, dict[Time, Counter[Any]]] = {node.name: {} for node in flow.graph.of_kind("capture")}
    for name, times in found.items():
        for time, batch in cluster.captured(name):
            times.setdefault(time, Counter()).update(batch)
    return found


@pytest.mark.check
@pytest.mark.parametrize("first", range(0, effort(20, 40, 10_000), 20))
def test_outputs_are_the_same_whatever_the_number_of_workers(first: int) -> None:
    for seed in range(first, first + 20):
        steps = {kind for region in draw(seed) for kind, _ in region.steps}
        if not any(region.clocked for region in draw(seed)) and not steps & BY_BATCH:
            alone = outputs(draw(seed), 1)
            assert [workers for workers in (2, 3) if outputs(draw(seed), workers) != alone] == [], draw(seed)


def test_totals_that_live_for_some_epochs_begin_anew_at_the_end_on_any_worker() -> None:
    """Windows close when all input is over. What a worker had forgotten by then was what had come to it."""
    windows = (("windows of event time", 6), ("for a time", 4))
    region = Region(Lazy(2), (), windows, source="a part without anything")
    alone = outputs([region], 1)["out0"]
    assert (END,) in alone
    assert [outputs([region], workers)["out0"] for workers in (2, 3, 4)] == [alone] * 3


def test_the_same_seed_draws_the_same_program() -> None:
    assert draw(7) == draw(7)
    assert built(draw(7)).graph.nodes[3].name == program(7)().graph.nodes[3].name


def test_all_that_divides_or_depends_on_divisions_is_drawn() -> None:
    drawn = [draw_divided(seed) for seed in range(60)]
    steps = {kind for regions in drawn for region in regions for kind, _ in region.steps}
    assert steps == DIVIDING.keys() | UNDONE.keys() | ORDERED.keys()
    assert {regions[0].source for regions in drawn} == {"single rows", "dealt", "small frames"}


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
