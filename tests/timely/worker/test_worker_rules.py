"""The engine under recovery: seeds, batches, fusion, capabilities and requests.

Each rule has a scenario made for it that comes out otherwise without the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import timely.dataflow.plan
from libraries.columns.verbs.dataflow import Dataflow
from tests.recovery.jobs import RULE_PROGRAMS, agent_of, job, named
from tests.support.mutation import GONE, Change, Instead, Rules
from timely.data.messages import Frame, Message
from timely.dataflow.plan import compile_plan
from timely.errors import OperatorError
from timely.io import Iterable
from timely.operators.base import Capability, Context
from timely.time import Frontier, Summary, Time
from timely.worker import restoring
from timely.worker.outbox import Outbox, decode_message
from timely.worker.worker import Worker

RULES = Rules()
rule = RULES.add


class _Nowhere:
    def request(self, *_: Any) -> None: ...

    def hold(self, *_: Any) -> None: ...

    def start(self, *_: Any) -> None: ...


def undisciplined() -> list[str]:
    """An old capability, a message into the past, a request in the past."""
    ctx = Context(_Nowhere(), 0, "op", "here.py:1", 0, 1)
    ctx.time = (1,)
    capability = ctx.retain()
    ctx.time = (2,)
    refused = []
    actions: list[Callable[[], None]] = [
        lambda: capability.send([1]),
        lambda: ctx.send_at((1,), [1]),
        lambda: ctx.notify_at((1,)),
    ]
    for action in actions:
        try:
            action()
        except OperatorError:
            refused.append("refused")
    return refused


DISCIPLINE = "an event at t sends only at times ≥ σ(t); a retained capability is used only in an event at its own time"
rule(
    "capability",
    DISCIPLINE,
    undisciplined,
    ["refused"] * 3,
    Change(Capability, "send", "ctx.time != self.time", "False"),
)
rule("later", DISCIPLINE, undisciplined, ["refused"] * 3, Change(Context, "check_later", "not leq(now, time)", "False"))


def asked_twice() -> Any:
    """A later event asks for a notification first, an earlier one then, and one that comes between the two."""
    world = job("logs", 1)
    agent = agent_of(world, 0)
    p = next(p for p, each in enumerate(agent.plan.processors) if each.watch is not None)
    ctx = agent.worker.runtimes[p].ctx
    agent.recorder._of[p].requests.clear()
    waiting = len(agent.worker.pending())
    for event in (103, 101, 102):
        ctx.time = (event,)
        ctx.notify_at((110,))
    known = [list(agent.recorder.requests(p, (bound,))) for bound in (101, 102, 104)]
    return known, len(agent.worker.pending()) - waiting, ctx.pending[(110,)]


def only_the_first(
    self: Worker, op: int, event: Time, time: Time, again: bool = False, request: Any = Worker.request
) -> None:
    if not again:
        request(self, op, event, time)


ASKED = ([[], [((101,), (110,))], [((103,), (110,)), ((101,), (110,))]], 1, (101,))
rule(
    "asked by an earlier event as well",
    "a request that a later event has made already is made within f all the same",
    asked_twice,
    ASKED,
    Instead(Worker, "request", only_the_first),
)


def merged() -> Any:
    """Sends of two events, in part at the same time: what becomes one message, and what the log has of it."""
    agent = agent_of(job("ordered", 2), 0)
    edge = next(edge for edge in agent.layout.edges if edge.spread and edge.logged)
    plan = agent.plan
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
        Change(Outbox, "add", "(route.edge.index, event, time)", "(route.edge.index, event, event)"),
    ),
    ("logged as sent", NUMBERS, Change(Outbox, "_message", "self._recorder.shipped(...)", GONE)),
):
    rule(_name, _says, merged, MERGED, _change)


def queued() -> Any:
    """Handles batches that wait at an operator with a full history."""
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


def holding() -> Any:
    """The first report of a worker of a capability that one of its operators keeps."""
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
SAME = Summary.identity(1)


def seeds() -> Any:
    """The first frame of worker 0 to worker 1: (what, time) of all that it holds or sends again."""
    plan = agent_of(job("ordered", 2), 0).plan
    worker = Worker(plan, 0)
    edge = next(edge for edge in plan.graph.edges if edge.index in worker.edge_places)
    place = worker.edge_places[edge.index]
    keeper = next(p for p in plan.processors if p.node.name == "first")
    target = plan.graph.edges[edge.index].target
    mail = worker.runtimes[plan.of_node[target.node]].mail
    mail[target.port, (5,)] = [(edge.index, 1, (5,), Message(edge.index, 1, (5,), (5,), b"", []))]
    source = next(node.index for node in plan.graph.of_kind("source"))
    frames = restoring.rewind(
        worker,
        restoring.Orders(
            generation=1,
            restored={keeper.index: restoring.RestoredProcessor(Frontier.empty(1), None, (((1,), (7,)),))},
            keeps=lambda *_: True,
            inputs={source: (9,)},
            remote=[(1, Message(edge.index, 2, (6,), (6,), b"", []))],
        ),
    )
    names = {place: "message", keeper.place: "request", plan.processors[plan.of_node[source]].place: "source"}
    return sorted((names[at], time, count) for at, time, count in frames[1].progress), worker.pending()


SEEDS = "the first progress message is the whole seed: +1 "
SEED = ([("message", (5,), 1), ("message", (6,), 1), ("request", (7,), 1), ("source", (9,), 1)], [(3, (7,))])
COUNT = "worker._count(worker.edge_places[edge], time, +1)"
for _name, _what, _change in (
    (
        "seed of what is kept",
        "a message kept",
        Change(restoring, "_queue_all", "worker._count(worker.edge_places[edge], ...)", GONE),
    ),
    (
        "seed of what is resent",
        "a message to be resent",
        Change(restoring, "rewind", "worker._count(worker.edge_places[message.edge], ...)", GONE),
    ),
    (
        "seed of a request",
        "a pending notification",
        Change(restoring, "_queue_all", "worker._delta(...)", GONE),
    ),
    (
        "seed counted twice",
        "exactly one owner counts each",
        Change(
            restoring,
            "_queue_all",
            COUNT,
            f"{COUNT}; {COUNT}",
        ),
    ),
    (
        "rollback re-arms requests",
        "a pending notification",
        Change(restoring, "_restore", "restored.requests", "()"),
    ),
):
    rule(_name, SEEDS + _what, seeds, SEED, _change)


def pressed() -> Any:
    """Worker 0, which holds too much itself and was pressed by worker 1, goes back: whom it minds then, and what it says."""
    plan = agent_of(job("ordered", 2), 0).plan
    worker = Worker(plan, 0)
    worker.receive(Frame(1, 0, pressed=True))
    said = [frame.pressed for frame in worker.take_frames(quiet=True, pressed=True).values()]
    inputs = {node.index: (0,) for node in plan.graph.of_kind("source")}
    first = restoring.rewind(worker, restoring.Orders(1, {}, lambda *_: True, inputs))[1]
    minds = set(worker.pressed_by)
    worker.receive(Frame(1, 1))
    again = worker.take_frames(quiet=True, pressed=True)
    return said, first.pressed, minds, [frame.pressed for frame in again.values()]


PRESSED = ([True], False, set(), [True])
for _name, _says, _change in (
    (
        "pressure of an earlier generation",
        "what pressed a worker is forgotten with the queues that it was about: nobody would take it back",
        Change(restoring, "_begin", "worker.pressed_by.clear()", GONE),
    ),
    (
        "pressure of a new generation",
        "the first frame presses nobody, and who holds too much still says so again",
        Change(restoring, "rewind", "worker.take_frames(quiet=True)", "worker.take_frames(quiet=True, pressed=True)"),
    ),
):
    rule(_name, _says, pressed, PRESSED, _change)


def renumbered() -> Any:
    """Message numbers of a later generation, on an edge that has sent before."""
    plan = compile_plan(RULE_PROGRAMS["ordered"]().graph, 2)
    outbox = Outbox(plan, 0)
    route = next(r for p in plan.processors for routes in p.routes for r in routes if r.place is not None)
    numbers = []
    for generation in (1, 2):
        outbox.begin(generation)
        outbox.add(1, route, (0,), (0,), [generation])
        numbers += [message.number for message in outbox.take(generation, [], False)[1].messages]
    return len(set(numbers))


rule(
    "numbers",
    "a message and its log entry carry (edge, generation, number)",
    renumbered,
    2,
    Change(Outbox, "begin", "generation << GENERATION_BITS", "0"),
)


def fused_within() -> Any:
    flow = Dataflow("fused_within")
    source = flow.source("in", Iterable([1], batch=1))
    with flow.region("one"):
        source = source.map(lambda x: x)
    with flow.region("two"):
        source.map(lambda x: x).capture("out")
    return len(compile_plan(flow.graph, 1).processors)


rule(
    "fusion",
    "fusion never crosses a policy, a region, a log, an exchange or a time domain",
    fused_within,
    4,
    Change(
        timely.dataflow.plan,
        "_fuse",
        "(after.scope, after.region, after.policy) == (node.scope, node.region, node.policy)",
        "after.scope == node.scope",
    ),
)


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_the_scenario_comes_out_otherwise(name: str) -> None:
    RULES[name].check()
