"""The agent: pauses, cuts, reports, what is given back and what is let go.

Each rule has a scenario made for it that comes out otherwise without the rule.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from recovery.agent.collection import Collection
from recovery.agent.completion import Completion, GroupInputs
from recovery.agent.cuts import WorkerCuts
from recovery.agent.effects import Acknowledge, Perform, Put, SendFrame
from recovery.agent.events import Connected, FromMonitor, PieceDue, Received, Stored, TurnEnded
from recovery.agent.reports import Reports
from recovery.agent.rounds import Rounds
from recovery.agent.state import WorkerPhase
from recovery.checkpoint.checkpoints import PIECE_ROWS
from recovery.checkpoint.saved_events import SavedEvents
from recovery.fixed_point.solve import LIVE
from recovery.memory.recorder import WorkerRecorder
from recovery.memory.records import LogEntry
from recovery.metadata import to_frontier, within
from recovery.place import Place
from recovery.protocol import (
    Completed,
    Cut,
    Decision,
    Drain,
    Drained,
    Join,
)
from tests.recovery.agent.driven import DrivenAgents, counts, of_kind
from tests.recovery.jobs import agent_of, job, named, reports, tell
from tests.support.mutation import GONE, Change, Instead, Rules
from timely.data.messages import Frame, Message
from timely.operators.ends import StagedEnd
from timely.progress.line import tracker_for
from timely.state import KeyedState
from timely.time import Summary
from timely.worker import restoring
from timely.worker.worker import Worker

RULES = Rules()
rule = RULES.add
IDLE = "idle processors report completed frontiers too (one aggregate a worker), or W stalls"
SAME = Summary.identity(1)


def pause() -> Any:
    """Worker 1 is told to pause while something waits to be sent to worker 0."""
    agent = agent_of(job("logs", 2), 1)
    source = named(agent, "in")
    node = agent.plan.processors[source].node.index
    at = agent.worker.input_time(node)
    assert at is not None
    agent.worker.feed(node, at, list(range(40)))
    generation = agent.worker.generation
    effects = tell(agent, FromMonitor(Drain(agent.round + 1, (Place(0), Place(1)))))
    frames = [effect.frame for effect in effects if isinstance(effect, SendFrame)]
    flushed, marked = frames[0], frames[-1]
    before = (bool(flushed.messages), bool(flushed.progress), marked.ends, agent.running, agent.phase)
    edge = next(edge for edge in agent.layout.edges if edge.spread)
    queued = agent.worker.queued_bytes
    message = Message(edge.edge, 1, at, at, b"header", [b"payload"])
    effects += tell(agent, Received(Frame(0, generation, [message])))
    effects += tell(agent, Received(Frame(0, generation, ends=agent.round)))
    said = reports(effects)
    return (
        *before,
        agent.worker.queued_bytes > queued,
        [type(message).__name__ for message in said],
        isinstance(said[-1], Drained),
    )


@cache
def paused() -> tuple[Any, ...]:
    return (True, False, 2, False, WorkerPhase.DRAINING, True, ["Drained"], True)


for _name, _says, _change in (
    (
        "stops",
        "every live worker stops scheduling",
        Change(Rounds, "pause", "own.phase = WorkerPhase.DRAINING", GONE),
    ),
    (
        "sends the rest",
        "everything goes out before the marker",
        Change(
            Rounds,
            "pause",
            "own.worker.take_frames(quiet=restoring.quiet(own.worker)).items()",
            "()",
        ),
    ),
    (
        "queues while it drains",
        "receivers queue all that comes before the marker",
        Change(
            Rounds,
            "on_frame",
            "frame.generation == own.worker.generation",
            "frame.generation == own.worker.generation and own.phase == WorkerPhase.RUNNING",
        ),
    ),
    (
        "waits for markers",
        "only then do they report Ξ(p, ⊤) and C(d)",
        Change(Rounds, "report_drained", "any(...)", "False"),
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
    agent.checkpoints.cut(group, (60,), agent.cuts.state, {p: () for p, _ in agent.checkpoints.sources(group, (60,))})
    agent.completion.before[third] = (70,)
    now = [agent.rounds.memory()[p].notified for p in (first, second, third)]
    recorder.restored(first, (45,), None)
    recorder.restored(second, (30,), (), ())
    return now, [recorder.notified_bound(p) for p in (first, second)]


for _name, _change in {
    "acted on": Instead(Rounds, "_acted_on", lambda self, p, upto: (0,)),
    "notified": Instead(WorkerRecorder, "notified", lambda self, processor, time: None),
    "cut": Instead(WorkerRecorder, "acted", lambda self, processor, bound: None),
    "not lowered by what waits": Instead(Rounds, "_acted_on", lambda self, p, upto: upto),
    "never less than complete": Instead(
        Rounds, "_acted_on", lambda self, p, upto: self._own.recorder.notified_bound(p)
    ),
}.items():
    _says = "N̄(p, ⊤) includes every frontier that it has acted on as complete"
    rule(_name, _says, acted_on, ([(51,), (60,), (70,)], [(45,), (30,)]), _change)


def complete_here() -> Any:
    """The progress that a processor reports, while something is outstanding: at a source, in its queue, a notification."""
    agent = agent_of(job("logs", 1), 0)
    p = named(agent, "first")
    worker, runtime = agent.worker, agent.worker.runtimes[p]
    worker._ready.clear()
    worker.tracker = tracker_for(agent.plan.topology)
    found = []
    agent.completion.before = [info.nothing for info in agent.layout.processors]
    place = agent.plan.processors[named(agent, "in")].place
    assert place is not None
    worker.tracker.update(place, (7,), +1)
    found.append(agent.completion.at(p)[0] <= 7)
    worker.tracker.update(place, (7,), -1)
    runtime.ctx.pending = {(8,): (5,)}
    found.append(agent.completion.at(p)[0] <= 8)
    runtime.ctx.pending = {}
    worker._ready = [((0,), 0, p, (4,))]
    found.append(agent.completion.at(p)[0] <= 4)
    agent.completion.before[p] = (9,)
    return (*found, agent.completion.at(p))


COMPLETE = "f is complete when no input pointstamp, held capability or pending notification in f can still be there"
for _name, _says, _change in (
    (
        "requests are outstanding",
        COMPLETE,
        Change(Completion, "at", "runtime.ctx.pending", "()"),
    ),
    ("queues are outstanding", COMPLETE, Change(Completion, "at", "restoring.look(self._worker)", "()")),
    (
        "complete before",
        "frontiers may regress; N̄ makes that safe",
        Change(Completion, "at", "union(upto if near else prefix(upto), self.before[p])", "upto"),
    ),
):
    rule(_name, _says, complete_here, (True, True, True, (9,)), _change)


def frames_of_other_generations() -> Any:
    agent = agent_of(job("ordered", 2), 0)
    generation, messages = agent.worker.generation, [Message(1, 1, (5,), (5,), b"header", [b"payload"])]
    queued = agent.worker.queued_bytes
    tell(agent, Received(Frame(1, generation - 1, messages)), Received(Frame(1, generation + 1, messages)))
    return agent.worker.queued_bytes - queued, len(agent.rounds.early)


rule(
    "old generations",
    "frames of an old generation are dropped, those of a coming one wait",
    frames_of_other_generations,
    (0, 1),
    Change(
        Rounds,
        "on_frame",
        "if frame.generation == own.worker.generation:\n    own.worker.receive(frame)",
        "own.worker.receive(frame)",
    ),
    Change(Worker, "receive", "frame.generation < self.generation", "False"),
)


def twice() -> Any:
    """The decision that was applied is heard again."""
    agent = agent_of(job("ordered", 2), 0)
    decision = Decision(agent.worker.generation, ((LIVE,) * 8,) * 2, (), tuple(map(tuple, agent.low)))
    effects = tell(agent, FromMonitor(decision))
    return len(effects), agent.reports.waits_for_store(), agent.phase


rule(
    "idempotent",
    "every live processor first applies it (idempotent)",
    twice,
    (0, False, WorkerPhase.RUNNING),
    Change(Rounds, "decide", "decision.generation <= own.checkpoints.generation", "False"),
)


def collected() -> Any:
    """The rest of a log for workers 0 and 1, when its receiver on worker 1 will never go below 2."""
    agent = agent_of(job("ordered", 2), 0)
    edge = next(edge for edge in agent.layout.edges if edge.spread and edge.logged)
    for receiver in (0, 1):
        entries = [LogEntry(edge.edge, receiver, n, (n,), (n,)) for n in range(100, 104)]
        agent.recorder.logs[edge.edge, receiver] = entries
    agent.collection.raise_low(((edge.source, 1, (103,)), (edge.target, 1, (102,))))
    return [[entry.number for entry in agent.recorder.logs[edge.edge, receiver]] for receiver in (0, 1)]


LOGS = "L(e, ·) is collected within W(dst(e))"
for _name, _change in {
    "log collected": Change(
        SavedEvents, "collect_log", "[entry for entry in entries if not holds(low, entry.time)]", "entries"
    ),
    "log by the receiver's W": Change(Collection, "raise_low", "edge.target", "edge.source"),
    "log by the receiver's worker": Change(
        Collection,
        "raise_low",
        "own.checkpoints.collect_log(edge.edge, worker, bound)",
        "own.checkpoints.collect_log(edge.edge, 0, bound)",
    ),
}.items():
    rule(_name, LOGS, collected, [[100, 101, 102, 103], [102, 103]], _change)


def released() -> Any:
    """The output that a capture has given away, when its low-watermark is 3."""
    agent = agent_of(job("tight", 1), 0)
    p = named(agent, "out")
    operator = agent.worker.runtimes[p].operator
    assert isinstance(operator, StagedEnd)
    agent.worker.take_effects()
    for epoch in range(100, 105):
        operator.on_batch(agent.worker.runtimes[p].ctx, 0, (epoch,), [epoch])
    agent.collection.let_go(p, (103,))
    return [effect.time for effect in agent.worker.take_effects() if effect.time[0] >= 100]  # type: ignore[union-attr]


SINK = "an exactly-once sink publishes t once its watermark contains t"
for _name, _change in {
    "released within W": Change(Collection, "let_go", "to_frontier(base)", "to_frontier((bound[0] + 1,))"),
    "staged": Change(
        StagedEnd,
        "on_batch",
        "self.state.add(time, batch)",
        "self.state.add(time, batch); self.on_watermark(Frontier.top(1))",
    ),
    "released at all": Change(Collection, "let_go", "operator.on_watermark(...)", GONE),
}.items():
    rule(_name, SINK, released, [(100,), (101,), (102,)], _change)


def compacted() -> Any:
    """Totals of epochs 100 to 104 were added; W reaches 102; then the operator goes back to 103."""
    agent = agent_of(job("ahead", 1), 0)
    p = named(agent, "ahead")
    state = agent.worker.runtimes[p].operator._kept  # type: ignore[attr-defined]
    assert isinstance(state, KeyedState)
    for epoch in range(100, 105):
        agent.worker.runtimes[p].ctx.time = (epoch,)
        state.write((epoch,), {"last": epoch})
    agent.collection.let_go(p, (102,))
    agent.worker.runtimes[p].operator.state.keep(to_frontier((103,)))  # type: ignore[union-attr]
    return state.read((110,)).get("last")


rule(
    "compaction within W",
    "compaction advances times only in runs wholly inside W",
    compacted,
    102,
    Change(
        Collection,
        "let_go",
        "to_frontier(base)",
        "to_frontier((10**6,))",
    ),
)


def idle_worker() -> Any:
    """Worker 1 has done nothing, and hears that epochs are over everywhere."""
    agent = agent_of(job("ordered", 2), 1)
    assert agent.completion.reported is not None
    before = agent.completion.reported
    world = agent.worker
    source = next(node.index for node in agent.plan.graph.of_kind("source"))
    place = agent.plan.processors[agent.plan.of_node[source]].place
    assert place is not None
    (time,) = world.tracker.leaving(place)
    tell(agent, Received(Frame(0, world.generation, [], [(place, (time[0] + 2,), 1), (place, time, -1)])))
    world.run()
    effects = tell(agent, TurnEnded(True, 0.0))
    told = [message.upto for message in reports(effects) if isinstance(message, Completed)]
    return bool(told) and all(new > old for new, old in zip(told[-1][:1], before))


rule(
    "idle workers",
    IDLE,
    idle_worker,
    True,
    Change(Reports, "completed", "quiet and (self._own.eager or waited >= REPORT_SECONDS)", "False"),
)


def late_cuts() -> Any:
    """A cut that was announced in an earlier generation, one that comes while links are drained, and one before that."""
    agent = agent_of(job("tight", 2), 0)
    generation = agent.worker.generation
    tell(agent, FromMonitor(Cut(generation - 1, 0, (100,))))
    found = [len(agent.cuts.due)]
    tell(agent, FromMonitor(Cut(generation, 0, (100,))), FromMonitor(Drain(agent.round + 1, (Place(0), Place(1)))))
    found.append(len(agent.cuts.due))
    tell(agent, FromMonitor(Cut(generation, 0, (100,))))
    return *found, len(agent.cuts.due), len(agent.reports.gathered)


CUTS = "checkpoints fall between activations, of this generation, and not while links are drained"
for _name, _old in {
    "cuts of an old generation": "cut.generation == self._own.worker.generation",
    "cuts while links are drained": "self._own.phase == WorkerPhase.RUNNING",
}.items():
    rule(_name, CUTS, late_cuts, (0, 0, 0, 0), Change(WorkerCuts, "ask", _old, GONE))
rule("cuts before", CUTS, late_cuts, (0, 0, 0, 0), Change(WorkerCuts, "drop", "self.due.clear()", GONE))


def commits() -> Any:
    """A commit of a region that is fed, and one of a region that nothing comes to: what sources are told."""
    agent = agent_of(job("eagerly", 1), 0)
    agent.effects.clear()
    for name in ("most", "in"):
        agent.collection.release(agent.layout.processors[named(agent, name)].group, (100,))
    return [effect.epoch for effect in agent.effects if isinstance(effect, Acknowledge)]


rule(
    "acknowledged with its commit",
    "what nothing can take back is acknowledged as soon as it is durable",
    commits,
    [100],
    Change(Collection, "release", "self._acknowledge_before(node, at[0])", GONE),
)


def saved_and_drained() -> Any:
    """A worker pauses in the midst of a cut: what it says, before that is durable and then."""
    agent = agent_of(job("logs", 1, far=4), 0)  # no cut is in the making then
    p = named(agent, "third")
    assert agent.completion.reported is not None
    group = agent.layout.processors[p].group
    tell(agent, FromMonitor(Cut(agent.worker.generation, group, agent.completion.reported[group])))
    tell(agent, PieceDue(PIECE_ROWS))
    begun = agent.cuts.pending
    effects = tell(agent, FromMonitor(Drain(agent.round + 1, (Place(0),))))
    (segment,) = (effect for effect in effects if isinstance(effect, Put))
    said = reports(tell(agent, Stored(segment.name)))
    return begun, len(reports(effects)), [type(message).__name__ for message in said]


for _name, _changes in {
    "drained when it is durable": (
        Change(
            Rounds,
            "report_drained",
            "own.phase != WorkerPhase.DRAINING or self._reports.waits_for_store()",
            "own.phase != WorkerPhase.DRAINING",
        ),
    ),
    "what was begun is ended": (Change(Rounds, "pause", "self._cuts.finish()", GONE),),
}.items():
    rule(
        _name,
        "Ξ is announced only after Ξ, S and L are durable, and Ξ(p, ⊤) after all that was announced",
        saved_and_drained,
        (True, 0, ["Durable", "Drained"]),
        *_changes,
    )


def held_here() -> Any:
    """A worker, or another one, holds a capability at a processor: what is complete there, and in its group."""
    agent = agent_of(job("ordered", 2), 0)
    p = named(agent, "first")
    place = agent.plan.processors[p].place
    assert place is not None
    agent.completion.before = [info.nothing for info in agent.layout.processors]
    agent.completion.reported = None
    agent.worker.tracker.update(place, (2,), +1)
    group = GroupInputs(agent.plan, agent.layout, agent.layout.processors[p].group)
    return agent.completion.at(p)[0] <= 2, agent.completion.of_group(group, [])[0] <= 2


HELD = "f is complete when no held capability in f can still be there"
for _name, _change in {
    "held capabilities": Change(Completion, "at", "times += tracker.leaving(runtime.processor.place)", GONE),
    "held capabilities in a group": Change(GroupInputs, "__init__", "places[processor.place, None] = None", GONE),
}.items():
    rule(_name, HELD, held_here, (True, True), _change)


def told_again() -> Any:
    """A new monitor comes while old work of another group waits here: what the worker has completed, and tells it at once."""
    agent = agent_of(job("logs", 1), 0)
    third = named(agent, "third")
    other = agent.worker.runtimes[named(agent, "first")]
    before = agent.completion.at(third)
    assert any(before)
    agent.worker._ready.append(((0,), 0, other.processor.index, (0,)))
    effects = tell(agent, Connected(), TurnEnded(False, 0.0), now=1e-6)
    told = [message.upto for message in reports(effects) if isinstance(message, Completed)]
    return agent.completion.at(third) >= before, told == [agent.completion.reported]


rule(
    "what was complete stays complete",
    "a living worker does not say less to a new monitor than it did: it would be given up for that",
    told_again,
    (True, True),
    Change(Reports, "join", "self._reported_at = float('-inf')", "own.completion.reported = None"),
)


def told_when_noted() -> Any:
    """A new monitor comes while a decision that this worker has carried out is on its way to the store."""
    agent = agent_of(job("ordered", 2), 0)
    begun = agent.worker.generation + 1
    bounds = ((LIVE,) * len(agent.layout.processors),) * 2
    effects = tell(agent, FromMonitor(Decision(begun, bounds, (), tuple(map(tuple, agent.low)))))
    (name,) = (effect.name for effect in effects if isinstance(effect, Put))
    joined = [message.generation for message in reports(tell(agent, Connected())) if isinstance(message, Join)]
    stored = reports(tell(agent, Stored(name)))
    return (
        joined,
        [message.generation for message in stored if isinstance(message, Join)] == [begun],
        agent.noted == begun,
    )


rule(
    "what a worker says it knows is durable",
    "whoever joins names a decision that its store has: a monitor takes it for granted that the next process has it, too",
    told_when_noted,
    ([], True, True),
    Change(Reports, "join", "own.checkpoints.generation > own.noted", "False"),
)


def released() -> Any:
    """The epochs that a worker publishes which comes back: two were saved one by one, and W has both, as it hears only now."""
    agents = DrivenAgents(counts).begin()
    agents.epochs(3)
    agents.save(1, 2)
    agents.dies(0)
    agents.tell(0, Connected())
    back = {info.name: (2,) for info in agents.layout.processors}
    low = (((2,),) * len(agents.layout.processors),) * 2
    effects = agents.hear(0, agents.decision(2, [back, back], (0,), watermarks=low))
    return [effect.time for each in of_kind(effects, Perform) for effect in each.effects]


PLANNED = "RollbackPlanner(own.plan, own.layout, *parts, remembers=own.alive).orders(decision)"
rule(
    "planned before W is applied",
    "what W released may have to be published again, so nothing is collected before the orders are made",
    released,
    [(0,), (1,)],
    Change(
        Rounds,
        "decide",
        f"orders = {PLANNED}",
        f"""
        for w, lows in enumerate(decision.watermarks):
            self._collection.raise_low(tuple((p, w, low) for p, low in enumerate(lows)))
        orders = {PLANNED}
        """,
    ),
)


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_the_scenario_comes_out_otherwise(name: str) -> None:
    RULES[name].check()


def test_a_checkpoint_that_is_asked_for_again_is_still_offered_to_a_new_monitor() -> None:
    """A cut within an epoch lists checkpoints outside the loop that the next cut, at the end of the epoch, lists once more."""
    agent = agent_of(job("long_loop", 2, far=1), 0)
    (group,) = {agent.layout.processors[named(agent, name)].group for name in ("in", "down-leave")}
    before = agent.checkpoints.durable()
    last = max(xi.bound for xi in before if xi.processor == named(agent, "down-leave"))
    tell(agent, FromMonitor(Cut(agent.worker.generation, group, last)))
    assert not agent.checkpoints.sources(group, last)
    while agent.cuts.pending:
        tell(agent, PieceDue(PIECE_ROWS))
    assert agent.reports.waits_for_store()
    assert agent.checkpoints.durable() == before


def test_a_worker_that_has_been_busy_ever_since_a_rollback_says_that_it_is_alive() -> None:
    agent = agent_of(job("tight", 2), 0)
    agent.completion.reported = None
    (message,) = reports(tell(agent, TurnEnded(False, 0.0)))
    assert isinstance(message, Completed)
    assert set(message.upto) == {(0,)}


def test_a_new_monitor_hears_of_no_less_than_the_one_before_and_does_not_take_a_healthy_worker_for_a_broken_one() -> (
    None
):
    """Joining once forgot what had been reported as complete: what came next was less than what was persisted."""
    agent = agent_of(job("logs", 2), 0)
    (before,) = (each for each in reports(tell(agent, TurnEnded(True, 0.0))) if isinstance(each, Completed))
    assert any(upto > (0,) for upto in before.upto)
    said = reports(tell(agent, Connected(), TurnEnded(True, 0.0), now=2e6))
    (joined,) = (each for each in said if isinstance(each, Join))
    (after,) = (each for each in said if isinstance(each, Completed))
    assert all(map(within, before.upto, after.upto))
    persisted = [(after.upto[agent.layout.processors[xi.processor].group], xi.bound) for xi in joined.durable]
    assert persisted
    assert all(within(bound, upto) for upto, bound in persisted)
