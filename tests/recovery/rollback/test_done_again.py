"""Full histories are done again: whatever happened to an operator, happens to a new one, and nothing of it is seen outside."""

from __future__ import annotations

from typing import Any

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from recovery.agent.events import Connected
from recovery.metadata import Bound
from recovery.policy import Lazy, LogHistory
from tests.recovery.agent.driven import DrivenAgents
from timely.data.messages import StartJob
from timely.io import Iterable
from timely.operators.base import Capability, Context, Operator
from timely.state import KeyedState
from timely.time import Time


class _Busy(Operator):
    """Has jobs done, asks for notifications, keeps capabilities, and writes down all that happens to it."""

    def __init__(self) -> None:
        self.happened: list[tuple[str, Time, Any]] = []
        self.kept: list[Capability] = []
        self.pending: list[list[Time]] = []

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        self.happened.append(("batch", time, list(batch)))
        ctx.notify_at(time)
        ctx.notify_at((time[0] + 1,))
        ctx.start(lambda: sum(batch))
        self.pending.append(sorted(ctx.pending))

    def on_result(self, ctx: Context, time: Time, result: Any) -> None:
        self.happened.append(("result", time, result))
        if time == (0,):
            capability = ctx.retain()
            capability.downgrade((5,))
            self.kept.append(capability)

    def on_notify(self, ctx: Context, time: Time) -> None:
        self.happened.append(("notified", time, None))
        ctx.send([len(self.happened)])
        self.pending.append(sorted(ctx.pending))


class _Sums(Operator):
    """Keeps all in its state, so that a long history is replaced by it, capabilities and all."""

    transient = ("capability",)

    def __init__(self) -> None:
        self.state = self.sums = KeyedState()
        self.capability: Capability | None = None

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        self.sums.write(time, {"sum": self.sums.read(time).get("sum", 0) + sum(batch)})
        if time == (0,):
            self.capability = ctx.retain()
            self.capability.downgrade((9,))

    def on_restore(self, ctx: Context, capabilities: list[Capability]) -> None:
        (self.capability,) = capabilities


def busy() -> Dataflow:
    flow = Dataflow("busy")
    with flow.region("front", policy=Lazy(every=1, log_outputs=True)):
        numbers = flow.source("in", Iterable(range(10)))
    with flow.region("back", policy=LogHistory(every=1)):
        numbers.unary("busy", _Busy, holds=True).capture("out")
    return flow


class _Both(Operator):
    """Keeps a sum in its state, and what it has seen beside that."""

    def __init__(self) -> None:
        self.state = self.sums = KeyedState()
        self.seen: list[int] = []

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        self.sums.write(time, {"sum": int(self.sums.read(time).get("sum", 0)) + sum(batch)})
        self.seen += batch


def both() -> Dataflow:
    flow = Dataflow("both")
    with flow.region("front", policy=Lazy(every=1, log_outputs=True)):
        numbers = flow.source("in", Iterable(range(10)))
    with flow.region("back", policy=LogHistory(every=1)):
        numbers.unary("both", _Both).probe()
    return flow


def summing() -> Dataflow:
    flow = Dataflow("summing")
    with flow.region("front", policy=Lazy(every=1, log_outputs=True)):
        numbers = flow.source("in", Iterable(range(10)))
    with flow.region("back", policy=LogHistory(every=1)):
        numbers.unary("sums", _Sums, holds=True).probe()
    return flow


def run(build: Any, epochs: int, most_events: int = 1000) -> DrivenAgents:
    """One worker that reads so many epochs, has its jobs done, and is cut after each."""
    agents = DrivenAgents(build, 1).begin()
    worker = agents.of[0].worker
    agents.of[0].checkpoints.most_events = most_events
    for epoch in range(epochs):
        agents.epochs(1)
        for effect in worker.take_effects():
            if isinstance(effect, StartJob):
                worker.finish(effect.number, effect.job())
        agents.settle()
        for group, upto in enumerate(agents.of[0].completion.reported or ()):
            agents.cut(0, min(upto, (epoch + 1,)), group)
        agents.store_all()
    return agents


