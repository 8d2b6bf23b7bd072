"""Rules of rollback: draining, and what becomes of queues. The table is in `test_rules.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import pytest

import recovery.rollback.orders
import recovery.rollback.queues
from recovery.agent import Agent, WorkerPhase
from recovery.fixed_point.solve import LIVE
from recovery.metadata import to_frontier
from recovery.protocol import Decision, Drain, Drained
from recovery.recorder import LogEntry, WorkerRecorder
from recovery.rollback.orders import RollbackPlanner
from recovery.rollback.queues import stays
from tests.recovery.jobs import agent_of, job, named
from tests.recovery.layouts import FIREWALL, layout
from tests.support.mutation import GONE, Change, Instead, Rule
from timely.data.messages import Frame, Message
from timely.io.memory import rows_of
from timely.progress.line import tracker_for
from timely.time import Frontier, Summary
from timely.worker import restoring

SAME = Summary.identity(1)


RULES: dict[str, Rule] = {}


def rule(name: str, says: str, scenario: Callable[[], Any], right: Any, *changes: Change | Instead) -> None:
    RULES[name] = Rule(says, scenario, right, changes)


# ---------------------------------------------------------------------------------- a job that has begun


def pause() -> Any:
    """Worker 1 is told to pause while something waits to be sent to worker 0."""
    agent = agent_of(job("logs", 2), 1)
    source = named(agent, "in")
    node = agent._plan.processors[source].node.index
    at = agent.worker.input_time(node)
    assert at is not None
    agent.worker.feed(node, at, list(range(40)))
    generation = agent.worker.generation
    agent.hear(Drain(agent.round + 1, (0, 1)))
    flushed, marked = agent.frames[0][1], agent.frames[-1][1]
    before = (bool(flushed.messages), bool(flushed.progress), marked.ends, agent.running, agent.phase)
    edge = next(edge for edge in agent.layout.edges if edge.spread)
    queued = agent.worker.queued_bytes
    agent.receive(Frame(0, generation, [Message(edge.edge, 1, at, at, b"header", [b"payload"])]))
    agent.receive(Frame(0, generation, ends=agent.round))
    return (
        *before,
        agent.worker.queued_bytes > queued,
        [type(message).__name__ for message in agent.messages],
        isinstance(agent.messages[-1], Drained),
    )


@cache
def paused() -> tuple[Any, ...]:
    return (True, False, 2, False, WorkerPhase.DRAINING, True, ["Drained"], True)


for _name, _says, _change in (
    (
        "stops",
        "every live worker stops scheduling",
        Change(Agent, "_pause", "self.phase = WorkerPhase.DRAINING", GONE),
    ),
    (
        "sends the rest",
        "everything goes out before the marker",
        Change(
            Agent,
            "_pause",
            "self.worker.take_frames(quiet=restoring.quiet(self.worker)).items()",
            "()",
        ),
    ),
    (
        "queues while it drains",
        "receivers queue all that comes before the marker",
        Change(
            Agent,
            "receive",
            "frame.generation == self.worker.generation",
            "frame.generation == self.worker.generation and self.phase == WorkerPhase.RUNNING",
        ),
    ),
    (
        "waits for markers",
        "only then do they report Ξ(p, ⊤) and C(d)",
        Change(Agent, "_settle", "any(...)", "False"),
    ),
    (
        "what waits may still cause something",
        "progress is told by a worker that is quiet, in a pause as well: others would take times for complete that are not",
        Instead(restoring, "quiet", lambda worker: True),
    ),
):
    rule(_name, _says, pause, paused(), _change)


def acted_on() -> Any:
    """N̄(p, ⊤) of processors that were notified, or cut, or only complete; and then of those taken back or brought back."""
    agent = agent_of(job("logs", 2), 1)
    recorder = agent.recorder
    first, second, third = (named(agent, name) for name in ("first", "second", "third"))
    recorder.notified(first, (50,))
    recorder.notified(first, (40,))
    group = agent.layout.processors[second].group
    agent.checkpoints.cut(group, (60,), agent._state, lambda p, epoch: ())
    agent._settled[third] = (70,)
    now = [agent._memory()[p].notified for p in (first, second, third)]
    recorder.restored(first, (45,), None)
    recorder.restored(second, (30,), (), ())
    return now, [recorder.notified_bound(p) for p in (first, second)]


for _name, _change in {
    "acted on": Instead(Agent, "_acted_on", lambda self, p, upto: (0,)),
    "notified": Instead(WorkerRecorder, "notified", lambda self, processor, time: None),
    "cut": Instead(WorkerRecorder, "acted", lambda self, processor, bound: None),
    "not lowered by what waits": Instead(Agent, "_acted_on", lambda self, p, upto: upto),
    "never less than complete": Instead(Agent, "_acted_on", lambda self, p, upto: self.recorder.notified_bound(p)),
}.items():
    _says = "N̄(p, ⊤) includes every frontier that it has acted on as complete"
    rule(_name, _says, acted_on, ([(51,), (60,), (70,)], [(45,), (30,)]), _change)


def complete_here() -> Any:
    """How far a processor says that it is, while something is outstanding: at a source, in its queue, a notification."""
    agent = agent_of(job("logs", 1), 0)
    p = named(agent, "first")
    worker, runtime = agent.worker, agent.worker.runtimes[p]
    worker._ready.clear()
    worker.tracker = tracker_for(agent._plan.topology)
    found = []
    agent._settled = [info.nothing for info in agent.layout.processors]
    place = agent._plan.processors[named(agent, "in")].place
    assert place is not None
    worker.tracker.update(place, (7,), +1)
    found.append(agent._upto(p)[0] <= 7)
    worker.tracker.update(place, (7,), -1)
    runtime.ctx.pending = {(8,): (5,)}
    found.append(agent._upto(p)[0] <= 8)
    runtime.ctx.pending = {}
    worker._ready = [((0,), 0, p, (4,))]
    found.append(agent._upto(p)[0] <= 4)
    agent._settled[p] = (9,)
    return (*found, agent._upto(p))


COMPLETE = "f is complete when no input pointstamp, held capability or pending notification in f can still be there"
for _name, _says, _change in (
    (
        "requests are outstanding",
        COMPLETE,
        Change(Agent, "_upto", "runtime.ctx.pending", "()"),
    ),
    ("queues are outstanding", COMPLETE, Change(Agent, "_upto", "for (op, time) in local: ...", "()")),
    (
        "settled",
        "frontiers may regress; N̄ makes that safe",
        Change(Agent, "_upto", "least = max(least, self._settled[p])", GONE),
    ),
):
    rule(_name, _says, complete_here, (True, True, True, (9,)), _change)


# ---------------------------------------------------------------------------------- queues


def decision(agent: Agent, workers: int, failed: tuple[int, ...] = (), **bounds: Any) -> Decision:
    """All live, but for `name_worker=bound`."""
    all_of: list[list[Any]] = [[LIVE] * len(agent.layout.processors) for _ in range(workers)]
    for key, bound in bounds.items():
        name, worker = key.rsplit("_", 1)
        all_of[int(worker)][named(agent, name)] = bound
    low = tuple(tuple(info.nothing for info in agent.layout.processors) for _ in range(workers))
    return Decision(99, tuple(map(tuple, all_of)), failed, low)


def rollback(agent: Agent, remembers: bool = True) -> RollbackPlanner:
    parts = (
        agent._plan,
        agent.layout,
        agent.worker,
        agent.recorder,
        agent.checkpoints,
        agent._attributes,
        agent._beside,
    )
    return RollbackPlanner(*parts, remembers, agent._stored_at)


def lower_again() -> Any:
    """A living worker goes back from memory, and then once more, to its last checkpoint: what it counted by then."""
    agent = agent_of(job("tight", 1, far=4), 0)
    count = named(agent, "count")
    state = agent.worker.runtimes[count].operator.state
    assert state is not None
    last = max(saved.bound for saved in agent.checkpoints.saved())
    assert last < agent._upto(count)

    def counted(bound: Any) -> list[Any]:
        kept = agent.worker.runtimes[count].operator.state
        assert kept is not None
        runs = kept.snapshot(to_frontier(bound), Frontier.empty(1))
        return sorted(repr(record) for run in runs for record in rows_of(run.batch))

    before = counted(last)
    for generation, bound in ((99, agent._upto(count)), (100, last)):
        names = {f"{info.name}_0": bound for info in agent.layout.processors}
        agent._decide(msgspec.structs.replace(decision(agent, 1, **names), generation=generation))
    return bool(before), counted(last) == before, agent._memory()[count].since


rule(
    "memory stays memory",
    "a survivor that has gone back once still remembers what lies before that",
    lower_again,
    (True, True, (0,)),
    Change(Agent, "_decide", "min(self._stored_at[p], bound) if remembers else bound", "bound"),
)


TIMES = [((event,), (time,)) for event in range(4) for time in range(event, 4)]


def keeps() -> Any:
    """Which batches stay in a queue of worker 1, of worker 0's (and last: its and its own, on a logged edge)."""
    agent = agent_of(job("tight", 2), 1)
    edge = next(edge for edge in agent.layout.edges if edge.spread)
    source, target = (agent.layout.processors[p].name for p in (edge.source, edge.target))
    found = []
    for bounds in ({}, {target + "_1": (2,)}, {source + "_0": (2,)}, {source + "_0": (3,), target + "_1": (2,)}):
        for failed in ((), (0,)):
            keep = rollback(agent)._keeps(decision(agent, 2, failed, **bounds), True)
            found.append([(e[0], t[0]) for e, t in TIMES if keep(edge.edge, 0, e, t)])
    logs = agent_of(job("ordered", 2), 1)
    logged = next(edge for edge in logs.layout.edges if edge.spread and edge.logged)
    bounds = {logs.layout.processors[logged.target].name + "_1": (2,)}
    keep = rollback(logs)._keeps(decision(logs, 2, **bounds), True)
    for sender in (0, 1):
        found.append([(e[0], t[0]) for e, t in TIMES if keep(logged.edge, sender, e, t)])
    return found


