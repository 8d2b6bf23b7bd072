"""The planner of a rollback: what becomes of queues, and what is sent again.

Each rule has a scenario made for it that comes out otherwise without the rule.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import msgspec
import pytest

import recovery.fixed_point.solve
import recovery.rollback.orders
import recovery.rollback.queues
import recovery.store.reading
from recovery.agent.agent import Agent
from recovery.agent.events import FromMonitor
from recovery.fixed_point.solve import LIVE
from recovery.memory.recorder import WorkerRecorder
from recovery.memory.records import LogEntry
from recovery.metadata import to_frontier
from recovery.protocol import (
    Decision,
)
from recovery.rollback.orders import RollbackPlanner
from recovery.rollback.queues import stays
from tests.recovery.jobs import agent_of, job, named, tell
from tests.support.mutation import GONE, Change, Instead, Rules
from timely.data.messages import Message
from timely.io.memory import rows_of
from timely.time import Frontier

RULES = Rules()
rule = RULES.add


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
        agent.plan,
        agent.layout,
        agent.worker,
        agent.recorder,
        agent.checkpoints,
        agent.attributes,
        agent.operator_memory,
    )
    return RollbackPlanner(*parts, remembers)


def lower_again() -> Any:
    """A living worker goes back from memory, and then once more, to its last checkpoint: what it counted by then."""
    agent = agent_of(job("tight", 1, far=4), 0)
    count = named(agent, "count")
    state = agent.worker.runtimes[count].operator.state
    assert state is not None
    last = max(saved.bound for saved in agent.checkpoints.saved())
    assert last < agent.completion.at(count)

    def counted(bound: Any) -> list[Any]:
        kept = agent.worker.runtimes[count].operator.state
        assert kept is not None
        runs = kept.snapshot(to_frontier(bound), Frontier.empty(1))
        return sorted(repr(record) for run in runs for record in rows_of(run.batch))

    before = counted(last)
    for generation, bound in ((99, agent.completion.at(count)), (100, last)):
        names = {f"{info.name}_0": bound for info in agent.layout.processors}
        tell(agent, FromMonitor(msgspec.structs.replace(decision(agent, 1, **names), generation=generation)))
    return bool(before), counted(last) == before, agent.rounds.memory()[count].since


rule(
    "memory stays memory",
    "a survivor that has gone back once still remembers what lies before that",
    lower_again,
    (True, True, (0,)),
    Change(
        WorkerRecorder, "restored", "bound if requests is not None else meet(bound, self.since[processor])", "bound"
    ),
)
TIMES = [((event,), (time,)) for event in range(4) for time in range(event, 4)]


def keeps() -> Any:
    """The batches that stay in a queue of worker 1: of both workers, who keep them, within it, and of both on a logged edge."""
    agent = agent_of(job("tight", 2), 1)
    spread = next(edge for edge in agent.layout.edges if edge.spread)
    within = next(edge for edge in agent.layout.edges if not edge.spread and not edge.logged)
    found = []
    for edge, sender in ((spread, 0), (spread, 1), (within, 1)):
        source, target = (agent.layout.processors[p].name for p in (edge.source, edge.target))
        back = f"{source}_{sender}"
        for bounds in ({}, {target + "_1": (2,)}, {back: (2,)}, {back: (3,), target + "_1": (2,)}):
            for failed in ((), (sender,)):
                keep = rollback(agent)._keeps(decision(agent, 2, failed, **bounds), True)
                found.append([(e[0], t[0]) for e, t in TIMES if keep(edge.edge, sender, e, t)])
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
    *(ALL, [], [], [], [(e, t) for e, t in ALL if e < 2], [], [], []),
    *(ALL, [], [], [], [(e, t) for e, t in ALL if e < 2], [], [], []),
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
    """The logged messages that worker 0 sends to worker 1 again: it lived, or it failed."""
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


def held_back() -> Any:
    """The log that worker 0 has of an earlier process. Worker 1 stays, and since an earlier round has what comes before 2."""
    agent = agent_of(job("ordered", 2), 0)
    edge = next(edge for edge in agent.layout.edges if edge.spread and edge.logged)
    agent.recorder.logs = {
        (edge.edge, 1): [LogEntry(edge.edge, 1, n, e, t, b"", b"") for n, (e, t) in enumerate(TIMES)]
    }
    held = tuple(((2,),) * len(agent.layout.processors) for _ in range(2))
    made = msgspec.structs.replace(decision(agent, 2, (0,)), held=held)
    _, remote = rollback(agent, False)._resend(made, False)
    return [(m.event[0], m.time[0]) for _, m in remote]


rule(
    "asked when sent again",
    "what is done again, or comes from a log, is sent only where it is lacking",
    held_back,
    [(e, t) for e, t in ALL if t >= 2],
    Change(RollbackPlanner, "_resend", "has is None or not has(entry.receiver, entry.edge, entry.time)", "True"),
)


def one_order() -> Any:
    """The messages that worker 0 sends again on an edge of which it logs those for later times, and keeps the rest in memory.

    Without memory only what is for times at which it is not done again.
    """
    agent = agent_of(job("order_ahead", 2), 0)
    edge = next(edge for edge in agent.layout.edges if edge.spread and edge.ahead and not edge.logged)
    agent.recorder = WorkerRecorder(agent.layout, 0)
    for n, (e, t) in enumerate(TIMES):
        agent.recorder.shipped(1, Message(edge.edge, n, e, t, b"", [b""]))
    back = {
        agent.layout.processors[edge.target].name + "_1": (1,),
        agent.layout.processors[edge.source].name + "_0": (3,),
    }
    found = []
    for remembers in (True, False):
        _, remote = rollback(agent, remembers)._resend(decision(agent, 2, **back), remembers)
        found.append([(m.event[0], m.time[0]) for _, m in remote if m.edge == edge.edge])
    return found


rule(
    "in one order",
    "each edge in the order of sending, from its log and from memory",
    one_order,
    [[(e, t) for e, t in ALL if e < 3 and t >= 1], [(e, t) for e, t in ALL if e < 3 <= t]],
    Change(
        recovery.rollback.queues,
        "wanted",
        "list(merge(entries, unlogged, key=lambda entry: entry.number))",
        "[*unlogged, *entries]",
    ),
    Change(recovery.rollback.queues, "as_sent", "edge.kept and lives", "False"),
)


def given_again() -> Any:
    """Batches given again behind an exchange to the own worker: the processor goes back to 2, or to 1, and had completed 1."""
    agent = agent_of(job("tight", 2), 0)
    edge = next(edge for edge in agent.layout.edges if edge.spread)
    agent.recorder = WorkerRecorder(agent.layout, 0)
    for e, t in TIMES:
        agent.recorder.kept(edge.edge, e, t, [(e, t)])
    agent.worker.awaited.clear()
    number = agent.layout.processors[edge.target].group
    completed = tuple((1,) if n == number else (0,) for n in range(len(agent.layout.groups)))
    with patch.object(agent.completion, "of_groups", return_value=completed):
        agent.reports._report_completed()
    found: list[Any] = [agent.recorder.kept_bounds(edge.source)[0]]
    for back in ((2,), (1,)):
        made = decision(agent, 2, **{agent.layout.processors[edge.target].name + "_0": back})
        local, remote = rollback(agent)._resend(made, True)
        found.append(([(each.event[0], each.time[0]) for each in local], len(remote)))
    return found


rule(
    "kept within a worker",
    "who drops an epoch behind an exchange gets what its own worker had sent there; none of what it has completed is kept",
    given_again,
    [((1,), (0,)), ([(e, t) for e, t in ALL if t >= 2], 0), ([(e, t) for e, t in ALL if t >= 1], 0)],
    Change(WorkerRecorder, "kept", "keep(...)", GONE),
)


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_the_scenario_comes_out_otherwise(name: str) -> None:
    RULES[name].check()
