"""The coordinator: deadlines, fences, earlier generations and incarnations, and what W waits for.

Each rule has a scenario made for it that comes out otherwise without the rule.
"""

from __future__ import annotations

from typing import Any

import pytest

import monitor.coordination.handshake
import monitor.coordination.options
from monitor.coordination.coordinator import Coordinator, Settings
from monitor.coordination.effects import Send
from monitor.coordination.events import Ticked
from monitor.coordination.options import Options
from monitor.coordination.records import KeptDecision, SavedJob
from monitor.coordination.supervision import Fence, Lost, Respawn
from monitor.coordination.workers import JobPhase, Presence, WorkerStatus
from recovery.fixed_point.solve import LIVE
from recovery.metadata import NEVER
from recovery.place import Place, places
from recovery.protocol import (
    Completed,
    Decision,
    Drain,
    Drained,
    Durable,
    Join,
    Released,
    Restored,
    Watermarks,
)
from tests.monitor.coordination.coordinators import GROUND, PLAN, join, memory, respawned, running, settings, write, xis
from tests.monitor.coordination.driven import DrivenCoordinator
from tests.recovery.jobs import agent_of, job
from tests.recovery.layouts import LINE, layout
from tests.support.mutation import GONE, Change, Rules

RULES = Rules()
rule = RULES.add
CUT = "after a decision F*' = {f' ⊆ f(p)}: what lies outside belongs to a history that is no more"


def of_earlier_generations() -> Any:
    """In the third generation, messages of the first arrive that were long under way."""
    coordinator = running()
    late = [
        Completed(Place(0), 1, ((9,),)),
        Durable(Place(1), 1, 0, (3,), xis(3)),
        Restored(Place(1), 1),
        Drained(Place(1), 1, memory()),
    ]
    found: list[Any] = []
    respawned(coordinator, 2)
    write(coordinator)
    for message in late:
        coordinator.hear(message, 1.0)
    found += [status.restored for status in coordinator.workers]
    for worker in range(2):
        coordinator.hear(Restored(Place(worker), 2), 1.0)
    coordinator.lost(0, 2, 1.0, "killed")
    for message in late:
        coordinator.hear(message, 1.0)
    found += [status.memory is None for status in coordinator.workers]
    return *found, list(coordinator.options.upto), [len(chain) for chain in coordinator.options.chains]


EARLIER = "journal records and messages carry the generation: what comes from an older one is dropped"
for _name, _change in {
    "completed in an old generation": Change(
        Coordinator, "_on_completed", "message.generation == self.generation", GONE
    ),
    "durable in an old generation": Change(Coordinator, "_on_durable", "message.generation != self.generation", GONE),
    "restored in an old generation": Change(Coordinator, "_on_restored", "message.generation != self.generation", GONE),
    "drained in an old round": Change(Coordinator, "_on_drained", "message.round == self.round", GONE),
}.items():
    rule(
        _name,
        EARLIER,
        of_earlier_generations,
        (False, False, True, True, [None, None], [0, 0, 0, 0]),
        _change,
    )


def released_before() -> Any:
    """A worker said that it is done for good, then the other failed; only what is said after the round counts."""
    coordinator = running()
    for worker in range(2):
        coordinator.hear(Completed(Place(worker), 1, ((NEVER,),)), 1.0)
        coordinator.hear(Durable(Place(worker), 1, 0, (NEVER,), xis(NEVER)), 1.0)
    write(coordinator)
    coordinator.hear(Released(Place(1)), 1.0)
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.hear(Released(Place(1)), 1.0)
    coordinator.hear(join(0, 2, 1, durable=xis(NEVER)), 1.0)
    coordinator.hear(Drained(Place(1), 2, memory(NEVER)), 1.0)
    write(coordinator)
    coordinator.hear(Released(Place(1)), 1.0)
    for worker in range(2):
        coordinator.hear(Restored(Place(worker), 2), 1.0)
    coordinator.hear(Released(Place(0)), 1.0)
    early = coordinator.phase
    coordinator.hear(Released(Place(1)), 1.0)
    return early, coordinator.phase


