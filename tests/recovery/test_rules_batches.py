"""Rules of rollback: batches, fusion, capabilities, and what the living offer from memory. The table is in `test_rules.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import timely.dataflow.plan
from monitor.coordination.options import Options
from recovery.metadata import Xi
from recovery.protocol import InMemory
from runtime.inputs import SourceDriver
from tests.recovery.jobs import RULE_PROGRAMS, agent_of, job, named
from tests.recovery.layouts import layout
from tests.runtime.test_inputs import driver, read
from tests.support.mutation import GONE, Change, Rule
from timely.dataflow.dataflow import Dataflow
from timely.dataflow.plan import compile_plan
from timely.errors import SourceError
from timely.io import Iterable
from timely.worker import restoring
from timely.worker.outbox import Outbox, decode_message
from timely.worker.worker import Worker

RULES: dict[str, Rule] = {}


def rule(name: str, says: str, scenario: Callable[[], Any], right: Any, *changes: Change) -> None:
    RULES[name] = Rule(says, scenario, right, changes)


# ---------------------------------------------------------------------------------- batches


def merged() -> Any:
    """Sends of two events, in part at the same time: what becomes one message, and what the log has of it."""
    agent = agent_of(job("ordered", 2), 0)
    edge = next(edge for edge in agent.layout.edges if edge.spread and edge.logged)
    plan = agent._plan
    route = next(r for p in plan.processors for routes in p.routes for r in routes if r.edge.index == edge.edge)
    agent.recorder.logs.clear()
    outbox = Outbox(plan, 0, agent.recorder)
    for event, time, record in ((1, 3, "a"), (2, 3, "b"), (1, 3, "c"), (2, 4, "d")):
        outbox.add(1, route, (event,), (time,), [record])
    messages = outbox.take(1, [], False)[1].messages
    entries = agent.recorder.logs.get((edge.edge, 1), [])
    return (
        [(message.event, message.time, decode_message(message)) for message in messages],
        [entry.number for entry in entries] == [message.number for message in messages],
        [entry.content() for entry in entries] == [decode_message(message) for message in messages],
    )


MERGED = ([((1,), (3,), ["a", "c"]), ((2,), (3,), ["b"]), ((2,), (4,), ["d"])], True, True)
SLOT = "slot = (route.edge.index, event, time)"
NUMBERS = "numbers go to batches after the sender has batched them, as logged"
for _name, _says, _change in (
    (
        "merged by the event",
        "sends merge only for equal (τ, t)",
        Change(Outbox, "add", "event", "time"),
    ),
    (
        "merged by the time",
        "sends merge only for equal (τ, t)",
        Change(Outbox, "add", "time", "event"),
    ),
    ("logged as sent", NUMBERS, Change(Outbox, "_encode", "self._recorder.shipped(...)", GONE)),
):
    rule(_name, _says, merged, MERGED, _change)


def queued() -> Any:
    """How batches that wait at an operator with a full history are handled."""
    agent = agent_of(job("ordered", 1), 0)
    p = named(agent, "first")
    for time, record in ((101, 3), (100, 1), (100, 2)):
        agent.worker._enqueue(p, 0, (time,), (0, 0, (time,), [record]))
    agent.worker.run()
    return [(event.time[0], event.what) for event in agent.recorder.histories[p] if event.time[0] >= 100]


for _name, _says, _change in (
    (
        "first in, first out",
        "first-in first-out within t",
        Change(Worker, "_collect", "for (edge, sender, _, item) in waiting: ...", "reversed(waiting)"),
    ),
    (
        "earlier times first",
        "coalesce batches of time t only if no batch of a time < t stands before the last of them",
        Change(Worker, "run", "heappop(ready)", "ready.pop(0 if len(ready) < 2 else 1)"),
    ),
):
    rule(_name, _says, queued, [(100, [1, 2]), (101, [3])], _change)


def fused() -> Any:
    """Maps in front of and behind an exchange, and one whose output goes to two."""
    flow = Dataflow("fused")
    source = flow.source("in", Iterable([1], batch=1)).map(lambda x: x)
    behind = source.exchange(by=lambda x: x).map(lambda x: x).map(lambda x: x)
    behind.map(lambda x: x).capture("a")
    behind.map(lambda x: x).capture("b")
    return len(compile_plan(flow.graph, 1).processors)


FUSION = "fusion never crosses a policy, a region, a log, an exchange or a time domain"
rule("fusion and exchanges", FUSION, fused, 7, Change(timely.dataflow.plan, "_fuse", "edge.channel == PIPELINE", GONE))


# ---------------------------------------------------------------------------------- capabilities, sources


def holding() -> Any:
    """What a worker first tells of a capability that one of its operators keeps."""
    plan = compile_plan(RULE_PROGRAMS["ordered"]().graph, 2)
    worker = Worker(plan, 0)
    keeper = next(p for p in plan.processors if p.node.name == "first")
    worker.held[keeper.index, (4,)] = 1
    frames = restoring.rewind(worker, restoring.Orders(1, {}, lambda *_: True, {}))
    return [(place == keeper.place, time, count) for place, time, count in frames[1].progress]


rule(
    "seed of a capability",
    "the first progress message is the whole seed: +1 a held capability",
    holding,
    [(True, (4,), 1)],
    Change(restoring, "_queue_all", "worker._count(place, ...)", GONE),
)


def other_input() -> Any:
    """A new process finds other records in front of the position where it is to go on."""
    before, _ = driver(list(range(20)))
    read(before, 6)
    places = {place.partition: place for place in before.positions(2)}
    found = []
    for items in (list(range(20)), [*range(4), 104, *range(5, 20)], [*range(4), *range(5, 20)]):
        try:
            driver(items)[0].rewind(2, places)
        except SourceError:
            found.append("refused")
        else:
            found.append("read")
    return found


rule(
    "fingerprints",
    "t's end position is durable, for every partition, with a content fingerprint",
    other_input,
    ["read", "refused", "refused"],
    Change(
        SourceDriver,
        "_recognise",
        "content.fingerprint() != place.fingerprint",
        "False",
    ),
)


# ---------------------------------------------------------------------------------- what the living offer


def came_back() -> Any:
    """The receiver lives, but has its memory from its checkpoint at 5 on; the sender has failed, and has 2 and 4."""
    available = Options(layout("a chain, b chain", "a=>b", 2))
    saved = [Xi(0, (2,), ((2,),)), Xi(0, (4,), ((4,),))]
    available.join(1, [*saved, *(Xi(1, (epoch,), ()) for epoch in (2, 4))])
    available.join(0, [*saved, Xi(0, (5,), ((5,),)), Xi(1, (2,), ()), Xi(1, (5,), ())])
    here = [
        InMemory((6,), (6,), (), ((6,),), since=(1,)),
        InMemory((6,), (6,), ((6,), (6,)), (), since=(5,)),
    ]
    return available.decide({0: here})


rule(
    "came back from the store",
    "a live stateful processor offers its memory: what came back from its store, only from there on",
    came_back,
    (((2,), (2,)), ((2,), (2,))),
    Change(Options, "decide", "self._between(...)", "False"),
)


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_the_scenario_comes_out_otherwise(name: str) -> None:
    RULES[name].check()
