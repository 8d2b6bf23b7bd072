"""Rules of rollback: seeds, deadlines, garbage, sinks. The table is in `test_rules.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import monitor.coordination.handshake
import monitor.coordination.options
import recovery.fixed_point.solve
import recovery.store.reading
import timely.dataflow.plan
from monitor.coordination.coordinator import Coordinator
from monitor.coordination.effects import Fence, Send, Settings
from monitor.coordination.records import KeptDecision, SavedJob
from monitor.coordination.workers import WorkerStatus
from recovery.agent import Agent, WorkerPhase
from recovery.checkpoint.checkpoints import Checkpoints
from recovery.fixed_point.solve import LIVE
from recovery.metadata import to_frontier
from recovery.protocol import Decision, Join
from recovery.recorder import LogEntry, WorkerRecorder
from recovery.store.interface import AlreadyThere
from recovery.store.segments import Section
from tests.recovery.jobs import RULE_PROGRAMS, agent_of, job, named, quiet
from tests.recovery.layouts import LINE, layout
from tests.support.mutation import GONE, Change, Rule
from timely.data.messages import Frame, Message
from timely.dataflow.dataflow import Dataflow
from timely.dataflow.plan import compile_plan
from timely.io import Iterable
from timely.operators.ends import StagedEnd
from timely.state import KeyedState
from timely.time import Frontier, Summary
from timely.worker import restoring
from timely.worker.outbox import Outbox
from timely.worker.worker import Worker

SAME = Summary.identity(1)


RULES: dict[str, Rule] = {}


def rule(name: str, says: str, scenario: Callable[[], Any], right: Any, *changes: Change) -> None:
    RULES[name] = Rule(says, scenario, right, changes)


# ---------------------------------------------------------------------------------- seeds


def seeds() -> Any:
    """What worker 0 tells worker 1 first: (what, time) of all that it holds or sends again."""
    plan = agent_of(job("ordered", 2), 0)._plan
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


def frames_of_other_generations() -> Any:
    agent = agent_of(job("ordered", 2), 0)
    generation, messages = agent.worker.generation, [Message(1, 1, (5,), (5,), b"header", [b"payload"])]
    queued = agent.worker.queued_bytes
    agent.receive(Frame(1, generation - 1, messages))
    agent.receive(Frame(1, generation + 1, messages))
    return agent.worker.queued_bytes - queued, len(agent._early)


rule(
    "old generations",
    "frames of an old generation are dropped, those of a coming one wait",
    frames_of_other_generations,
    (0, 1),
    Change(
        Agent,
        "receive",
        "if frame.generation == self.worker.generation:\n    self.worker.receive(frame)",
        "self.worker.receive(frame)",
    ),
    Change(Worker, "receive", "frame.generation < self.generation", "False"),
)


def twice() -> Any:
    """The decision that was applied is heard again."""
    agent = agent_of(job("ordered", 2), 0)
    agent.hear(Decision(agent.worker.generation, ((LIVE,) * 8,) * 2, (), tuple(map(tuple, agent.low))))
    return len(agent.frames), agent.waits_for_store(), agent.phase


rule(
    "idempotent",
    "every live processor first applies it (idempotent)",
    twice,
    (0, False, WorkerPhase.RUNNING),
    Change(Agent, "_decide", "decision.generation <= self.checkpoints.generation", "False"),
)


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
    Change(Outbox, "begin", "generation << _GENERATION_BITS", "0"),
)


# ---------------------------------------------------------------------------------- deadlines, fences


def deadlines() -> Any:
    """Whether a worker is fenced that does not drain its links, or is silent, or never joins."""
    found = []
    world = job("tight", 2)
    assert world._monitor is not None
    coordinator = world._monitor.coordinator
    coordinator.take()
    coordinator.lost(1, agent_of(world, 1).incarnation, world.now, "killed")
    coordinator.take()
    coordinator.tick(world.now + 100)
    found.append({effect.worker for effect in coordinator.take() if isinstance(effect, Fence)})
    alone = job("tight", 1)._monitor
    assert alone is not None
    coordinator = alone.coordinator
    coordinator.take()
    coordinator.tick(1_000)
    found.append({effect.worker for effect in coordinator.take() if isinstance(effect, Fence)})
    return found


DEADLINES = "every step has a deadline: a worker that misses it is fenced; a drain never waits for ever"
for _name, _change in {
    "deadlines": Change(WorkerStatus, "overdue", "self.due is not None and now >= self.due", "False"),
    "silence": Change(WorkerStatus, "overdue", "silence is not None", "False"),
    "fence": Change(Coordinator, "_suspect", "self._effects.append(...)", GONE),
}.items():
    rule(_name, DEADLINES, deadlines, [{0, 1}, {0}], _change)


def fenced() -> Any:
    """The process that was given up writes on, after its successor has taken the journal over."""
    world = quiet("tight", 1)
    old, _, _ = recovery.store.reading.take_over(world.disk, "worker-000", b"simulated-store!", 1)
    old.resume()
    recovery.store.reading.take_over(world.disk, "worker-000", b"simulated-store!", 2)
    old.add("late", Section(b"late"))
    sealed = old.seal()
    assert sealed is not None
    try:
        world.disk.put(*sealed)
    except AlreadyThere:
        return "refused"
    return "written"


rule(
    "fenced writes",
    "writes of fenced incarnations are refused",
    fenced,
    "refused",
    Change(recovery.store.reading, "take_over", "store.put(...)", GONE),
)


# ---------------------------------------------------------------------------------- garbage, sinks, batching


def collected() -> Any:
    """What is left of a log for workers 0 and 1, when its receiver on worker 1 will never go below 2."""
    agent = agent_of(job("ordered", 2), 0)
    edge = next(edge for edge in agent.layout.edges if edge.spread and edge.logged)
    for receiver in (0, 1):
        entries = [LogEntry(edge.edge, receiver, n, (n,), (n,)) for n in range(100, 104)]
        agent.recorder.logs[edge.edge, receiver] = entries
    agent._raise(((edge.source, 1, (103,)), (edge.target, 1, (102,))))
    return [[entry.number for entry in agent.recorder.logs[edge.edge, receiver]] for receiver in (0, 1)]


LOGS = "L(e, ·) is collected within W(dst(e))"
for _name, _change in {
    "log collected": Change(Checkpoints, "collect_log", "[entry for entry in entries if entry.time >= low]", "entries"),
    "log by the receiver's W": Change(Agent, "_raise", "edge.target", "edge.source"),
    "log by the receiver's worker": Change(
        Agent,
        "_raise",
        "self.checkpoints.collect_log(edge.edge, worker, bound)",
        "self.checkpoints.collect_log(edge.edge, 0, bound)",
    ),
}.items():
    rule(_name, LOGS, collected, [[100, 101, 102, 103], [102, 103]], _change)


def history_within() -> Any:
    agent = agent_of(job("ordered", 1), 0)
    p = named(agent, "first")
    before = len(agent.recorder.histories[p])
    agent._let_go(p, (2,))
    return before > 0 and len(agent.recorder.histories[p]) == before


rule(
    "history within W",
    "`LogHistory`'s events inside W are its state",
    history_within,
    True,
    Change(
        WorkerRecorder,
        "collect",
        "memory = self._of[processor]",
        "memory = self._of[processor]\nself.histories[processor] = []",
    ),
)


def released() -> Any:
    """What a capture has given away, when its low-watermark is 3."""
    agent = agent_of(job("tight", 1), 0)
    p = named(agent, "out")
    operator = agent.worker.runtimes[p].operator
    assert isinstance(operator, StagedEnd)
    agent.worker.take_effects()
    for epoch in range(100, 105):
        operator.on_batch(agent.worker.runtimes[p].ctx, 0, (epoch,), [epoch])
    agent._let_go(p, (103,))
    return [effect.time for effect in agent.worker.take_effects() if effect.time[0] >= 100]  # type: ignore[union-attr]


SINK = "an exactly-once sink publishes t once its watermark contains t"
for _name, _change in {
    "released within W": Change(Agent, "_let_go", "to_frontier(base)", "to_frontier((bound[0] + 1,))"),
    "staged": Change(
        StagedEnd,
        "on_batch",
        "self._staged.add(time, batch)",
        "self._staged.add(time, batch); self.on_watermark(Frontier.top(1))",
    ),
    "released at all": Change(Agent, "_let_go", "operator.on_watermark(...)", GONE),
}.items():
    rule(_name, SINK, released, [(100,), (101,), (102,)], _change)


def compacted() -> Any:
    """Totals of epochs 100 to 104 were added; W reaches 102; then the operator goes back to 103."""
    agent = agent_of(job("ahead", 1), 0)
    p = named(agent, "ahead")
    state = agent.worker.runtimes[p].operator._kept  # type: ignore[attr-defined]
    assert isinstance(state, KeyedState)
    for epoch in range(100, 105):
        state.write((epoch,), {"last": epoch})
    agent._let_go(p, (102,))
    agent.worker.runtimes[p].operator.state.keep(to_frontier((103,)))  # type: ignore[union-attr]
    return state.read((110,)).get("last")


rule(
    "compaction within W",
    "compaction advances times only in runs wholly inside W",
    compacted,
    102,
    Change(
        Agent,
        "_let_go",
        "to_frontier(base)",
        "to_frontier((10**6,))",
    ),
)


def fused() -> Any:
    flow = Dataflow("fused")
    source = flow.source("in", Iterable([1], batch=1))
    with flow.region("one"):
        source = source.map(lambda x: x)
    with flow.region("two"):
        source.map(lambda x: x).capture("out")
    return len(compile_plan(flow.graph, 1).processors)


rule(
    "fusion",
    "fusion never crosses a policy, a region, a log, an exchange or a time domain",
    fused,
    4,
    Change(
        timely.dataflow.plan,
        "_fuse",
        "(after.scope, after.region, after.policy) == (node.scope, node.region, node.policy)",
        "after.scope == node.scope",
    ),
)


def rescaled() -> Any:
    return monitor.coordination.handshake.refusal(Join(0, 1, 0, False, layout(*LINE, 2), ()), 3, None, None) is not None


rule(
    "rescaling",
    "rescaling only from a savepoint: not built, and refused",
    rescaled,
    True,
    Change(monitor.coordination.handshake, "refusal", "join.layout.workers != workers", "False"),
)


def behind() -> Any:
    """A new monitor finds a living worker that has not heard of the last decision."""
    plan = layout(*LINE, 1)
    kept = KeptDecision(5, 3, ((LIVE,) * 4,), ())
    coordinator = Coordinator(0.0, SavedJob(plan, None, kept), Settings(workers=1, awaited=(0,)))
    coordinator.hear(Join(0, 1, 3, True, plan, ()), 0.1)
    sent = [effect.message for effect in coordinator.take() if isinstance(effect, Send)]
    return [(message.generation, message.catch_up) for message in sent if isinstance(message, Decision)]


rule(
    "behind",
    "after a monitor crash every live processor first applies the last decision",
    behind,
    [(5, False)],
    Change(Coordinator, "_on_join", "self._decide_for(...)", GONE),
)


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_the_scenario_comes_out_otherwise(name: str) -> None:
    RULES[name].check()
