"""Copies of workers as the coordinator knows them: asked for, listed, drained, lost and replaced at their places.

What a copy holds counts nowhere yet: no option, no W, no output rests on it. So a round decides the same without it.
"""

from __future__ import annotations

from typing import Any

import pytest

from monitor.coordination.effects import Effect, Fail, Persist, Send
from monitor.coordination.events import Restarting
from monitor.coordination.records import KeptDecision, SavedJob
from monitor.coordination.supervision import Fence, Lost, Respawn, TimelineEvent
from monitor.coordination.workers import JobPhase, Presence, WorkerTable
from recovery.metadata import NEVER
from recovery.place import Place, places
from recovery.protocol import (
    LIVE,
    Completed,
    Cut,
    Decision,
    Drain,
    Drained,
    Durable,
    Join,
    Refused,
    Released,
    Restored,
    ToMonitor,
    Watermarks,
)
from tests.monitor.coordination.coordinators import (
    PLAN,
    checkpoint,
    join,
    memory,
    running,
    settings,
    without_events,
    write,
    write_all,
    xis,
)
from tests.monitor.coordination.driven import DrivenCoordinator

ALL = places(2, copies=2)
COPY = Place(0, 1)


def joins(place: Place, incarnation: int, generation: int = 0, alive: bool = False) -> Join:
    return Join(place, incarnation, generation, alive, PLAN, ())


def followed(**values: Any) -> DrivenCoordinator:
    """A running job of two workers, each with a copy that has memory: taken up by a new monitor, as it was.

    Incarnations are 1 to 4, in the order of places.
    """
    saved = SavedJob(PLAN, None, KeptDecision(3, 0, ((LIVE, LIVE),) * 2, ()), rounds=3)
    coordinator = DrivenCoordinator(PLAN, saved, settings(copies=2, awaited=ALL, **values))
    write_all(coordinator)
    for incarnation, place in enumerate(ALL, start=1):
        assert coordinator.phase is JobPhase.ASSEMBLING
        coordinator.hear(joins(place, incarnation, 3, alive=True), 1.0)
    write_all(coordinator)
    assert coordinator.phase is JobPhase.RUNNING
    return coordinator


def sent(effects: list[Effect], kind: type) -> list[tuple[Place, Any]]:
    return [(each.place, each.message) for each in effects if isinstance(each, Send) and isinstance(each.message, kind)]


def test_a_table_has_a_process_at_each_place_those_at_work_first() -> None:
    table = WorkerTable(ALL, (Place(1), COPY), 0.0)
    assert [status.place for status in table] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert [status.place for status in table.at_work()] == [(0, 0), (1, 0)]
    table[Place(0)].presence = table[Place(1)].presence = Presence.ALIVE
    assert table.are(Presence.ALIVE), "copies are waited for nowhere"
    assert [status.takes_part for status in table] == [True, True, False, False]
    table[COPY].presence = Presence.ALIVE
    assert [status.place for status in table.alive()] == [(0, 0), (1, 0), (0, 1)]
    assert table[COPY].takes_part


def test_a_start_asks_for_a_process_at_each_place_and_waits_for_those_at_work() -> None:
    coordinator = DrivenCoordinator(PLAN, None, settings(copies=2))
    *asked, persist = without_events(coordinator)
    assert asked == [Respawn(place) for place in ALL]
    assert isinstance(persist, Persist)
    coordinator.stored(persist.ticket)
    coordinator.hear(joins(COPY, 3), 1.0)
    assert coordinator.workers[COPY].presence is Presence.JOINED
    for worker in range(2):
        coordinator.hear(join(worker), 1.0)
    decided = next(each for each in write(coordinator).records if isinstance(each, KeptDecision))
    assert decided.failed == (0, 1)
    assert [place for place, _ in sent(coordinator.take(), Decision)] == list(places(2))
    for worker in range(2):
        coordinator.hear(Restored(Place(worker), 1), 2.0)
    assert coordinator.phase is JobPhase.RUNNING
    coordinator.hear(joins(Place(1, 1), 4), 3.0)
    assert coordinator.workers[Place(1, 1)].presence is Presence.JOINED
    assert (coordinator.phase, without_events(coordinator)) == (JobPhase.RUNNING, [])


