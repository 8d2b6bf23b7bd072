"""Policies of a program's own, each written here and nowhere else, as docs/adding_a_policy.md says.

The layout, agents, the solver's options, promises and pictures know nothing of them but their traits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import pytest
from msgspec.structs import replace

import falkirk
from falkirk.graph_view import picture
from falkirk.simulate.simulation import Simulation, report
from monitor.coordination.options import Options
from recovery.guarantees.promises import Grade, promises
from recovery.layout import lay_out
from recovery.policy import Every, Policy, interval
from tests.monitor.coordination.coordinators import memory
from tests.support.profile import tries
from timely.dataflow.plan import compile_plan
from timely.errors import GraphError


@dataclass(frozen=True, slots=True)
class Walled(Policy):
    """State is saved `every` so often; what comes in and what leaves is logged, so nobody else goes back with it."""

    every: Every = 1.0
    log_outputs: ClassVar[bool] = True
    logs_inputs = True

    def __post_init__(self) -> None:
        interval(self.every)


@dataclass(frozen=True, slots=True)
class Waiting(Policy):
    """State is saved `every` so often, and what leaves waits at gates for that."""

    every: Every = 1.0
    log_outputs: ClassVar[bool] = True
    gated = True

    def __post_init__(self) -> None:
        interval(self.every)


def program(policy: Policy) -> Callable[[], falkirk.Dataflow]:
    """A region under `policy`, with an exchange and state, between two others."""

    def build() -> falkirk.Dataflow:
        flow = falkirk.Dataflow("own policy")
        numbers = flow.source("in", falkirk.Iterable(partitioned=[[1, 2, 3, 4], [2, 3, 4, 5]], batch=1, epoch_every=2))
        with flow.region("own", policy=policy):
            totals = numbers.key_by(lambda n: n % 2, name="by").sum(name="total").records()
        totals.distinct(name="seen").capture("out")
        return flow

    return build


@pytest.mark.sampled(3)
@pytest.mark.parametrize("policy", [Walled(every=1), Waiting(every=1)], ids=str)
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_new_policy_comes_through_faults(policy: Policy, workers: int) -> None:
    simulation = Simulation(program(policy), workers)
    for seed in range(tries(8)):
        failure = simulation.run(seed)
        assert failure is None, report(failure)
    assert simulation.tally.rounds > workers
    assert simulation.tally.faults


def test_who_feeds_a_walled_region_does_not_go_back_with_it() -> None:
    """Worker 0 dies. All that its region lacks is logged; under Lazy() its sources would go back, too.

    Nothing is kept in memory here: only logs are to tell the two policies apart.
    """
    for policy, stays in ((Walled(), True), (falkirk.Lazy(log_outputs=True), False)):
        laid_out = lay_out(compile_plan(program(policy)().graph, 2))
        plan = replace(laid_out, edges=tuple(replace(edge, kept=False) for edge in laid_out.edges))
        options = Options(plan)
        for worker in range(2):
            for p, info in enumerate(plan.processors):
                at = (2,) if info.region == "own" else (4,)
                if info.chain:
                    options.chains[options.topology.flat(p, worker)] = [(at, ((0,),) * len(plan.outgoing()[p]))]
        decided = options.decide({1: memory(4, plan)})
        source = next(p for p, info in enumerate(plan.processors) if info.role == "source")
        assert (decided[1][source] is None) == stays, decided


@pytest.mark.parametrize("policy", [Walled(every=2), Waiting(every=2)], ids=str)
def test_a_new_policy_is_explained_and_shown(policy: Policy) -> None:
    graph = program(policy)().graph
    (promise,) = promises(graph)
    (usual,) = promises(program(falkirk.Lazy())().graph)
    assert (promise.one, promise.any) == (Grade.PRECISE, usual.any)
    layout = lay_out(compile_plan(graph, 2))
    assert {info.policy for info in layout.processors if info.region == "own"} == {policy.name}
    assert (layout.groups[next(info.group for info in layout.processors if info.name == "total")].epochs) == 2
    assert any(f"own: policy {policy}" in str(part) for part in picture(graph))


def test_a_waiting_region_promises_no_more_than_a_lazy_one() -> None:
    """A gate opens when one worker has saved what it made; others may still take it back."""

    def told(policy: Policy) -> Grade:
        flow = falkirk.Dataflow()
        with flow.region("own", policy=policy):
            lines = flow.source("in", falkirk.Iterable("ab")).map(str, name="dice").nondeterministic("dice")
        lines.to(falkirk.Callback(print), name="told")
        return promises(flow.graph)[0].any

    assert told(Waiting()) == told(falkirk.Lazy()) < told(falkirk.Eager())


def test_traits_that_need_others_are_refused_without_them() -> None:
    @dataclass(frozen=True, slots=True)
    class Open(Policy):
        commits_per_worker = True

    with pytest.raises(GraphError, match=r"Open\(\) of .* commits_per_worker, which needs logs_inputs and gated"):
        lay_out(compile_plan(program(Open())().graph, 2))


def test_a_region_that_waits_is_a_region() -> None:
    flow = falkirk.Dataflow()
    flow.source("in", falkirk.Iterable([1])).distinct(name="seen").policy(Waiting()).capture()
    with pytest.raises(GraphError, match=r"'seen' .*policy Waiting\(\) of its own: what is gated is a region"):
        lay_out(compile_plan(flow.graph, 2))