for _name, _change in {
    "released in this generation": Change(
        Coordinator, "_decide_for", "status.restored = status.released = False", "status.restored = False"
    ),
    "released after it was restored": Change(Coordinator, "_on_released", "not status.restored", "False"),
}.items():
    rule(_name, EARLIER, released_before, (JobPhase.RUNNING, JobPhase.CLOSING), _change)


def of_earlier_incarnations() -> Any:
    """Processes that were given up say something, join again, or are said to be lost."""
    coordinator = running()
    found = []
    respawned(coordinator, 2)
    write(coordinator)
    for worker in range(2):
        coordinator.hear(Restored(Place(worker), 2), 1.0, 2 - worker)
    coordinator.take()
    coordinator.hear(Completed(Place(0), 2, ((3,),)), 1.0, 1)
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.hear(join(0, 1, 2), 1.0)
    found.append((coordinator.phase, coordinator.options.upto[0], coordinator.workers[Place(0)].presence))
    coordinator.lost(0, 2, 2.0, "killed")
    coordinator.take()
    coordinator.hear(Completed(Place(0), 2, ((3,),)), 2.0, 2)
    coordinator.hear(join(0, 2, 2), 2.0)
    found.append((coordinator.phase, coordinator.options.upto[0], coordinator.workers[Place(0)].presence))
    found.append((coordinator.phase, coordinator.workers[Place(0)].presence, coordinator.workers[Place(0)].failures))
    coordinator.lost(0, 2, 2.0, "killed")
    found.append((coordinator.phase, coordinator.workers[Place(0)].presence, coordinator.workers[Place(0)].failures))
    coordinator.hear(join(0, 4, 2, True), 2.0)
    fences = [effect.incarnation for effect in coordinator.take() if isinstance(effect, Fence)]
    return found, fences, coordinator.workers[Place(0)].presence


INCARNATIONS = "writes and words of fenced incarnations are refused"
for _name, _change in {
    "said by an old incarnation": Change(WorkerStatus, "counts", "incarnation in (None, self.incarnation)", GONE),
    "said by who was given up": Change(WorkerStatus, "counts", "self.presence is Presence.ALIVE", GONE),
    "an old incarnation is lost": Change(Coordinator, "_on_lost", "self.workers[place].has_lost(...)", GONE),
    "an old incarnation joins": Change(Coordinator, "_on_join", "status.has_lost(...)", "False"),
    "an old incarnation": Change(WorkerStatus, "has_lost", "incarnation < self.incarnation", GONE),
    "who was given up": Change(
        WorkerStatus, "has_lost", "incarnation == self.incarnation and self.presence is Presence.ABSENT", GONE
    ),
    "memory of one who was given up": Change(
        Coordinator, "_on_join", "with_memory and status.presence is not Presence.AWAITED", "False"
    ),
}.items():
    rule(
        _name,
        INCARNATIONS,
        of_earlier_incarnations,
        (
            [
                (JobPhase.RUNNING, None, Presence.ALIVE),
                (JobPhase.GATHERING, None, Presence.ABSENT),
                (JobPhase.GATHERING, Presence.ABSENT, 2),
                (JobPhase.GATHERING, Presence.ABSENT, 2),
            ],
            [4],
            Presence.ABSENT,
        ),
        _change,
    )


def replaced() -> Any:
    """A process joins in the place of one that counts: that is a failure, and no other process is asked for."""
    coordinator = running()
    coordinator.hear(join(0, 2, 1), 1.0)
    effects = coordinator.take()
    pauses = [
        effect.place.worker for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Drain)
    ]
    return coordinator.workers[Place(0)].presence, pauses, any(isinstance(effect, Respawn) for effect in effects)


rule(
    "another process took its place",
    "two quick restarts in a row",
    replaced,
    (Presence.JOINED, [1], False),
    Change(
        Coordinator,
        "_on_join",
        "self._lose(...)",
        GONE,
    ),
)


