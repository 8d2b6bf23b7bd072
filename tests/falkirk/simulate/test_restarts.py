"""A job that has much to do again makes cuts meanwhile, so the next failure does not start that work over."""

from __future__ import annotations

import pytest

from falkirk.simulate.simulation import Simulation
from falkirk.simulate.world import World
from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import AtLeastOnce, Eager, Lazy, LogHistory, Snapshot
from timely.io import Iterable, Memory

POLICIES = {
    "lazy": (Lazy(every=2), Lazy(every=2)),
    "history": (Lazy(every=2), LogHistory(every=2)),
    "snapshot": (Lazy(every=2, log_outputs=True), Snapshot(every=2)),
    "eager": (Eager(), Eager()),
    "sent again": (AtLeastOnce(), Lazy(every=2)),
}
EPOCHS = 40


@pytest.mark.parametrize(
    "name", [each if each == "snapshot" else pytest.param(each, marks=pytest.mark.soak) for each in POLICIES]
)
def test_job_that_dies_whenever_something_new_is_safe_comes_to_its_end(name: str) -> None:
    """All of its processes die as soon as low-watermarks have risen: each time while it does again what was under way."""

    def build() -> Dataflow:
        flow = Dataflow("restarts")
        front, behind = POLICIES[name]
        with flow.region("front", policy=front):
            numbers = flow.source("in", Iterable(range(2 * EPOCHS), batch=1, epoch_every=2)).map(lambda n: n)
        with flow.region("behind", policy=behind):
            numbers.distinct(name="seen").to(Memory(), name="out")
        return flow

    world = World(build, 2, 3, ())
    simulation = Simulation(build, 2)
    safe = restarts = 0
    while not (world.finished and not world.processes):
        world.step()
        assert world.failure is None
        assert world.steps < 100_000, world.explain()
        low = min((bound[0] for bound in world.checks.low.values()), default=0)
        if low > safe and not world.finished:
            safe, restarts = low, restarts + 1
            world._stop_job(world.now)
    world.outside.compare(simulation.expected, simulation.alike)
    world.outside.check_acknowledged()
    assert 5 < restarts <= EPOCHS + 1


def test_job_that_fails_more_often_than_it_is_to_be_cut_comes_to_its_end() -> None:
    """All of its processes die every three seconds; it would take eight, and a cut was asked for every ten minutes."""

    def build() -> Dataflow:
        flow = Dataflow("restarts")
        with flow.region("all", policy=Lazy(every="10m")):
            numbers = flow.source("in", Iterable(range(400), batch=1, epoch_every=2))
            numbers.distinct(name="seen").to(Memory(), name="out")
        return flow

    world = World(build, 2, 3, ())
    simulation = Simulation(build, 2)
    began, restarts = 0.0, 0
    while not (world.finished and not world.processes):
        world.step()
        assert world.failure is None
        assert restarts < 20, world.explain()
        if world.now >= began + 3 and not world.finished:
            began, restarts = world.now, restarts + 1
            world._stop_job(world.now)
    world.outside.compare(simulation.expected, simulation.alike)
    world.outside.check_acknowledged()
    assert restarts > 1
