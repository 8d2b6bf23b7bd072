"""Rules of rollback: who counts in a round, and what a decision leaves of reports. The table is in `test_rules.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from monitor.coordination.coordinator import Coordinator
from monitor.coordination.effects import Fence, Respawn, Send
from monitor.coordination.options import Options
from monitor.coordination.phase import JobPhase
from monitor.coordination.records import KeptDecision, SavedJob
from monitor.coordination.workers import Presence
from recovery.errors import ReportError
from recovery.metadata import NEVER, Xi
from recovery.protocol import (
    LIVE,
    Completed,
    Drain,
    Drained,
    Durable,
    Released,
    Restored,
)
from tests.monitor.coordination.coordinators import GROUND, PLAN, join, memory, respawned, running, settings, write, xis
from tests.recovery.layouts import layout
from tests.support.mutation import GONE, Change, Rule

RULES: dict[str, Rule] = {}


def rule(name: str, says: str, scenario: Callable[[], Any], right: Any, *changes: Change) -> None:
    RULES[name] = Rule(says, scenario, right, changes)


# ---------------------------------------------------------------------------------- earlier generations


def of_earlier_generations() -> Any:
    """In the third generation, messages of the first arrive that were long under way."""
    coordinator = running()
    late = [Completed(0, 1, ((9,),)), Durable(1, 1, 0, (3,), xis(3)), Restored(1, 1), Drained(1, 1, memory())]
    found: list[Any] = []
    respawned(coordinator, 2)
    write(coordinator)
    for message in late:
        coordinator.hear(message, 1.0)
    found += [seat.restored for seat in coordinator.seats]
    for worker in range(2):
        coordinator.hear(Restored(worker, 2), 1.0)
    coordinator.lost(0, 2, 1.0, "killed")
    for message in late:
        coordinator.hear(message, 1.0)
    found += [seat.memory is None for seat in coordinator.seats]
    return *found, list(coordinator._available.upto), [len(chain) for chain in coordinator._available.chains]


EARLIER = "journal records and messages carry the generation: what comes from an older one is dropped"
for _name, _change in {
    "completed in an old generation": Change(
        Coordinator, "_on_completed", "message.generation == self.generation", GONE
    ),
    "durable in an old generation": Change(Coordinator, "_on_durable", "message.generation != self.generation", GONE),
    "restored in an old generation": Change(Coordinator, "_on_restored", "message.generation != self.generation", GONE),
    "drained in an old round": Change(Coordinator, "_on_drained", "message.round == self._rounds.last", GONE),
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
        coordinator.hear(Completed(worker, 1, ((NEVER,),)), 1.0)
        coordinator.hear(Durable(worker, 1, 0, (NEVER,), xis(NEVER)), 1.0)
    write(coordinator)
    coordinator.hear(Released(1), 1.0)
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.hear(Released(1), 1.0)
    coordinator.hear(join(0, 2, 1, durable=xis(NEVER)), 1.0)
    coordinator.hear(Drained(1, 2, memory(NEVER)), 1.0)
    write(coordinator)
    for worker in range(2):
        coordinator.hear(Restored(worker, 2), 1.0)
    coordinator.hear(Released(0), 1.0)
    early = coordinator.phase
    coordinator.hear(Released(1), 1.0)
    return early, coordinator.phase


for _name, _changes in {
    "released in this generation": (
        Change(Coordinator, "_begin", "seat.released = False", GONE),
        Change(Coordinator, "_decide_for", "seat.restored = seat.released = False", "seat.restored = False"),
    ),
    "released after it was restored": (
        Change(
            Coordinator,
            "_on_released",
            "self.phase not in ... or not seat.restored",
            "False",
        ),
        Change(Coordinator, "_decide_for", "seat.restored = seat.released = False", "seat.restored = False"),
    ),
}.items():
    rule(_name, EARLIER, released_before, (JobPhase.RUNNING, JobPhase.CLOSING), *_changes)


# ---------------------------------------------------------------------------------- earlier incarnations


def of_earlier_incarnations() -> Any:
    """Processes that were given up say something, join again, or are said to be lost."""
    coordinator = running()
    found = []
    respawned(coordinator, 2)
    write(coordinator)
    for worker in range(2):
        coordinator.hear(Restored(worker, 2), 1.0, 2 - worker)
    coordinator.take()
    coordinator.hear(Completed(0, 2, ((3,),)), 1.0, 1)
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.hear(join(0, 1, 2), 1.0)
    found.append((coordinator.phase, coordinator._available.upto[0], coordinator.seats[0].presence))
    coordinator.lost(0, 2, 2.0, "killed")
    coordinator.take()
    coordinator.hear(Completed(0, 2, ((3,),)), 2.0, 2)
    coordinator.hear(join(0, 2, 2), 2.0)
    found.append((coordinator.phase, coordinator._available.upto[0], coordinator.seats[0].presence))
    found.append((coordinator.phase, coordinator.seats[0].presence, coordinator.seats[0].failures))
    coordinator.lost(0, 2, 2.0, "killed")
    found.append((coordinator.phase, coordinator.seats[0].presence, coordinator.seats[0].failures))
    coordinator.hear(join(0, 4, 2, True), 2.0)
    fences = [effect.incarnation for effect in coordinator.take() if isinstance(effect, Fence)]
    return found, fences, coordinator.seats[0].presence


INCARNATIONS = "writes and words of fenced incarnations are refused"
for _name, _change in {
    "said by an old incarnation": Change(Coordinator, "hear", "incarnation in (None, seat.incarnation)", GONE),
    "said by who was given up": Change(Coordinator, "hear", "seat.presence is Presence.ALIVE", GONE),
    "an old incarnation is lost": Change(Coordinator, "lost", "incarnation < seat.incarnation", GONE),
    "lost once": Change(
        Coordinator, "lost", "incarnation == seat.incarnation and seat.presence is Presence.ABSENT", GONE
    ),
    "an old incarnation joins": Change(Coordinator, "_on_join", "join.incarnation < known", GONE),
    "who was given up joins": Change(
        Coordinator, "_on_join", "join.incarnation == known and seat.presence is Presence.ABSENT", GONE
    ),
    "memory of one who was given up": Change(
        Coordinator, "_on_join", "with_memory and seat.presence is not Presence.AWAITED", "False"
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
    pauses = [effect.worker for effect in effects if isinstance(effect, Send) and isinstance(effect.message, Drain)]
    return coordinator.seats[0].presence, pauses, any(isinstance(effect, Respawn) for effect in effects)


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


# ---------------------------------------------------------------------------------- F*' = {f' within f(p)}


def after_a_decision() -> Any:
    """Checkpoints at 3 and 5, all completed up to 8; the decision: a to 3, b and q stay, c to 5."""
    available = Options(layout("a source, q any, b chain, c chain", "a|q, q|b, b|c", 1))
    available.complete(0, ((8,), (8,), (8,), (8,)))
    for group, p in ((0, 0), (2, 2), (3, 3)):
        for epoch in (3, 5):
            discards = () if p == 3 else ((0,),)
            available.durable(0, group, (epoch,), [Xi(p, (epoch,), discards)])
    available.raise_watermarks()
    available = Options(available.layout)  # W is what it was at the start
    for group, p in ((0, 0), (2, 2), (3, 3)):
        for epoch in (3, 5):
            available.durable(0, group, (epoch,), [Xi(p, (epoch,), () if p == 3 else ((0,),))])
    available.complete(0, ((8,), (8,), (8,), (8,)))
    available.cut((((3,), LIVE, LIVE, (4,)),))
    known = [[option[0][0] for option in chain] for chain in available.chains]
    minimum = available.minimum()
    available.raise_watermarks()
    low = available.watermarks[0]
    available.complete(0, ((4,), (4,), (4,), (4,)))
    available.raise_watermarks()
    return known, minimum, low, available.watermarks[0]


CUT = "after a decision F*' = {f' ⊆ f(p)}: what lies outside belongs to a history that is no more"
for _name, _change in {
    "checkpoints outside a decision": Change(Options, "cut", "option[0] <= bound", GONE),
    "checkpoints of what stayed": Change(Options, "cut", "bound is not None", "(bound := (bound or (3,)))"),
    "epochs of an old generation": Change(Options, "cut", "self.upto = [None] * self.layout.workers", GONE),
    "completed in an old history": Change(Options, "cut", "self._cut_completed(...)", GONE),
}.items():
    rule(
        _name,
        CUT,
        after_a_decision,
        ([[3], [], [3, 5], [3]], [(0,)] * 4, ((3,), (0,), (0,), (0,)), ((3,), (3,), (3,), (3,))),
        _change,
    )


def solved_before() -> Any:
    """W was being kept up to date when a decision made void what it may rise to next."""
    available = Options(layout("a source, b chain", "a|b", 1))
    available.durable(0, 0, (5,), [Xi(0, (5,), ((0,),))])
    available.durable(0, 1, (3,), [Xi(1, (3,), ())])
    available.raise_watermarks()
    available.durable(0, 1, (7,), [Xi(1, (7,), ())])
    available.raise_watermarks()
    available.cut((((5,), (3,)),))
    available.durable(0, 0, (9,), [Xi(0, (9,), ((0,),))])
    available.raise_watermarks()
    return available.watermarks


rule(
    "W after a decision",
    CUT,
    solved_before,
    (((9,), (3,)),),
    Change(Options, "cut", "self._solver = None", GONE),
)


def behind_a_decision() -> Any:
    """A new monitor finds a living worker that has not heard of the last decision, with checkpoints that it made void."""
    saved = SavedJob(PLAN, None, KeptDecision(4, 2, (((3,), (3,)), GROUND), ()))
    coordinator = Coordinator(0.0, saved, settings(awaited=[0, 1]))
    coordinator.hear(join(0, 1, 2, True, durable=(*xis(3), *xis(5)), paused=True), 0.0)
    return [[option[0][0] for option in chain] for chain in coordinator._available.chains[::2]]


for _name, _change in {
    "checkpoints of one who is behind": Change(
        Coordinator,
        "_on_join",
        "available.cut_worker(...)",
        GONE,
    ),
    "of one who is behind, outside": Change(Options, "cut_worker", "option[0] <= bound", GONE),
}.items():
    rule(_name, CUT, behind_a_decision, [[3], [3]], _change)


def told_twice() -> Any:
    """Two checkpoints of one processor at one bound, with different D̄: which of them is the right one?"""
    available = Options(layout("a source, b chain", "a>b", 1))
    try:
        available.join(0, [Xi(0, (3,), ((3,),)), Xi(0, (3,), ((4,),))])
    except ReportError:
        return "refused"
    return "believed"


rule(
    "told twice",
    "Ξ(p, f) is one: reject a report that is not",
    told_twice,
    "refused",
    Change(Options, "_read", "chain[-1][0] == xi.bound", GONE),
)


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_the_scenario_comes_out_otherwise(name: str) -> None:
    RULES[name].check()