KEEPS = "keep an undelivered message iff both ends lived, τ ∈ f(src), and (f(dst) = ⊤ or t ∉ f(dst))"
ALL = [(e[0], t[0]) for e, t in TIMES]
KEPT = [
    *(ALL, []),
    *([(e, t) for e, t in ALL if t >= 2], []),
    *([(e, t) for e, t in ALL if e < 2], []),
    *([(e, t) for e, t in ALL if e < 3 and t >= 2], []),
    *([], []),
]
for _name, _says, _change in (
    (
        "the sender lived",
        KEEPS,
        Instead(recovery.rollback.orders, "stays", lambda edge, s, t, lives, *m: stays(edge, s, t, True, *m)),
    ),
    (
        "kept within the source",
        KEEPS,
        Instead(recovery.rollback.queues, "owed", lambda s, t, event, time: t is None or time >= t),
    ),
    (
        "kept outside the target",
        KEEPS,
        Instead(recovery.rollback.queues, "owed", lambda s, t, event, time: s is None or event < s),
    ),
    (
        "unless it comes from the log",
        "add each logged message unless kept; each edge in the order of sending",
        Instead(recovery.rollback.queues, "from_log", lambda edge, target, lives, event, time: False),
    ),
):
    rule(_name, _says, keeps, KEPT, _change)