def comes_back(agents: DrivenAgents, bound: Bound, failed: bool) -> None:
    """The worker goes back, from its store or by what it has in memory; nothing is settled."""
    generation = agents.of[0].checkpoints.generation + 1
    if failed:
        agents.dies(0)
        agents.tell(0, Connected())
    else:
        agents.drain(generation)
    back = {info.name: bound for info in agents.layout.processors}
    agents.hear(0, agents.decision(generation, [back], (0,) if failed else ()))  # type: ignore[list-item]


def operator(agents: DrivenAgents, name: str) -> Any:
    return agents.of[0].worker.runtimes[agents.named(name)].operator


@pytest.mark.parametrize("failed", [False, True])
def test_all_that_happened_happens_again_in_its_order(failed: bool) -> None:
    agents = run(busy, 4)
    before = operator(agents, "busy")
    assert {kind for kind, _, _ in before.happened} == {"batch", "result", "notified"}
    comes_back(agents, (3,), failed)
    after = operator(agents, "busy")
    assert after is not before
    assert after.happened == [each for each in before.happened if each[1] < (3,)]


@pytest.mark.parametrize("failed", [False, True])
def test_an_operator_that_is_done_again_sees_only_the_requests_that_it_had_then(failed: bool) -> None:
    agents = run(busy, 4)
    before = operator(agents, "busy")
    comes_back(agents, (3,), failed)
    after = operator(agents, "busy")
    assert after.pending == before.pending[: len(after.pending)] != []
    for (kind, time, _), pending in zip([each for each in after.happened if each[0] != "result"], after.pending):
        assert time not in pending or kind == "batch"


@pytest.mark.parametrize("failed", [False, True])
def test_nothing_is_sent_and_no_job_is_begun_while_it_is_done_again(failed: bool) -> None:
    agents = run(busy, 4)
    agents.of[0].worker.take_effects()
    comes_back(agents, (3,), failed)
    worker = agents.of[0].worker
    runtime = worker.runtimes[agents.named("busy")]
    assert [effect for effect in worker.effects if isinstance(effect, StartJob)] == []
    assert runtime.ctx.out == []
    assert runtime.ctx.engine is worker
    assert sorted(time for _, time in worker.held) == [(5,)]  # it keeps what it kept, once


@pytest.mark.parametrize("failed", [False, True])
def test_from_the_state_that_replaced_a_history_on_the_rest_is_done_again(failed: bool) -> None:
    """Its capabilities are those of that moment."""
    agents = run(summing, 5, most_events=2)
    base = agents.of[0].checkpoints.base(agents.named("sums"), (5,))
    assert base > (0,)
    before = operator(agents, "sums").sums.read((4,)).get("sum")
    comes_back(agents, (5,), failed)
    after = operator(agents, "sums")
    assert after.sums.read((9,)).get("sum") == before == sum(range(40))
    assert after.capability is not None
    assert after.capability.time == (9,)


def test_a_new_process_knows_what_is_kept_beside_state_by_doing_it_again() -> None:
    """So a history that it has found is not replaced by its state, though nothing more happens."""
    agents = run(both, 3)
    before = operator(agents, "both").seen
    comes_back(agents, (3,), failed=True)
    agents.store_all()
    agents.settle()
    assert operator(agents, "both").seen == before
    agents.of[0].checkpoints.most_events = 2
    agents.feed(0, 3, [])
    agents.settle()
    for group in range(len(agents.layout.groups)):
        agents.cut(0, (4,), group)
    agents.store_all()
    assert agents.of[0].checkpoints.base(agents.named("both"), (4,)) == (0,)
    comes_back(agents, (4,), failed=True)
    assert operator(agents, "both").seen == before
