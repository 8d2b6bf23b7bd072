"""Small programs whose processes die at every moment at which they can; larger searches are `soak`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from falkirk.simulate.exhaustive import every_crash
from falkirk.simulate.simulation import Simulation, report
from falkirk.simulate.world import World
from recovery.policies import AtLeastOnce, Batch, Eager, Ephemeral, Lazy, LogHistory, Snapshot
from timely.dataflow.dataflow import Dataflow
from timely.io import Iterable, Memory

POLICIES: dict[str, tuple[object, object]] = {
    "lazy": (Lazy(every=1), Lazy(every=1)),
    "ephemeral, history": (Ephemeral(), LogHistory(every=1)),
    "batch with logs, lazy": (Batch(log_outputs=True), Lazy(every=1)),
    "eager, lazy": (Eager(), Lazy(every=1)),
    "lazy, eager": (Lazy(every=1), Eager()),
    "snapshots": (Snapshot(every=1), Snapshot(every=1)),
    "sent again, lazy": (AtLeastOnce(), Lazy(every=1)),
    "sent again, snapshot": (AtLeastOnce(), Snapshot(every=1)),
}
"""Of the region in front, and of the one behind."""


Parts: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""The numbers of each partition of the source: an epoch has two."""

SEVERAL: Parts = ((1, 2, 3, 4), (2, 3, 4, 5))
ONE: Parts = ((1,), (1,))


def small(front: object, behind: object, parts: Parts = SEVERAL) -> Callable[[], Dataflow]:
    """Four operators: a source, a map, what each worker has seen of each number, and an output."""

    def build() -> Dataflow:
        flow = Dataflow("small")
        with flow.region("front", policy=front):
            numbers = flow.source("in", Iterable(partitioned=list(map(list, parts)), batch=1, epoch_every=2)).map(
                lambda n: 10 * n
            )
        with flow.region("behind", policy=behind):
            numbers.distinct(name="seen").to(Memory(), name="out")
        return flow

    return build


def search(name: str, workers: int, seed: int, faults: int, stride: int = 1, parts: Parts = SEVERAL) -> int:
    """The number of runs, if none of them fails."""
    simulation = Simulation(small(*POLICIES[name], parts), workers)
    runs = 0
    for found in every_crash(simulation, seed, faults, stride):
        runs += 1
        if found is not None:
            pytest.fail(report(found, f"every_crash({name!r}, {workers}, {seed}, ...)"), pytrace=False)
    return runs


def test_death_at_any_of_some_moments_does_no_harm() -> None:
    assert search("sent again, snapshot", 2, 0, faults=1, stride=31) > 10


def test_who_dies_with_nothing_new_to_see_dies_once() -> None:
    """A worker that only reads and thinks has no moment of its own in which to die; one that has written or sent has."""
    world = World(small(*POLICIES["lazy"]), 1, 0, (), ())
    while not world.finished:
        before = world.disk.changes, world.outside.changes, world._said
        seen = len(world.injector.moments)
        world.step()
        new = [who for _, _, mortal in world.injector.moments[seen + 1 :] for who in mortal]
        assert not new or (world.disk.changes, world.outside.changes, world._said) != before
    moments = world.injector.moments
    assert sum(0 in mortal for _, _, mortal in moments) < sum(when in ("step", "io") for when, _, _ in moments) / 2


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", POLICIES)
def test_death_at_any_moment_does_no_harm(name: str, seed: int) -> None:
    assert search(name, 1 + seed % 2, seed, faults=1) > 50


@pytest.mark.soak
@pytest.mark.parametrize("name", POLICIES)
def test_any_two_deaths_in_a_job_of_one_worker_do_no_harm(name: str) -> None:
    assert search(name, 1, 0, faults=2) > 5_000


@pytest.mark.soak
@pytest.mark.parametrize("name", POLICIES)
def test_any_two_deaths_in_a_job_of_two_workers_with_one_epoch_do_no_harm(name: str) -> None:
    assert search(name, 2, 0, faults=2, parts=ONE) > 20_000


@pytest.mark.soak
@pytest.mark.parametrize("name", POLICIES)
def test_second_death_at_any_of_many_moments_after_the_first_does_no_harm(name: str) -> None:
    """At every fifth: at every moment these are some 150,000 runs each, more than an hour."""
    assert search(name, 2, 0, faults=2, stride=5) > 2_000