def resent() -> Any:
    """Which logged messages worker 0 sends to worker 1 again: it lived, or it failed."""
    agent = agent_of(job("ordered", 2), 0)
    edge = next(edge for edge in agent.layout.edges if edge.spread and edge.logged)
    source, target = (agent.layout.processors[p].name for p in (edge.source, edge.target))
    agent.recorder.logs = {
        (edge.edge, 1): [LogEntry(edge.edge, 1, n, e, t, b"", b"") for n, (e, t) in enumerate(TIMES)]
    }
    found = []
    for bounds in ({}, {target + "_1": (2,)}, {source + "_0": (2,)}, {source + "_0": (3,), target + "_1": (2,)}):
        for remembers in (True, False):
            _, remote = rollback(agent, remembers)._resend(decision(agent, 2, **bounds), remembers)
            found.append([(m.event[0], m.time[0]) for receiver, m in remote if receiver == 1])
    return found


RESENDS = "add each logged message with τ ∈ f(src) and (f(dst) = ⊤ ? not received : t ∉ f(dst)), in log order"
RESENT = [
    *([], ALL),
    *([(e, t) for e, t in ALL if t >= 2],) * 2,
    *([], [(e, t) for e, t in ALL if e < 2]),
    *([(e, t) for e, t in ALL if e < 3 and t >= 2],) * 2,
]
for _name, _says, _change in (
    (
        "⊤ / ⊤",
        "keep all, resend nothing",
        Instead(recovery.rollback.queues, "from_log", lambda edge, target, lives, *times: edge.logs(*times)),
    ),
    (
        "g failed / ⊤",
        "resend logged ones not yet delivered",
        Instead(recovery.rollback.queues, "from_log", lambda edge, target, lives, *times: target is not None),
    ),
    (
        "resent to others",
        RESENDS,
        Change(RollbackPlanner, "_resend", "remote.append(...)", GONE),
    ),
    (
        "τ ∈ f(src)",
        RESENDS,
        Instead(recovery.rollback.queues, "owed", lambda s, t, event, time: t is None or time >= t),
    ),
    (
        "t ∉ f(dst)",
        RESENDS,
        Instead(recovery.rollback.queues, "owed", lambda s, t, event, time: s is None or event < s),
    ),
):
    rule(_name, _says, resent, RESENT, _change)


def taken() -> Any:
    """A message comes, comes again, and comes again after its receiver was rolled back below it, and only below it."""
    recorder = WorkerRecorder(layout(*FIREWALL, 2), 1)
    edge = 1
    first, second = (Message(edge, n, (n,), (n,), b"", []) for n in (1, 3))
    found = [recorder.taken(0, message) for message in (first, second, first, second)]
    recorder.restored(2, (2,), None)
    return found + [recorder.taken(0, message) for message in (first, second)]


RECEIVED = "f(dst) = ⊤: what was received is not taken again; f(dst) = g: what lies outside g is"
for _name, _change in {
    "taken once": Change(WorkerRecorder, "taken", "message.number in known", "False"),
    "taken again after a rollback": Change(
        WorkerRecorder, "restored", "[number for number, time in known.items() if ...]", "[]"
    ),
    "not taken again within f": Change(
        WorkerRecorder, "restored", "[number for number, time in known.items() if ...]", "list(known)"
    ),
}.items():
    rule(_name, RECEIVED, taken, [True, True, False, False, False, True], _change)


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_the_scenario_comes_out_otherwise(name: str) -> None:
    RULES[name].check()
