"""What an agent says of its mate, and when."""

from __future__ import annotations

import falkirk
from recovery.agent.agent import Agent
from recovery.agent.effects import Hold, Report
from recovery.agent.events import Connected, Held, MateBegan
from recovery.layout import lay_out
from recovery.place import Place
from recovery.protocol import Join
from recovery.store.reading import take_over
from tests.recovery.store.owners import STORE, memory_disk
from timely.dataflow.plan import compile_plan


def standing() -> Agent:
    """An agent of a program under passive standby."""
    flow = falkirk.Dataflow("held")
    with flow.region("standing", policy=falkirk.PassiveStandby(every="50ms", durable="10s")):
        flow.source("in", falkirk.Iterable([1])).key_by(lambda n: n).sum(name="total").capture("out")
    plan = compile_plan(flow.graph, 1)
    journal, found, _ = take_over(memory_disk(), "worker-000", STORE, 1)
    return Agent(plan, lay_out(plan), Place(0), 1, journal, found.read())


def test_a_worker_that_joins_tells_of_a_mate_that_was_there_earlier() -> None:
    """What it has said without a connection, or before it had joined, is not heard."""
    agent = standing()
    effects = agent.step(0.0, MateBegan())
    for each in effects:
        if isinstance(each, Hold):
            agent.step(0.0, Held(each.name))
    reports = [each.message for each in agent.step(0.1, Connected()) if isinstance(each, Report)]
    (join,) = [each for each in reports if isinstance(each, Join)]
    assert join.mate