def test_a_copy_has_no_journal_whose_decisions_it_could_lack() -> None:
    coordinator = running(copies=2)
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.hear(join(0, 5, 1), 1.0)
    coordinator.hear(Drained(Place(1), 2, memory()), 1.0)
    write_all(coordinator)
    assert coordinator.generation == 2
    for place in (COPY, Place(1, 1)):
        coordinator.hear(joins(place, 6), 1.0)
        assert coordinator.workers[place].presence is Presence.JOINED
    assert not any(isinstance(effect, Fail) for effect in coordinator.take())


def test_a_copy_beyond_those_of_the_job_is_refused() -> None:
    for coordinator, place, text in (
        (running(), COPY, "there is no copy 1 of worker 0: the job has 2, with 1 processes each"),
        (running(copies=2), Place(1, 2), "there is no copy 2 of worker 1: the job has 2, with 2 processes each"),
        (running(copies=2), Place(2, 1), "there is no copy 1 of worker 2: the job has 2, with 2 processes each"),
    ):
        coordinator.hear(joins(place, 9), 1.0)
        assert without_events(coordinator) == [Send(place, Refused(text))]


def test_a_monitor_waits_for_copies_that_may_have_memory_and_takes_the_job_up_with_them() -> None:
    coordinator = followed()
    assert {status.presence for status in coordinator.workers} == {Presence.ALIVE}
    assert [status.incarnation for status in coordinator.workers] == [1, 2, 3, 4]


def test_a_round_drains_copies_too_and_decides_without_what_they_hold() -> None:
    coordinator = followed()
    coordinator.lost(1, 2, 2.0, "killed")
    effects = coordinator.take()
    there = (Place(0), Place(0, 1), Place(1, 1))
    assert [each for each in effects if isinstance(each, Respawn)] == [Respawn(Place(1))]
    assert sent(effects, Drain) == [(place, Drain(4, there)) for place in there]
    (begun,) = [each for each in effects if isinstance(each, TimelineEvent) and each.kind == "round"]
    assert begun.data == {"round": 4, "alive": [0], "copies": [[0, 1], [1, 1]]}
    coordinator.hear(join(1, 5, 3), 3.0)
    coordinator.hear(Drained(Place(0), 4, memory(5)), 3.0)
    coordinator.hear(Drained(Place(0, 1), 4, memory(9)), 3.0)
    assert coordinator.phase is JobPhase.GATHERING, "its end markers may still be on their way to the last copy"
    coordinator.hear(Drained(Place(1, 1), 4, memory(9)), 3.0)
    decided = next(each for each in write(coordinator).records if isinstance(each, KeptDecision))
    assert decided.failed == (1,)
    assert [place for place, _ in sent(coordinator.take(), Decision)] == list(ALL)
    for place in ALL[:3]:
        coordinator.hear(Restored(place, 4), 4.0)
    assert coordinator.phase is JobPhase.RESTORING
    coordinator.hear(Restored(Place(1, 1), 4), 4.0)
    assert coordinator.phase is JobPhase.RUNNING


def test_the_loss_of_a_copy_takes_nothing_back_and_another_is_asked_for() -> None:
    coordinator = followed()
    coordinator.happens(Lost(COPY, 3, "killed"), 2.0)
    effects = coordinator.take()
    assert [each for each in effects if isinstance(each, Respawn)] == [Respawn(COPY)]
    assert sent(effects, Drain) == []
    (failure,) = [each for each in effects if isinstance(each, TimelineEvent) and each.kind == "failure"]
    assert failure.data == {"worker": 0, "copy": 1, "incarnation": 3, "reason": "killed", "output": ""}
    assert (coordinator.phase, coordinator.judge.verdict(True, 2.0).state) == (JobPhase.RUNNING, "running")
    assert coordinator.workers[COPY].presence is Presence.ABSENT
    coordinator.happens(Lost(COPY, 3, "killed"), 2.0)
    assert without_events(coordinator) == [], "it is accounted for"
    coordinator.hear(joins(COPY, 7), 3.0)
    assert (coordinator.workers[COPY].presence, coordinator.workers[COPY].incarnation) == (Presence.JOINED, 7)


def test_a_copy_lost_in_a_round_is_not_waited_for() -> None:
    coordinator = followed()
    coordinator.lost(1, 2, 2.0, "killed")
    coordinator.take()
    coordinator.happens(Lost(COPY, 3, "killed"), 2.5)
    effects = coordinator.take()
    there = (Place(0), Place(1, 1))
    assert sent(effects, Drain) == [(place, Drain(5, there)) for place in there], "the others wait for its end marker"
    coordinator.hear(join(1, 5, 3), 3.0)
    for place in there:
        coordinator.hear(Drained(place, 5, memory(5)), 3.0)
    assert coordinator.phase is JobPhase.DECIDING
    coordinator.happens(Lost(Place(1, 1), 4, "killed"), 3.5)
    write_all(coordinator)
    assert coordinator.phase is JobPhase.RESTORING, "nobody rests on it: one decision is enough"
    for worker in range(2):
        coordinator.hear(Restored(Place(worker), 5), 4.0)
    assert coordinator.phase is JobPhase.RUNNING


