"""Checkpoints in the memory of mates: whatever dies, outputs are right, W rests on disks only, and no decision is below W₁."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import falkirk
from falkirk.simulate.mates import SimulatedMate
from falkirk.simulate.simulation import Simulation, report
from monitor.coordination.options import Options
from recovery.agent.holding import Holding
from recovery.checkpoint.following import Following
from recovery.policy import Lazy, PassiveStandby, Policy
from tests.falkirk.simulate.drawn import built, draw_standing
from tests.support.profile import effort, tries

SELDOM = PassiveStandby(every=0.05, durable=60.0)
"""Nothing is durable before the end of the input."""


def program(policy: Policy, front: Policy | None = None) -> falkirk.Dataflow:
    """Totals and what was seen of them, behind exchanges; the source may be in a region of its own."""
    flow = falkirk.Dataflow("standby")
    parts = [[i % 7 for i in range(60)], [i % 5 for i in range(50)]]
    with flow.region("front", policy=front or policy):
        numbers = flow.source("in", falkirk.Iterable(partitioned=parts, batch=2, epoch_every=3))
    with flow.region("standing", policy=policy):
        totals = numbers.key_by(lambda n: n % 5, name="by").sum(name="total").records()
        totals.distinct(name="seen").capture("out")
    return flow


PROGRAMS: dict[str, Callable[[], falkirk.Dataflow]] = {
    "seldom durable": partial(program, SELDOM),
    "often durable": partial(program, PassiveStandby(every=0.05, durable=0.3)),
    "with Lazy": partial(program, SELDOM, Lazy(every=0.3)),
    "behind a log": partial(program, SELDOM, PassiveStandby(every=0.1, durable=1.0, log_outputs=True)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_outputs_are_those_without_failures(name: str, workers: int) -> None:
    simulation = Simulation(PROGRAMS[name], workers, mates=1)
    for seed in range(effort(1, 4, 300)):
        failure = simulation.run(seed)
        assert failure is None, report(failure, f"seed {seed} with mates")


@pytest.mark.parametrize("seed", range(tries(6)))
def test_regions_of_all_policies_stand_side_by_side(seed: int) -> None:
    simulation = Simulation(partial(built, draw_standing(seed)), 2, mates=1)
    for fault in range(3):
        failure = simulation.run(fault)
        assert failure is None, report(failure, f"drawn {seed}, seed {fault} with mates")


def test_mates_bring_along_what_no_disk_has() -> None:
    simulation = Simulation(PROGRAMS["seldom durable"], 2, ("kill",), mates=1)
    for seed in range(tries(12)):
        failure = simulation.run(seed)
        assert failure is None, report(failure, f"seed {seed} with mates")
    assert simulation.tally.held > 10
    assert simulation.tally.ahead > 10, "nothing was restored from what a mate had loaded"


def test_without_mates_all_is_durable() -> None:
    simulation = Simulation(PROGRAMS["seldom durable"], 2)
    for seed in range(tries(4)):
        failure = simulation.run(seed)
        assert failure is None, report(failure, f"seed {seed}")
    assert simulation.tally.held == 0


def w_counts_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Options.durable
    monkeypatch.setattr(Options, "durable", lambda self, *parts: real(self, *parts[:4]))
    monkeypatch.setattr(Options, "in_memory", lambda self, flat, bound: False)


def w1_counts_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(self: Holding) -> list[Any]:
        gathered, self.gathered = self.gathered, []
        return gathered + real(self)

    real = Holding.write
    monkeypatch.setattr(Holding, "write", write)


def a_dead_mate_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Options.mate
    monkeypatch.setattr(Options, "mate", lambda self, worker, there: real(self, worker, True))
    monkeypatch.setattr(SimulatedMate, "leave", lambda self: None)


def a_new_mate_gets_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    def mirrored(self: Any, mirror: Any) -> None:
        self.mirror = mirror

    monkeypatch.setattr("recovery.store.journal.Journal.mirrored", mirrored)


def a_mate_brings_what_an_earlier_process_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Following.take_over

    def taken(self: Following, writer: int | None) -> Any:
        held = [self.segments[number] for number in sorted(self.segments) if number >= 1 << 48]
        found = real(self, writer)
        return type(found)(found.segments, found.loaded, held)

    monkeypatch.setattr(Following, "take_over", taken)
    monkeypatch.setattr(Following, "forget_held", lambda self: None)


@pytest.mark.parametrize(
    "without",
    [w_counts_memory, w1_counts_what_is_under_way, a_new_mate_gets_only_what_is_new],
    ids=lambda each: each.__name__,
)
def test_each_rule_is_needed(without: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch)
    simulation = Simulation(PROGRAMS["seldom durable"], 2, ("kill", "job"), mates=1)
    assert any(simulation.run(seed) is not None for seed in range(60))
