"""Regions that go on empty, in simulated jobs: what was not declared incomplete is as without failures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

import falkirk.simulate.outside
from falkirk.simulate.outside import Violation
from falkirk.simulate.simulation import Simulation, report
from falkirk.simulate.world import World
from libraries.columns.verbs.dataflow import Dataflow
from monitor.coordination.options import Options
from recovery.guarantees.promises import Grade
from recovery.policy import Amnesia, Lazy
from tests.falkirk.simulate.drawn import built, draw_forgetful
from tests.support.mutation import Change, changed
from tests.support.profile import effort
from timely.io import Iterable


def flow_of(spread: bool, sink: object) -> Dataflow:
    """Words, counted in a region that goes on empty, and what follows from the counts at two outputs."""
    flow = Dataflow("forgetful")
    parts = [[f"w{i % n}" for i in range(36)] for n in (7, 5)]
    words = flow.source("in", Iterable(partitioned=parts, batch=1, epoch_every=3))
    with flow.region("trends", policy=Amnesia()):
        trends = words.key_by(str).count().records()
    behind = trends.exchange(by=lambda pair: pair[1]) if spread else trends
    behind.map(lambda pair: pair).to(sink, name="told")
    with flow.region("seldom", policy=Lazy(4)):
        behind.keyed().sum().records().capture("totals")
    words.map(len).capture("beside")
    return flow


@dataclass
class Asks:
    """A sink that asks for what is incomplete. In a simulated job another one, which asks as well, takes its place."""

    exactly_once: bool
    told: list[tuple[int, int | None]] = field(default_factory=list)

    def open(self, worker: int, workers: int) -> Asks:
        return self

    def incomplete(self, first: int, last: int | None) -> None:
        self.told.append((first, last))

    def write(self, epoch: int, batch: object) -> None: ...
    def commit(self, epoch: int) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


BUILDS: dict[str, Callable[[], Dataflow]] = {
    f"{'behind an exchange' if spread else 'on its worker'}, {'exactly once' if exact else 'told at once'}": (
        lambda spread=spread, exact=exact: flow_of(spread, Asks(exact))
    )
    for spread in (False, True)
    for exact in (False, True)
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", BUILDS)
def test_all_that_was_not_declared_is_as_without_failures(name: str) -> None:
    simulation = Simulation(BUILDS[name], 2)
    for seed in range(effort(3, 8, 1_000)):
        failure = simulation.run(seed)
        if failure is not None:
            pytest.fail(report(failure, name), pytrace=False)
    assert simulation.tally.gaps


def test_nothing_is_declared_of_what_is_not_behind() -> None:
    simulation = Simulation(BUILDS["on its worker, told at once"], 2)
    assert simulation.expected
    for seed in range(2):
        world = World(BUILDS["on its worker, told at once"], 2, seed, ("kill",))
        world.run()
        assert set(world.outside.gaps) <= {"told", "totals"}
        assert world.outside.promises["beside"].one == Grade.PRECISE


@pytest.mark.check
@pytest.mark.parametrize("first", range(0, effort(2, 10, 3_000), 2))
def test_drawn_programs_with_all_policies_keep_what_they_do_not_declare(first: int) -> None:
    for seed in range(first, first + 2):
        simulation = Simulation(lambda seed=seed: built(draw_forgetful(seed)), 1 + seed % 3)
        failure = simulation.run(1_001 * seed)
        if failure is not None:
            pytest.fail(report(failure, f"forgetful program {seed}: {draw_forgetful(seed)}"), pytrace=False)


MISTAKES = {
    "lost state is not declared": (Change(Options, "gaps", "any(bound) and lost", "False"), 8),
    "lost messages are not declared": (Change(Options, "gaps", "not edge.lossy", "True"), 30),
    "a gap before totals ends": (
        Change(falkirk.simulate.outside.Outside, "declare", "INF if last is None else last", "first or 0"),
        8,
    ),
}
"""By what is left out: that, and the most seeds until it is found."""


@pytest.mark.check
@pytest.mark.parametrize("name", MISTAKES)
def test_the_simulator_finds_what_is_not_declared(name: str) -> None:
    change, most = MISTAKES[name]

    def runs() -> str | None:
        simulation = Simulation(BUILDS["on its worker, told at once"], 2)
        found = (simulation.run(seed) for seed in range(most))
        return next((str(failure.error) for failure in found if failure is not None), None)

    assert "is promised to be" in str(changed([change], runs))


def test_a_sink_that_is_not_told_is_found() -> None:
    outside = falkirk.simulate.outside.Outside()
    outside.declare("out", 3, 5)
    sink = falkirk.simulate.outside.RecordingSink(
        outside, World(BUILDS["on its worker, told at once"], 1, 0, ()), "out", True
    )
    writer = sink.open(0, 1)
    writer.write(4, [1])
    with pytest.raises(Violation, match="not told that it is incomplete"):
        writer.commit(4)
    writer.incomplete(3, 5)
    writer.commit(4)