def behind_a_decision() -> Any:
    """A new monitor finds a living worker that has not heard of the last decision, with checkpoints that it made void."""
    saved = SavedJob(PLAN, None, KeptDecision(4, 2, (((3,), (3,)), GROUND), ()))
    coordinator = DrivenCoordinator(PLAN, saved, settings(awaited=places(2)))
    coordinator.hear(join(0, 1, 2, True, durable=(*xis(3), *xis(5)), paused=True), 0.0)
    return [[option[0][0] for option in chain] for chain in coordinator.options.chains[::2]]


for _name, _change in {
    "checkpoints of one who is behind": Change(
        Coordinator,
        "_on_join",
        "self.options.cut_worker(...)",
        GONE,
    ),
    "of one who is behind, outside": Change(Options, "cut_worker", "within(option[0], bound)", GONE),
}.items():
    rule(_name, CUT, behind_a_decision, [[3], [3]], _change)


def deadlines() -> Any:
    """True if a worker is fenced that does not drain its links, or is silent, or never joins."""
    found = []
    world = job("tight", 2)
    assert world._monitor is not None
    world._monitor.step(world.now, Lost(Place(1), agent_of(world, 1).incarnation, "killed"))
    effects = world._monitor.step(world.now + 100, Ticked())
    found.append({effect.place.worker for effect in effects if isinstance(effect, Fence)})
    alone = job("tight", 1)._monitor
    assert alone is not None
    effects = alone.step(1_000, Ticked())
    found.append({effect.place.worker for effect in effects if isinstance(effect, Fence)})
    return found


DEADLINES = "every step has a deadline: a worker that misses it is fenced; a drain never waits for ever"
for _name, _change in {
    "deadlines": Change(WorkerStatus, "overdue", "self.due is not None and now >= self.due", "False"),
    "silence": Change(WorkerStatus, "overdue", "silence is not None", "False"),
    "fence": Change(Coordinator, "_suspect", "self._effects.append(...)", GONE),
}.items():
    rule(_name, DEADLINES, deadlines, [{0, 1}, {0}], _change)


def rescaled() -> Any:
    join = Join(Place(0), 1, 0, False, layout(*LINE, 2), ())
    return "start all with the same number" in str(monitor.coordination.handshake.refusal(join, layout(*LINE, 3), None))


rule(
    "rescaling",
    "rescaling only from a savepoint: not built, and refused",
    rescaled,
    True,
    Change(monitor.coordination.handshake, "refusal", "join.layout.workers != layout.workers", "False"),
)


def behind() -> Any:
    """A new monitor finds a living worker that has not heard of the last decision."""
    plan = layout(*LINE, 1)
    kept = KeptDecision(5, 3, ((LIVE,) * 4,), ())
    coordinator = DrivenCoordinator(plan, SavedJob(plan, None, kept), Settings(awaited=places(1)))
    coordinator.hear(Join(Place(0), 1, 3, True, plan, ()), 0.1)
    sent = [effect.message for effect in coordinator.take() if isinstance(effect, Send)]
    return [(message.generation, message.catch_up) for message in sent if isinstance(message, Decision)]


rule(
    "behind",
    "after a monitor crash every live processor first applies the last decision",
    behind,
    [(5, False)],
    Change(Coordinator, "_on_join", "self._decide_for(...)", GONE),
)


