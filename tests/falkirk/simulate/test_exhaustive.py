"""Small programs whose processes die at every moment at which they can; larger searches are `soak`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

import pytest

from falkirk.simulate.exhaustive import every_crash
from falkirk.simulate.faults import Fault
from falkirk.simulate.monitor_process import MONITOR
from falkirk.simulate.process import Process
from falkirk.simulate.simulation import Simulation, report
from falkirk.simulate.world import World
from libraries.columns.verbs.dataflow import Dataflow
from recovery.place import Place
from recovery.policy import AtLeastOnce, Batch, Eager, Ephemeral, Lazy, LogHistory, Snapshot
from timely.data.messages import Frame
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


def two_feeds(front: object, behind: object, parts: Parts = ONE) -> Callable[[], Dataflow]:
    """Two sources, each in a region of its own, into one region, from which two outputs are fed."""

    def build() -> Dataflow:
        flow = Dataflow("two feeds")
        with flow.region("front", policy=front):
            numbers = flow.source("in", Iterable(partitioned=list(map(list, parts)), batch=1, epoch_every=2))
        with flow.region("beside", policy=Lazy(every=1)):
            others = flow.source("others", Iterable(partitioned=[[3], [1]], batch=1, epoch_every=2))
        with flow.region("behind", policy=behind):
            seen = numbers.concat(others).distinct(name="seen")
            seen.to(Memory(), name="out")
            seen.map(lambda n: -n, name="negative").to(Memory(), name="others-out")
        return flow

    return build


def keyed_behind(front: object, behind: object, parts: Parts = ONE) -> Callable[[], Dataflow]:
    """A total of each key, exchanged, behind all that a region lets through: with `Eager()` in front, behind a gate."""

    def build() -> Dataflow:
        flow = Dataflow("keyed behind")
        with flow.region("front", policy=front):
            numbers = flow.source("in", Iterable(partitioned=list(map(list, parts)), batch=1, epoch_every=2))
        with flow.region("behind", policy=behind):
            numbers.key_by(lambda n: n % 2).fold(list, lambda seen, n: [*seen, n], name="seen").records().to(
                Memory(), name="out"
            )
        return flow

    return build


SHAPES = {"small": small, "two feeds": two_feeds, "keyed behind": keyed_behind}


def search(
    name: str, workers: int, seed: int, faults: int, stride: int = 1, parts: Parts = SEVERAL, shape: str = "small"
) -> int:
    """The number of runs, if none of them fails."""
    simulation = Simulation(SHAPES[shape](*POLICIES[name], parts), workers)
    runs = 0
    for found in every_crash(simulation, seed, faults, stride):
        runs += 1
        if found is not None:
            where = f"every_crash({shape!r}, {name!r}, {workers}, {seed}, ...)"
            pytest.fail(report(found, where), pytrace=False)
    return runs


OTHERS = [("two feeds", "lazy"), ("two feeds", "lazy, eager"), ("keyed behind", "eager, lazy")]
"""Other shapes, each under policies of which it has something to tell."""


@pytest.mark.check
@pytest.mark.parametrize(
    ("shape", "name"), [*(pytest.param(*each, marks=pytest.mark.check) for each in OTHERS[:2]), *OTHERS[2:]]
)
def test_some_pairs_of_deaths_in_other_shapes_with_one_epoch_do_no_harm(shape: str, name: str) -> None:
    assert search(name, 2, 0, faults=2, stride=17, parts=ONE, shape=shape) > 10


@pytest.mark.soak
@pytest.mark.parametrize(("shape", "name"), OTHERS)
def test_any_two_deaths_in_other_shapes_with_one_epoch_do_no_harm(shape: str, name: str) -> None:
    assert search(name, 2, 0, faults=2, parts=ONE, shape=shape) > 2_500


def test_death_at_any_of_some_moments_does_no_harm() -> None:
    assert search("sent again, snapshot", 2, 0, faults=1, stride=12) > 10


def met_by_death(world: World, who: int, passed: Counter[int]) -> object:
    """All that is there after the death of `who`, or that decides what comes of it, but for the clock: by content."""
    monitor = world._monitor
    at = None if monitor is None else monitor.owner
    process = None if who == MONITOR else world._processes[Place(who)]
    owner = at if who == MONITOR else None if process is None else process.owner
    folder = "monitor/" if who == MONITOR else f"worker-{who:03d}/"
    begun = [each.name for each in world.disk._waiting.values() if each.writer == owner and not each.applied]
    left = owner, passed[who], begun, world.disk.names(folder)
    if who == MONITOR or monitor is None:
        asked_for = len(world._starts) + sum(kind == "started" for _, kind, _ in world.log)
        return at, left, asked_for if who == MONITOR else world.outside.digest.hexdigest()
    job = monitor.coordinator
    known = (
        *(job.phase, job.generation, job.reserved, job.decision, job.low_watermarks, job.cuts.outstanding),
        *(repr(job.options.chains), [job.options.completed(flat) for flat in range(len(job.options.chains))]),
        *map(repr, job.commit.unwritten),
        *((each.presence, each.incarnation, each.restored, each.released, each.memory) for each in job.workers),
    )
    return at, left, known, world.outside.digest.hexdigest()


@pytest.mark.parametrize("script", [(), (Fault("step", 70, "kill", 0),), (Fault("step", 90, "kill monitor"),)], ids=str)
@pytest.mark.parametrize("name", ["lazy", "lazy, eager"])
def test_who_is_not_tried_again_would_leave_what_it_would_have_left_before(
    name: str, script: tuple[Fault, ...]
) -> None:
    world = World(small(*POLICIES[name]), 2, 0, (), script)
    passed: Counter[int] = Counter()
    before: dict[int, object] = {}
    named, carry, tell = world._mortal, world.carry, world._tell_worker

    def mortal(*who: int) -> list[int]:
        found = named(*who)
        for each in who:
            met = met_by_death(world, each, passed)
            assert each in found or met == before[each]
            before[each] = met
        return found

    def carried(process: Process, worker: int, frame: Frame) -> None:
        carry(process, worker, frame)
        passed[process.worker] += 1

    def told(process: Process) -> None:
        tell(process)
        passed[MONITOR] += 1

    world._mortal, world.carry, world._tell_worker = mortal, carried, told  # type: ignore[method-assign]
    world.run()
    moments = world.injector.moments
    assert len(world.injector.happened) == len(script)
    assert sum(0 in mortal for _, _, mortal in moments) < sum(when in ("step", "io") for when, _, _ in moments) / 2


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", POLICIES)
def test_death_at_any_moment_does_no_harm(name: str, seed: int) -> None:
    assert search(name, 1 + seed % 2, seed, faults=1) > 40


@pytest.mark.soak
@pytest.mark.parametrize("name", POLICIES)
def test_any_two_deaths_in_a_job_of_one_worker_do_no_harm(name: str) -> None:
    assert search(name, 1, 0, faults=2) > 1_500


@pytest.mark.soak
@pytest.mark.parametrize("name", POLICIES)
def test_any_two_deaths_in_a_job_of_two_workers_with_one_epoch_do_no_harm(name: str) -> None:
    assert search(name, 2, 0, faults=2, parts=ONE) > 4_000


@pytest.mark.soak
@pytest.mark.parametrize("name", POLICIES)
def test_second_death_at_any_of_many_moments_after_the_first_does_no_harm(name: str) -> None:
    """At every third: at every moment these are some 40,000 runs each, half an hour."""
    assert search(name, 2, 0, faults=2, stride=3) > 2_000
