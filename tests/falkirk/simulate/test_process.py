"""State and timers of `Keyed.process` in simulated jobs with faults: the same comes out as in a plain loop."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import falkirk
from falkirk import Batch, Eager, Lazy, LogHistory, Snapshot
from falkirk.simulate.simulation import Simulation
from recovery.policy import Policy
from runtime.session.cluster import Cluster
from tests.timely.operators.processing import act, by_loop, fire
from timely.time import Time

EVERY = 3
STEPS: list[tuple[Any, ...]] = [("set", 2), ("grow", 1), ("add", 2), ("set", 5), ("cancel", 4), ("tell",), ("set", 0)]
PARTS = [
    [
        ((part + 3 * number * number) % 7, tuple(STEPS[(number * at + part) % len(STEPS)] for at in (1, 2, 5)))
        for number in range(24)
    ]
    for part in range(3)
]


def build(policy: Policy | None = None) -> falkirk.Dataflow:
    flow = falkirk.Dataflow("process")
    with flow.region("read", policy=Batch(log_outputs=True)):
        source = flow.source("in", falkirk.Iterable(partitioned=PARTS, batch=2, epoch_every=EVERY))
        pairs = source.map(lambda pair: pair).keyed()
    with flow.region("process", policy=policy or Lazy(every=2)):
        made = pairs.process(act, fire, order_by=repr)
    made.capture("out")
    made.key_by(lambda told: told[0]).count(name="count").records().capture("counts")
    return flow


def expected() -> dict[Time, Counter[Any]]:
    epochs = [
        [pair for part in PARTS for pair in part[first : first + EVERY]] for first in range(0, len(PARTS[0]), EVERY)
    ]
    return {(epoch,): Counter(told) for epoch, told in by_loop(epochs).items()}


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_it_gives_what_a_loop_gives(workers: int) -> None:
    wanted = expected()
    fired = [told for at in wanted.values() for told in at if told[0] == "fired"]
    assert len(fired) > 20
    assert len(wanted) > len(PARTS[0]) // EVERY
    for seed in range(3):
        cluster = Cluster(build(), workers, seed)
        cluster.run()
        found: dict[Time, Counter[Any]] = {}
        for time, batch in cluster.captured("out"):
            found.setdefault(time, Counter()).update(batch)
        assert found == wanted


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "policy",
    [Lazy(every=1), LogHistory(every=3), Snapshot(2), Eager()],
    ids=["lazy", "history", "snapshot", "eager"],
)
@pytest.mark.parametrize("seeds", [3, pytest.param(100, marks=pytest.mark.soak)])
def test_timers_and_state_survive_whatever_fails(policy: Policy, seeds: int) -> None:
    runs = {workers: Simulation(lambda: build(policy), workers) for workers in (1, 2, 3)}
    for each in runs.values():
        assert all(rows for rows in each.expected.values())
    for seed in range(seeds):
        assert runs[1 + seed % 3].run(seed) is None
    assert sum(each.tally.rounds for each in runs.values()) > 0
