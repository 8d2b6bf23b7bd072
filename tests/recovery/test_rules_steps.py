"""Rules of rollback: the deadline of each step, and what the low-watermarks wait for. The table is in `test_rules.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from monitor.coordination.coordinator import Coordinator
from monitor.coordination.effects import Fence, Send
from monitor.coordination.options import Options
from monitor.coordination.phase import JobPhase
from monitor.coordination.records import KeptDecision, SavedJob
from recovery.agent import Agent
from recovery.groups import GroupProgress
from recovery.metadata import Xi
from recovery.protocol import (
    Completed,
    Cut,
    Drain,
    Drained,
    Durable,
    Restored,
    Watermarks,
)
from tests.monitor.coordination.coordinators import GROUND, PLAN, join, memory, respawned, running, settings, write, xis
from tests.recovery.jobs import agent_of, job, named
from tests.recovery.layouts import layout
from tests.support.mutation import GONE, Change, Rule
from timely.data.messages import Frame

RULES: dict[str, Rule] = {}


def rule(name: str, says: str, scenario: Callable[[], Any], right: Any, *changes: Change) -> None:
    RULES[name] = Rule(says, scenario, right, changes)


# ---------------------------------------------------------------------------------- deadlines


def missed() -> Any:
    """Of each step, who is given up when nothing happens for long; each has longer than the one before, and none too long."""
    limits = {"join_seconds": 50.0, "pause_seconds": 60.0, "restore_seconds": 70.0, "heartbeat_seconds": 10_000.0}
    found: list[list[int]] = []

    def late(coordinator: Coordinator, seconds: float) -> None:
        coordinator.take()
        coordinator.tick(1.0 + seconds - 0.5)
        assert not any(isinstance(effect, Fence) for effect in coordinator.take())
        coordinator.tick(1.0 + seconds + 0.5)
        found.append([effect.worker for effect in coordinator.take() if isinstance(effect, Fence)])

    coordinator = Coordinator(1.0, None, settings(**limits))
    late(coordinator, 50.0)  # the first process joins
    coordinator = running(**limits)
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.hear(Drained(1, 2, memory()), 1.0)
    late(coordinator, 50.0)  # a process that takes the place of another one joins
    coordinator = running(**limits)
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.hear(join(0, 2, 1), 1.0)
    late(coordinator, 60.0)  # the living drain their links
    coordinator = running(**limits)
    respawned(coordinator, 2)
    write(coordinator)
    late(coordinator, 70.0)  # all restore
    saved = SavedJob(PLAN, None, KeptDecision(4, 2, (GROUND, GROUND), ()))
    coordinator = Coordinator(1.0, saved, settings(awaited=[0], **limits))
    coordinator.hear(join(0, 1, 2), 31.0)
    coordinator.hear(join(1, 1, 4), 31.0)
    late(coordinator, 80.0)  # who is behind notes the decision
    return found


DEADLINE = "every step has a deadline: a worker that misses it is fenced and counted as failed"
for _name, _change in {
    "deadline of the first processes": Change(Coordinator, "__init__", "seat.must(...)", GONE),
    "deadline of a replacement": Change(Coordinator, "_lose", "seat.must(...)", GONE),
    "deadline of draining": Change(Coordinator, "_begin", "seat.must(...)", GONE),
    "deadline of restoring": Change(
        Coordinator,
        "_decide_for",
        "seat.must(...)",
        GONE,
    ),
    "deadline of catching up": Change(
        Coordinator,
        "_catch_up",
        "seat.must(...)",
        GONE,
    ),
    "deadlines are looked at": Change(Coordinator, "tick", "self._suspect(...)", GONE),
}.items():
    rule(_name, DEADLINE, missed, [[0, 1], [0], [1], [0, 1], [0]], _change)


def in_time() -> Any:
    """Nobody is given up who has done what he was told, however long the others take."""
    limits = {"join_seconds": 5.0, "pause_seconds": 5.0, "restore_seconds": 5.0, "heartbeat_seconds": 10_000.0}
    coordinator = running(**limits)
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.hear(join(0, 2, 1), 5.5)
    coordinator.hear(Drained(1, 2, memory()), 5.5)
    coordinator.take()
    coordinator.tick(50.0)
    waiting = [effect for effect in coordinator.take() if isinstance(effect, Fence)]
    coordinator = running(**limits)
    coordinator.tick(50.0)
    return waiting, [effect for effect in coordinator.take() if isinstance(effect, Fence)], coordinator.phase


for _name, _change in {
    "who has joined is in time": Change(Coordinator, "_on_join", "seat.due = None", GONE),
    "who has drained is in time": Change(Coordinator, "_on_drained", "seat.due = None", GONE),
    "who has restored is in time": Change(Coordinator, "_on_restored", "seat.due = None", GONE),
}.items():
    rule(_name, DEADLINE, in_time, ([], [], JobPhase.RUNNING), _change)


# ---------------------------------------------------------------------------------- what W rests on


def too_early() -> Any:
    """A cut becomes durable while others still restore; W waits until all are there."""
    coordinator = running()
    respawned(coordinator, 2)
    write(coordinator)
    coordinator.hear(Restored(1, 2), 1.0)
    for worker in range(2):
        coordinator.hear(Durable(worker, 2, 0, (3,), xis(3)), 1.0)
    early = coordinator._available.watermarks
    coordinator.hear(Restored(0, 2), 1.0)
    return early, coordinator._available.watermarks


rule(
    "W when all are there",
    "W is the answer when nobody is alive: what it rests on must surely be there",
    too_early,
    ((((0,), (0,)),) * 2, (((3,), (3,)),) * 2),
    Change(Coordinator, "_raise_watermarks", "self.phase is JobPhase.RUNNING", "True"),
)


def idle() -> Any:
    """All that is persisted reaches 5; what keeps nothing, and has nothing to do, stands in between."""
    available = Options(layout("a chain, q any, b chain", "a|q, q|b", 1))
    for group, p in ((0, 0), (2, 2)):
        available.durable(0, group, (5,), [Xi(p, (5,), ((0,),) if p == 0 else ())])
    available.complete(0, ((6,), (6,), (6,)))
    available.raise_watermarks()
    return available.watermarks


IDLE = "idle processors report completed frontiers too (one aggregate a worker), or W stalls"
rule(
    "idle processors",
    IDLE,
    idle,
    (((5,), (5,), (5,)),),
    Change(Options, "complete", "not info.chain", "False"),
)


def idle_worker() -> Any:
    """Worker 1 has done nothing, and hears that epochs are over everywhere."""
    agent = agent_of(job("ordered", 2), 1)
    assert agent._completed is not None
    before = agent._completed
    world = agent.worker
    source = next(node.index for node in agent._plan.graph.of_kind("source"))
    place = agent._plan.processors[agent._plan.of_node[source]].place
    assert place is not None
    (time,) = world.tracker.leaving(place)
    agent.receive(Frame(0, world.generation, [], [(place, (time[0] + 2,), 1), (place, time, -1)]))
    world.run()
    agent.turn(quiet=True, now=1e6)
    told = [message.upto for message in agent.messages if isinstance(message, Completed)]
    return bool(told) and all(new > old for new, old in zip(told[-1][:1], before))


rule(
    "idle workers",
    IDLE,
    idle_worker,
    True,
    Change(Agent, "turn", "quiet and now - self._reported_at >= every", "False"),
)


def of_a_new_monitor() -> Any:
    """Workers go on under a new monitor, which tells all of W, for it cannot know what they have heard."""
    low = ((3,), (3,))
    saved = SavedJob(PLAN, (low, low), KeptDecision(4, 2, (GROUND, GROUND), ()))
    coordinator = Coordinator(0.0, saved, settings(awaited=[0, 1]))
    write(coordinator)
    for worker in range(2):
        coordinator.hear(join(worker, 3, 4, True, durable=xis(3)), 0.0)
    effects = coordinator.take()
    return coordinator.phase, [
        len(effect.message.changed)
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, Watermarks)
    ]


rule(
    "W told again",
    "durable Ξ, and W, are announced again",
    of_a_new_monitor,
    (JobPhase.RUNNING, [4, 4]),
    Change(
        Coordinator,
        "_assemble",
        "self._effects.append(...)",
        GONE,
    ),
)


# ---------------------------------------------------------------------------------- a worker that pauses


def late_cuts() -> Any:
    """A cut that was announced in an earlier generation, one that comes while links are drained, and one before that."""
    agent = agent_of(job("tight", 2), 0)
    generation = agent.worker.generation
    agent.hear(Cut(generation - 1, 0, (100,)))
    found = [len(agent._due)]
    agent.hear(Cut(generation, 0, (100,)))
    agent.hear(Drain(agent.round + 1, (0, 1)))
    found.append(len(agent._due))
    agent.hear(Cut(generation, 0, (100,)))
    return *found, len(agent._due), len(agent._waiting)


CUTS = "checkpoints fall between activations, of this generation, and not while links are drained"
for _name, _old in {
    "cuts of an old generation": "message.generation == self.worker.generation",
    "cuts while links are drained": "self.phase == WorkerPhase.RUNNING",
}.items():
    rule(_name, CUTS, late_cuts, (0, 0, 0, 0), Change(Agent, "hear", _old, GONE))
rule("cuts before", CUTS, late_cuts, (0, 0, 0, 0), Change(Agent, "_pause", "self._due.clear()", GONE))


def saved_and_drained() -> Any:
    """A worker pauses in the midst of a cut: what it says, before that is durable and then."""
    agent = agent_of(job("logs", 1), 0)
    p = named(agent, "third")
    assert agent._completed is not None
    group = agent.layout.processors[p].group
    agent.hear(Cut(agent.worker.generation, group, agent._completed[group]))
    agent.save()
    begun = agent.saving
    agent.hear(Drain(agent.round + 1, (0,)))
    found = [len(agent.messages)]
    sealed = agent.seal()
    assert sealed is not None
    found.append(len(agent.messages))
    agent.stored(sealed[0])
    return begun, *found, [type(message).__name__ for message in agent.messages]


for _name, _changes in {
    "drained when it is durable": (
        Change(
            Agent,
            "_settle",
            "self.phase != WorkerPhase.DRAINING or self.waits_for_store() or self.journal.gathered",
            "self.phase != WorkerPhase.DRAINING",
        ),
    ),
    "what was begun is ended": (Change(Agent, "_pause", "self.save(at_once=True)", GONE),),
}.items():
    rule(
        _name,
        "Ξ is announced only after Ξ, S and L are durable, and Ξ(p, ⊤) after all that was announced",
        saved_and_drained,
        (True, 0, 0, ["Durable", "Drained"]),
        *_changes,
    )


def held_here() -> Any:
    """A worker, or another one, holds a capability at a processor: what is complete there, and in its group."""
    agent = agent_of(job("ordered", 2), 0)
    p = named(agent, "first")
    place = agent._plan.processors[p].place
    assert place is not None
    agent._settled = [info.nothing for info in agent.layout.processors]
    agent._completed = None
    agent.worker.tracker.update(place, (2,), +1)
    group = GroupProgress(agent._plan, agent.layout, agent.layout.processors[p].group)
    return agent._upto(p)[0] <= 2, agent._complete(group, [])[0] <= 2


HELD = "f is complete when no held capability in f can still be there"
for _name, _change in {
    "held capabilities": Change(Agent, "_upto", "times += tracker.leaving(runtime.processor.place)", GONE),
    "held capabilities in a group": Change(GroupProgress, "__init__", "places[processor.place, None] = None", GONE),
}.items():
    rule(_name, HELD, held_here, (True, True), _change)


def told_again() -> Any:
    """A new monitor comes while old work of another group waits here: what the worker has completed, and tells it at once."""
    agent = agent_of(job("logs", 1), 0)
    third = named(agent, "third")
    other = agent.worker.runtimes[named(agent, "first")]
    before = agent._upto(third)
    assert any(before)
    agent.worker._ready.append(((0,), 0, other.processor.index, (0,)))
    agent.join()
    agent.turn(quiet=False, now=1e-6)
    told = [message.upto for message in agent.messages if isinstance(message, Completed)]
    return agent._upto(third) >= before, told == [agent._completed]


rule(
    "what was complete stays complete",
    "a living worker does not say less to a new monitor than it did: it would be given up for that",
    told_again,
    (True, True),
    Change(Agent, "join", "self._reported_at = float('-inf')", "self._completed = None"),
)


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_the_scenario_comes_out_otherwise(name: str) -> None:
    RULES[name].check()


# ---------------------------------------------------------------------------------- what a worker says


def test_a_checkpoint_that_is_asked_for_again_is_still_offered_to_a_new_monitor() -> None:
    """A cut within an epoch lists checkpoints outside the loop that the next cut, at the end of the epoch, lists once more."""
    agent = agent_of(job("long_loop", 2, far=1), 0)
    (group,) = {agent.layout.processors[named(agent, name)].group for name in ("in", "down-leave")}
    before = agent.checkpoints.durable()
    last = max(xi.bound for xi in before if xi.processor == named(agent, "down-leave"))
    agent.hear(Cut(agent.worker.generation, group, last))
    agent.save(at_once=True)
    assert agent.waits_for_store()
    assert agent.checkpoints.durable() == before


def test_a_worker_that_has_been_busy_ever_since_a_rollback_says_that_it_is_alive() -> None:
    agent = agent_of(job("tight", 2), 0)
    agent._completed = None
    agent.turn(quiet=False, now=1e6)
    (message,) = agent.messages
    assert isinstance(message, Completed)
    assert set(message.upto) == {(0,)}