def missed() -> Any:
    """Of each step, who is given up when nothing happens for long; each has longer than the one before, and none too long."""
    limits = {"join_seconds": 50.0, "pause_seconds": 60.0, "restore_seconds": 70.0, "heartbeat_seconds": 10_000.0}
    found: list[list[int]] = []

    def late(coordinator: DrivenCoordinator, seconds: float) -> None:
        coordinator.take()
        coordinator.tick(1.0 + seconds - 0.5)
        assert not any(isinstance(effect, Fence) for effect in coordinator.take())
        coordinator.tick(1.0 + seconds + 0.5)
        found.append([effect.place.worker for effect in coordinator.take() if isinstance(effect, Fence)])

    coordinator = DrivenCoordinator(PLAN, None, settings(**limits), 1.0)
    late(coordinator, 50.0)  # the first process joins
    coordinator = running(**limits)
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.hear(Drained(Place(1), 2, memory()), 1.0)
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
    coordinator = DrivenCoordinator(PLAN, saved, settings(awaited=places(1), **limits), 1.0)
    coordinator.hear(join(0, 1, 2), 31.0)
    coordinator.hear(join(1, 1, 4), 31.0)
    late(coordinator, 80.0)  # who is behind notes the decision
    return found


DEADLINE = "every step has a deadline: a worker that misses it is fenced and counted as failed"
for _name, _change in {
    "deadline of the first processes": Change(Coordinator, "_on_began", "status.must(...)", GONE),
    "deadline of a replacement": Change(Coordinator, "_lose", "status.must(...)", GONE),
    "deadline of draining": Change(Coordinator, "_begin", "status.must(...)", GONE),
    "deadline of restoring": Change(
        Coordinator,
        "_decide_for",
        "status.must(...)",
        GONE,
    ),
    "deadline of catching up": Change(
        Coordinator,
        "_catch_up",
        "status.must(...)",
        GONE,
    ),
    "deadlines are looked at": Change(Coordinator, "_on_ticked", "self._suspect(...)", GONE),
}.items():
    rule(_name, DEADLINE, missed, [[0, 1], [0], [1], [0, 1], [0]], _change)


def in_time() -> Any:
    """Nobody is given up who has done what he was told, however long the others take."""
    limits = {"join_seconds": 5.0, "pause_seconds": 5.0, "restore_seconds": 5.0, "heartbeat_seconds": 10_000.0}
    coordinator = running(**limits)
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.hear(join(0, 2, 1), 5.5)
    coordinator.hear(Drained(Place(1), 2, memory()), 5.5)
    coordinator.take()
    coordinator.tick(50.0)
    waiting = [effect for effect in coordinator.take() if isinstance(effect, Fence)]
    coordinator = running(**limits)
    coordinator.tick(50.0)
    return waiting, [effect for effect in coordinator.take() if isinstance(effect, Fence)], coordinator.phase


for _name, _change in {
    "who has joined is in time": Change(Coordinator, "_on_join", "status.due = None", GONE),
    "who has drained is in time": Change(Coordinator, "_on_drained", "status.due = None", GONE),
    "who has restored is in time": Change(Coordinator, "_on_restored", "status.due = None", GONE),
}.items():
    rule(_name, DEADLINE, in_time, ([], [], JobPhase.RUNNING), _change)


def too_early() -> Any:
    """A cut becomes durable while others still restore; W waits until all are there."""
    coordinator = running()
    respawned(coordinator, 2)
    write(coordinator)
    coordinator.hear(Restored(Place(1), 2), 1.0)
    for worker in range(2):
        coordinator.hear(Durable(Place(worker), 2, 0, (3,), xis(3)), 1.0)
    early = coordinator.options.watermarks
    coordinator.hear(Restored(Place(0), 2), 1.0)
    return early, coordinator.options.watermarks


rule(
    "W when all are there",
    "W is the answer when nobody is alive: what it rests on must surely be there",
    too_early,
    ((((0,), (0,)),) * 2, (((3,), (3,)),) * 2),
    Change(Coordinator, "_raise_watermarks", "self.phase is not JobPhase.RUNNING", "False"),
)


def of_a_new_monitor() -> Any:
    """Workers go on under a new monitor, which tells all of W, for it cannot know what they have heard."""
    low = ((3,), (3,))
    saved = SavedJob(PLAN, (low, low), KeptDecision(4, 2, (GROUND, GROUND), ()))
    coordinator = DrivenCoordinator(PLAN, saved, settings(awaited=places(2)))
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


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_the_scenario_comes_out_otherwise(name: str) -> None:
    RULES[name].check()