def test_a_copy_lost_while_it_restores_holds_nobody_up() -> None:
    coordinator = followed()
    coordinator.lost(1, 2, 2.0, "killed")
    coordinator.hear(join(1, 5, 3), 3.0)
    for place in (Place(0), *ALL[2:]):
        coordinator.hear(Drained(place, 4, memory(5)), 3.0)
    write_all(coordinator)
    for place in ALL[:3]:
        coordinator.hear(Restored(place, 4), 4.0)
    assert coordinator.phase is JobPhase.RESTORING
    coordinator.happens(Lost(Place(1, 1), 4, "killed"), 4.5)
    assert coordinator.phase is JobPhase.RUNNING


def test_deadlines_and_silence_hold_for_copies() -> None:
    coordinator = followed(heartbeat_seconds=5.0, join_seconds=7.0)
    for worker in range(2):
        coordinator.hear(Completed(Place(worker), 3, ((0,),)), 5.0)
    coordinator.hear(Completed(Place(1, 1), 3, ((0,),)), 5.0)
    coordinator.tick(6.5)
    effects = without_events(coordinator)
    assert effects == [Fence(COPY, 3, "nothing was heard of it for 5.5 s"), Respawn(COPY)]
    for worker in range(2):
        coordinator.hear(Completed(Place(worker), 3, ((0,),)), 13.0)
    coordinator.hear(Completed(Place(1, 1), 3, ((0,),)), 13.0)
    coordinator.tick(13.6)
    assert without_events(coordinator) == [Fence(COPY, -1, "it did not join in time"), Respawn(COPY)]
    coordinator.hear(joins(COPY, 8), 14.0)
    coordinator.tick(17.9)
    assert without_events(coordinator) == [], "one without memory has nothing to say"


def test_a_copy_that_is_restarted_or_replaced_takes_nothing_back() -> None:
    coordinator = followed()
    coordinator.happens(Restarting(COPY, "was restarted from the page"), 2.0)
    assert without_events(coordinator) == [Fence(COPY, 3, "was restarted from the page"), Respawn(COPY)]
    coordinator.hear(joins(Place(1, 1), 9), 2.0)
    assert without_events(coordinator) == []
    assert coordinator.workers[Place(1, 1)].presence is Presence.JOINED
    assert coordinator.phase is JobPhase.RUNNING


@pytest.mark.parametrize(
    "message",
    [
        Completed(COPY, 3, ((9,),)),
        Durable(COPY, 3, 0, (3,), checkpoint(PLAN, 0, (3,))),
        Released(COPY),
    ],
)
def test_what_a_copy_completes_saves_and_releases_counts_nowhere(message: ToMonitor) -> None:
    coordinator = followed()
    coordinator.hear(message, 2.0)
    assert without_events(coordinator) == []
    assert coordinator.options.upto == [None, None]
    assert not coordinator.workers[COPY].released


def test_cuts_are_of_those_at_work_and_w_is_for_all_with_memory() -> None:
    coordinator = followed()
    coordinator.take()
    for worker in range(2):
        coordinator.hear(Completed(Place(worker), 3, ((3,),)), 2.0)
    effects = coordinator.take()
    assert [place for place, _ in sent(effects, Cut)] == list(places(2))
    for worker in range(2):
        coordinator.hear(Durable(Place(worker), 3, 0, (3,), xis(3)), 2.0)
    write(coordinator)
    assert [place for place, _ in sent(coordinator.take(), Watermarks)] == list(ALL)


def test_a_job_ends_when_those_at_work_are_done() -> None:
    coordinator = followed()
    for worker in range(2):
        coordinator.hear(Completed(Place(worker), 3, ((NEVER,),)), 2.0)
    for worker in range(2):
        coordinator.hear(Durable(Place(worker), 3, 0, (NEVER,), xis(NEVER)), 2.0)
    write_all(coordinator)
    for worker in range(2):
        coordinator.hear(Released(Place(worker)), 3.0)
    write_all(coordinator)
    assert coordinator.phase is JobPhase.OVER
