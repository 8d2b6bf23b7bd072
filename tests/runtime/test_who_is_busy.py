"""The time of users' functions is counted at the operator to which each belongs, wherever the engine calls it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from recovery.layout import lay_out
from recovery.memory.recorder import WorkerRecorder
from runtime.recovery.observer import Counting
from runtime.session.cluster import Cluster
from timely.io import Iterable
from timely.operators.stateless import Stateless
from timely.worker import restoring

TICK = 1.0


class Clock:
    """A clock that goes only while a user's function is called."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def spend(self, function: Callable[..., Any], cost: float) -> Callable[..., Any]:
        def spending(*arguments: Any) -> Any:
            self.now += cost
            return function(*arguments)

        return spending


def counted(flow: Dataflow, clock: Clock, workers: int) -> tuple[dict[str, float], dict[str, tuple[int, float]]]:
    """Seconds by processor; and records and seconds by member of a fused chain: of all workers."""
    cluster = Cluster(flow, workers, 3)
    layout = lay_out(cluster.plan)
    counting = []
    steps = []
    for index, session in enumerate(cluster.sessions):
        counts = Counting(WorkerRecorder(layout, index), len(layout.processors), clock)
        restoring.listen(session.worker, counts)
        restoring.watch_split(session.worker, counts.splits)
        counting.append(counts)
        chains = [each.operator for each in session.worker.runtimes if isinstance(each.operator, Stateless)]
        steps += [step for chain in chains for step in chain.measure(clock)]
    cluster.run()
    for counts in counting:
        counts.rest()
    busy = {info.name: sum(counts.busy[p] for counts in counting) for p, info in enumerate(layout.processors)}
    members: dict[str, tuple[int, float]] = {}
    for step in steps:
        (stage,) = step.stages
        taken, seconds = members.get(stage.name, (0, 0.0))
        members[stage.name] = taken + step.taken, seconds + step.seconds
    return busy, members


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_key_and_combine_functions_are_counted_at_the_operator_behind_the_exchange(workers: int) -> None:
    clock = Clock()
    flow = Dataflow()
    pairs = flow.source("in", Iterable(list(range(10)))).map(lambda x: (x % 2, x), name="pairs").keyed()
    pairs.reduce(clock.spend(max, TICK), name="score", any_order=True).capture("out")
    busy, _ = counted(flow, clock, workers)
    assert busy.pop("score") == clock.now > 0
    assert set(busy.values()) == {0.0}


def test_the_members_of_a_fused_chain_are_counted_each_for_itself() -> None:
    clock = Clock()
    flow = Dataflow()
    first = flow.source("in", Iterable(list(range(10)))).map(clock.spend(lambda x: x, TICK), name="quick")
    slow = first.map(clock.spend(lambda x: x + 1, 10 * TICK), name="slow")
    slow.filter(clock.spend(lambda x: x % 2, TICK), name="odd").map(clock.spend(str, TICK), name="last").capture("out")
    _, members = counted(flow, clock, 1)
    assert members == {"quick": (10, 10.0), "slow": (10, 100.0), "odd": (10, 10.0), "last": (5, 5.0)}


def test_a_chain_that_nobody_looks_at_is_what_it_was() -> None:
    flow = Dataflow()
    flow.source("in", Iterable(list(range(10)))).map(abs, name="a").map(abs, name="b").capture("out")
    cluster = Cluster(flow, 1, 3)
    chains = [each.operator for each in cluster.sessions[0].worker.runtimes if isinstance(each.operator, Stateless)]
    before = [chain._steps for chain in chains]
    for chain in chains:
        chain.measure(Clock())
        chain.measure(Clock())
        chain.measure(None)
    assert [chain._steps for chain in chains] == before
    assert any(len(steps) > 1 for steps in before)
