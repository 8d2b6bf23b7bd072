"""The coordinator, message by message: rounds, deadlines, errors, and its own restart."""

from __future__ import annotations

import msgspec
import pytest

from monitor.coordination.coordinator import LAG_SECONDS
from monitor.coordination.effects import Answered, Effect, Fail, Finished, Persist, Send
from monitor.coordination.records import KeptDecision, KeptEvent, KeptLayout, KeptRounds, KeptWatermarks, SavedJob
from monitor.coordination.supervision import Fence, Noted, Respawn, TimelineEvent
from monitor.coordination.workers import JobPhase, Presence
from monitor.explain.what_if import PATIENCE_SECONDS
from recovery.epoch_ends import EpochEnds
from recovery.errors import NoSolutionError
from recovery.layout import GroupInfo, Layout
from recovery.metadata import NEVER, Xi
from recovery.place import Place, places
from recovery.protocol import (
    LIVE,
    Completed,
    CurrentMemory,
    Cut,
    Decision,
    Drain,
    Drained,
    Durable,
    InMemory,
    Observed,
    ReadUntil,
    Refused,
    Released,
    Restored,
    Watermarks,
)
from tests.monitor.coordination.coordinators import (
    GROUND,
    PLAN,
    join,
    memory,
    respawned,
    running,
    settings,
    without_events,
    write,
    write_all,
    xis,
)
from tests.monitor.coordination.driven import DrivenCoordinator
from tests.recovery.layouts import FIREWALL, layout
from timely.dataflow.functions import PYTHON, SCHEME
from timely.seen_functions import Functions


def test_a_start_is_a_round_in_which_nobody_lives() -> None:
    coordinator = DrivenCoordinator(PLAN, None, settings())
    assert without_events(coordinator) == [
        Respawn(Place(0)),
        Respawn(Place(1)),
        Persist(1, (KeptLayout(PLAN), KeptRounds(1000))),
    ]
    coordinator.stored(1)
    coordinator.hear(join(0), 1.0)
    assert without_events(coordinator) == []
    coordinator.hear(join(1), 1.0)
    decided = write(coordinator)
    assert KeptDecision(1, 0, (GROUND, GROUND), (0, 1)) in decided.records
    sent = without_events(coordinator)
    assert sent == [Send(Place(w), Decision(1, (GROUND, GROUND), (0, 1), (GROUND, GROUND))) for w in range(2)]
    coordinator.hear(Restored(Place(0), 1), 2.0)
    assert coordinator.phase is JobPhase.RESTORING
    coordinator.hear(Restored(Place(1), 1), 3.0)
    assert coordinator.phase is JobPhase.RUNNING
    (event,) = [each for each in coordinator.take() if isinstance(each, TimelineEvent)]
    assert event.kind == "restored"
    assert event.data["seconds"] == 3.0


def test_a_cut_is_announced_persisted_and_raises_w() -> None:
    coordinator = running()
    coordinator.hear(Completed(Place(0), 1, ((4,),)), 1.0)
    assert without_events(coordinator) == []
    coordinator.hear(Completed(Place(1), 1, ((3,),)), 1.0)
    assert without_events(coordinator) == [Send(Place(0), Cut(1, 0, (3,))), Send(Place(1), Cut(1, 0, (3,)))]
    coordinator.hear(Durable(Place(0), 1, 0, (3,), xis(3)), 1.0)
    assert without_events(coordinator) == []
    coordinator.hear(Durable(Place(1), 1, 0, (3,), xis(3)), 1.0)
    assert write(coordinator).records[-1] == KeptWatermarks((((3,), (3,)), ((3,), (3,))))
    changed = tuple((p, w, (3,)) for w in range(2) for p in range(2))
    assert without_events(coordinator) == [Send(Place(0), Watermarks(changed)), Send(Place(1), Watermarks(changed))]


def test_commits_of_what_is_alone_are_written_down_together_and_in_time() -> None:
    plan = layout("read source, count chain", "read>count", 1, GroupInfo(None, None, eager=True, independent=True))
    coordinator = running(plan=plan)
    for epoch in (1, 2, 3):
        coordinator.hear(Durable(Place(0), 1, 0, (epoch,), xis(epoch)), 1.0 + epoch / 1000)
    coordinator.tick(1.0 + LAG_SECONDS)
    assert without_events(coordinator) == []
    coordinator.tick(1.001 + LAG_SECONDS)
    assert write(coordinator).records[-1] == KeptWatermarks((((3,), (3,)),))
    coordinator.hear(Durable(Place(0), 1, 0, (NEVER,), xis(NEVER)), 2.0)
    assert write(coordinator).records == (KeptWatermarks((((NEVER,), (NEVER,)),)),)


def test_a_failure_while_a_decision_is_written_waits_for_it() -> None:
    coordinator = running()
    coordinator.lost(0, 1, 1.0, "killed")
    assert without_events(coordinator) == [Respawn(Place(0)), Send(Place(1), Drain(2, (Place(1),)))]
    coordinator.hear(join(0, 2, 1), 1.0)
    coordinator.hear(Drained(Place(1), 2, memory()), 1.0)
    assert coordinator.phase is JobPhase.DECIDING
    (persist,) = without_events(coordinator)
    assert isinstance(persist, Persist)
    coordinator.lost(0, 2, 1.5, "killed again")
    assert without_events(coordinator) == [Respawn(Place(0))]
    coordinator.hear(join(0, 3, 1), 1.6)
    assert without_events(coordinator) == []
    coordinator.stored(persist.ticket)
    first, second, third = without_events(coordinator)
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    assert isinstance(first.message, Decision)
    assert isinstance(second.message, Decision)
    assert (first.place.worker, first.message.generation, first.message.catch_up) == (0, 2, True)
    assert (second.place.worker, second.message.generation, second.message.catch_up) == (1, 2, False)
    assert third == Send(Place(1), Drain(3, (Place(1),)))
    coordinator.hear(join(0, 3, 2), 2.0)
    coordinator.hear(Drained(Place(1), 3, memory()), 2.0)
    write(coordinator)
    assert coordinator.phase is JobPhase.RESTORING  # what had failed before is in this decision: no further round


def test_drained_of_an_earlier_round_does_not_count() -> None:
    coordinator = running()
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.hear(join(0, 2, 1), 1.0)
    coordinator.lost(0, 2, 1.0, "killed")
    coordinator.hear(join(0, 3, 1), 1.0)
    coordinator.hear(Drained(Place(1), 2, memory()), 1.0)
    assert coordinator.phase is JobPhase.GATHERING
    coordinator.hear(Drained(Place(1), 3, memory()), 1.0)
    assert coordinator.phase is JobPhase.DECIDING


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (Completed(Place(1), 1, ((5,), (5,))), "Completed"),
        (Durable(Place(1), 1, 7, (3,), ()), "Durable"),
        (Durable(Place(1), 1, 0, (3,), (Xi(5, (3,), ()),)), "Durable"),
        (Released(Place(1)), "not at its end"),
    ],
)
def test_who_says_what_cannot_be_is_fenced(message: Completed | Durable | Released, says: str) -> None:
    coordinator = running()
    coordinator.hear(message, 1.0)
    effects = without_events(coordinator)
    assert isinstance(effects[0], Fence)
    assert (effects[0].place.worker, effects[0].incarnation) == (1, 1)
    assert says in effects[0].reason
    assert effects[1:] == [Respawn(Place(1)), Send(Place(0), Drain(2, (Place(0),)))]


def test_messages_of_other_generations_and_incarnations_change_nothing() -> None:
    coordinator = running()
    coordinator.hear(Completed(Place(0), 0, ((9,), (9,), (9,))), 1.0)
    coordinator.hear(Durable(Place(0), 3, 9, (9,), ()), 1.0)
    coordinator.hear(Restored(Place(0), 7), 1.0)
    coordinator.hear(Drained(Place(0), 1, ()), 1.0)
    coordinator.hear(Completed(Place(0), 1, ((9,), (9,), (9,))), 1.0, incarnation=0)
    coordinator.hear(join(0, 0), 1.0)
    coordinator.lost(0, 0, 1.0, "long ago")
    assert coordinator.take() == []
    assert coordinator.phase is JobPhase.RUNNING


def test_a_silent_worker_is_fenced() -> None:
    coordinator = running(heartbeat_seconds=5.0)
    coordinator.hear(Completed(Place(0), 1, ((0,),)), 4.0)
    coordinator.tick(5.0)
    assert without_events(coordinator) == []
    coordinator.tick(5.5)
    assert [type(effect) for effect in without_events(coordinator)] == [Fence, Respawn, Send]


@pytest.mark.parametrize(("phase", "seconds"), [("join", 3.0), ("pause", 4.0), ("restore", 6.0)])
def test_every_phase_has_a_deadline(phase: str, seconds: float) -> None:
    coordinator = running(join_seconds=3.0, pause_seconds=4.0, restore_seconds=6.0)
    coordinator.lost(0, 1, 100.0, "killed")
    if phase != "join":
        coordinator.hear(join(0, 2, 1), 100.0)
    if phase == "restore":
        coordinator.hear(Drained(Place(1), 2, memory()), 100.0)
        write(coordinator)
        coordinator.hear(Restored(Place(0), 2), 100.0)
    coordinator.take()
    coordinator.tick(100.0 + seconds - 0.1)
    assert without_events(coordinator) == []
    coordinator.tick(100.0 + seconds)
    effects = without_events(coordinator)
    assert isinstance(effects[0], Fence)
    whichever = -1  # the process that has not joined yet
    assert (effects[0].place.worker, effects[0].incarnation) == ((0, whichever) if phase == "join" else (1, 1))
    assert "in time" in effects[0].reason


def test_failing_again_and_again_without_progress_fails_the_job() -> None:
    coordinator = running(attempts=3)
    for incarnation in (1, 2, 3):
        coordinator.lost(1, incarnation, 1.0, "out of memory")
        coordinator.hear(join(1, incarnation + 1, 1), 1.0)
    (fail,) = [effect for effect in coordinator.take() if isinstance(effect, Fail)]
    assert fail.lost
    assert fail.reason.startswith("worker 1 has failed 3 times")
    assert fail.reason.endswith("out of memory")
    assert coordinator.phase is JobPhase.OVER


def test_the_timeline_tells_what_a_round_has_cost() -> None:
    coordinator = running()
    respawned(coordinator, 2, at=5.0)
    write(coordinator)
    events: list[Effect] = []
    for worker in range(2):
        coordinator.hear(Restored(Place(worker), 2), 7.0 + worker)
        events += coordinator.take()
    assert coordinator.decision is not None
    rolled_back = sum(bound is not None for bounds in coordinator.decision.bounds for bound in bounds)
    assert 0 < rolled_back <= 4
    (restored,) = [each for each in events if isinstance(each, TimelineEvent) and each.kind == "restored"]
    account = restored.data.pop("rollback")
    assert restored.data == {"generation": 2, "seconds": 3.0, "start": False}
    assert sum(account["phases"].values()) == pytest.approx(3.0)


def test_another_program_on_the_store_ends_the_job_before_it_begins() -> None:
    coordinator = DrivenCoordinator(layout("read source, other chain", "read=>other"), SavedJob(PLAN), settings())
    effects = without_events(coordinator)
    assert [type(effect) for effect in effects] == [Fail]
    assert coordinator.phase is JobPhase.OVER


def test_functions_that_were_changed_end_the_job_or_are_accepted_once() -> None:
    def of(digest: str) -> Layout:
        functions = Functions(SCHEME, PYTHON, "1", {"other": {"the function": f"code {digest}"}}, {})
        return msgspec.structs.replace(PLAN, functions=functions)

    effects = without_events(DrivenCoordinator(of("2"), SavedJob(of("1")), settings()))
    assert [type(effect) for effect in effects] == [Fail]
    assert "the code of the function is another one" in str(effects[0])
    accepting = DrivenCoordinator(of("2"), SavedJob(of("1")), settings(accept=("other",)))
    (write,) = [effect for effect in without_events(accepting) if isinstance(effect, Persist)]
    assert KeptLayout(of("2")) in write.records
    later = DrivenCoordinator(of("2"), SavedJob(of("2")), settings())
    assert not any(isinstance(effect, Fail) for effect in without_events(later))


def test_progress_forgives_failures() -> None:
    """Worker 0 fails five times, and W rises after each."""
    coordinator = running(attempts=2)
    for number in range(1, 6):
        for worker in range(2):
            coordinator.hear(Completed(Place(worker), number, ((number,),)), number)
            coordinator.hear(Durable(Place(worker), number, 0, (number,), xis(number)), number)
        write(coordinator)
        coordinator.lost(0, number, number, "killed")
        coordinator.hear(join(0, number + 1, number, durable=xis(number)), number)
        coordinator.hear(Drained(Place(1), number + 1, memory(number)), number)
        write(coordinator)
        for worker in range(2):
            coordinator.hear(Restored(Place(worker), number + 1), number)
    assert coordinator.phase is JobPhase.RUNNING


@pytest.mark.parametrize("generation", [1, 4])
def test_all_workers_of_a_new_monitor_go_on_without_a_round(generation: int) -> None:
    low = ((3,), (3,))
    saved = SavedJob(PLAN, (low, low), KeptDecision(generation, generation // 2, (GROUND, GROUND), ()))
    coordinator = DrivenCoordinator(PLAN, saved, settings(awaited=places(2)))
    assert write(coordinator).records[1:] == (KeptRounds(1000 + generation),)
    for worker in range(2):
        assert coordinator.phase is JobPhase.ASSEMBLING
        coordinator.hear(join(worker, 3, generation, True, durable=xis(3)), 0.0)
    assert coordinator.phase is JobPhase.RUNNING
    everything = tuple((p, w, (3,)) for w in range(2) for p in range(2))
    read_on = [Send(Place(w), ReadUntil(generation, NEVER)) for w in range(2)]  # of a savepoint before it knows nothing
    assert without_events(coordinator) == [*read_on, *(Send(Place(w), Watermarks(everything)) for w in range(2))]


@pytest.mark.parametrize("how", ["paused", "behind", "dead", "lost", "late"])
def test_a_new_monitor_begins_a_round_if_anything_is_unlike(how: str) -> None:
    saved = SavedJob(PLAN, None, KeptDecision(4, 2, (GROUND, GROUND), ()))
    coordinator = DrivenCoordinator(PLAN, saved, settings(awaited=places(2), join_seconds=9.0))
    write(coordinator)
    coordinator.hear(join(0, 3, 4, True), 0.0)
    if how == "paused":
        coordinator.hear(join(1, 3, 4, True, paused=True), 0.0)
    elif how == "behind":
        coordinator.hear(join(1, 3, 2, True, paused=True), 0.0)
    elif how == "dead":
        coordinator.hear(join(1, 3, 4, False), 0.0)
    elif how == "lost":
        coordinator.lost(1, 3, 0.0, "killed")
    else:
        coordinator.tick(9.0)
    alive = places(2) if how in ("paused", "behind") else places(1)
    effects = without_events(coordinator)
    assert Send(Place(0), Drain(5, alive)) in effects
    if how == "behind":
        assert effects[0] == Send(Place(1), Decision(4, (GROUND, GROUND), (), (GROUND, GROUND)))
        assert effects[-1] == Send(Place(1), Drain(5, alive))
        coordinator.hear(Restored(Place(1), 4), 0.0)  # all have now applied it, but some have paused since
        assert coordinator.phase is JobPhase.GATHERING


def test_who_has_joined_a_new_monitor_and_died_before_the_others_came_is_not_there() -> None:
    saved = SavedJob(PLAN, None, KeptDecision(4, 2, (GROUND, GROUND), ()))
    coordinator = DrivenCoordinator(PLAN, saved, settings(awaited=places(2)))
    write(coordinator)
    coordinator.hear(join(0, 3, 4, True), 0.0)
    coordinator.lost(0, 3, 0.0, "killed")
    coordinator.hear(join(1, 3, 4, True), 0.0)
    assert coordinator.phase is JobPhase.GATHERING
    assert Send(Place(1), Drain(5, (Place(1),))) in coordinator.take()


def test_a_survivor_that_was_given_up_is_fenced() -> None:
    saved = SavedJob(PLAN, None, KeptDecision(4, 2, (GROUND, GROUND), ()))
    coordinator = DrivenCoordinator(PLAN, saved, settings())
    coordinator.take()
    coordinator.hear(join(0, 3, 4, True), 0.0)
    assert without_events(coordinator) == [Fence(Place(0), 3, "it was given up")]
    coordinator.lost(0, 3, 1.0, "it was fenced")  # which is no further failure, and its replacement is on the way
    assert coordinator.take() == []


def test_a_worker_with_another_program_is_refused() -> None:
    coordinator = DrivenCoordinator(PLAN, None, settings())
    coordinator.hear(join(0), 0.0)
    coordinator.hear(msgspec.structs.replace(join(1), layout=layout(*FIREWALL)), 0.0)
    effects = without_events(coordinator)
    refused, fail = effects[-2:]
    assert isinstance(refused, Send)
    assert isinstance(refused.message, Refused)
    assert isinstance(fail, Fail)
    assert "'clean' is new" in fail.reason
    assert refused.message.reason == fail.reason
    assert not fail.lost


def test_a_worker_that_is_not_of_the_job_is_refused() -> None:
    coordinator = running()
    coordinator.hear(join(7), 0.0)
    (refused,) = without_events(coordinator)
    assert isinstance(refused, Send)
    assert isinstance(refused.message, Refused)
    assert coordinator.phase is JobPhase.RUNNING


def test_a_store_without_what_was_acknowledged_fails_the_job() -> None:
    low = ((3,), (3,))
    saved = SavedJob(PLAN, (low, low), KeptDecision(4, 2, (GROUND, GROUND), ()))
    coordinator = DrivenCoordinator(PLAN, saved, settings())
    coordinator.hear(join(0, 3, 4, durable=xis(3)), 0.0)
    coordinator.hear(join(1, 3, 4, durable=xis(2)), 0.0)
    (fail,) = [effect for effect in coordinator.take() if isinstance(effect, Fail)]
    assert "store of worker 1 has lost data" in fail.reason
    assert "'read'" in fail.reason


def test_the_end() -> None:
    coordinator = running()
    for worker in range(2):
        coordinator.hear(Completed(Place(worker), 1, ((NEVER,),)), 1.0)
        coordinator.hear(Durable(Place(worker), 1, 0, (NEVER,), xis(NEVER)), 1.0)
    write(coordinator)
    coordinator.hear(Released(Place(0)), 1.0)
    coordinator.lost(0, 1, 1.0, "killed too early")
    assert coordinator.phase is JobPhase.GATHERING
    coordinator.hear(join(0, 2, 1, durable=xis(NEVER)), 1.0)
    coordinator.hear(Drained(Place(1), 2, memory(NEVER)), 1.0)
    write(coordinator)
    for worker in range(2):
        coordinator.hear(Restored(Place(worker), 2), 1.0)
    coordinator.hear(Released(Place(1)), 1.0)
    assert coordinator.phase is JobPhase.RUNNING  # what worker 0 said before it failed does not count
    coordinator.hear(Released(Place(0)), 1.0)
    assert coordinator.phase is JobPhase.CLOSING
    coordinator.tick(1e9)  # who is done for good has no deadline
    coordinator.lost(1, 1, 1.0, "it has ended")
    while coordinator.phase is JobPhase.CLOSING:
        write(coordinator)
    assert Finished() in coordinator.take()


def test_a_finished_job_is_finished() -> None:
    coordinator = DrivenCoordinator(PLAN, SavedJob(finished=True), settings())
    assert coordinator.take() == [Finished()]
    coordinator.hear(join(0), 0.0)
    coordinator.tick(1e9)
    assert coordinator.take() == []


def test_an_interval_may_change_between_runs() -> None:
    moved = msgspec.structs.replace(PLAN, groups=(msgspec.structs.replace(PLAN.groups[0], epochs=100),))
    coordinator = running(SavedJob(moved))
    coordinator.hear(Completed(Place(0), 1, ((4,),)), 1.0)
    coordinator.hear(Completed(Place(1), 1, ((4,),)), 1.0)
    assert Send(Place(0), Cut(1, 0, (4,))) in coordinator.take()
    assert coordinator.layout == PLAN
    assert KeptLayout(PLAN) != KeptLayout(moved)


def test_a_number_of_a_round_is_never_used_by_two_monitors() -> None:
    """An earlier monitor may have told a worker to pause for round 5, and died before it decided anything."""
    saved = SavedJob(PLAN, None, KeptDecision(4, 2, (GROUND, GROUND), ()), rounds=1002)
    coordinator = DrivenCoordinator(PLAN, saved, settings(awaited=places(2)))
    coordinator.hear(join(0, 3, 4, True, paused=True), 0.0)
    coordinator.hear(join(1, 3, 4, True), 0.0)
    (persist,) = without_events(coordinator)  # nobody is told before the new numbers are durable
    assert persist == Persist(1, (KeptRounds(2002),))
    coordinator.stored(1)
    assert Send(Place(0), Drain(1003, (Place(0), Place(1)))) in coordinator.take()


def test_who_is_done_may_be_silent() -> None:
    coordinator = running(heartbeat_seconds=5.0)
    for worker in range(2):
        coordinator.hear(Completed(Place(worker), 1, ((NEVER,),)), 1.0)
        coordinator.hear(Durable(Place(worker), 1, 0, (NEVER,), xis(NEVER)), 1.0)
    write(coordinator)
    coordinator.hear(Released(Place(0)), 1.0)
    coordinator.hear(Completed(Place(1), 1, ((NEVER,),)), 9.0)
    coordinator.tick(10.0)
    assert coordinator.phase is JobPhase.RUNNING


def test_what_is_due_by_the_clock_needs_no_message() -> None:
    hourly = msgspec.structs.replace(PLAN, groups=(GroupInfo(None, 5.0),))
    coordinator = DrivenCoordinator(hourly, None, settings(heartbeat_seconds=1e9))
    for worker in range(2):
        coordinator.hear(msgspec.structs.replace(join(worker), layout=hourly), 0.0)
    while coordinator.phase is not JobPhase.RESTORING:
        write(coordinator)
    for worker in range(2):
        coordinator.hear(Restored(Place(worker), 1), 0.0)
        coordinator.hear(Completed(Place(worker), 1, ((4,),)), 1.0)
    coordinator.tick(4.9)
    assert not any(isinstance(effect, Send) and isinstance(effect.message, Cut) for effect in coordinator.take())
    coordinator.tick(5.0)
    assert Send(Place(1), Cut(1, 0, (4,))) in coordinator.take()


def test_who_joins_twice_without_having_been_lost_is_fenced() -> None:
    coordinator = running()
    coordinator.hear(join(1, 1, 1), 1.0)
    effects = without_events(coordinator)
    assert effects == [Fence(Place(1), 1, "it joined twice"), Respawn(Place(1)), Send(Place(0), Drain(2, (Place(0),)))]
    assert coordinator.workers[Place(1)].presence is Presence.ABSENT


def test_what_keeps_nothing_goes_back_to_the_last_decision_under_a_new_monitor_too() -> None:
    """It was complete there when all were restored, and only the journal knows."""
    plan = layout("read source, q any", "read>q", 1)
    saved = SavedJob(plan, None, KeptDecision(2, 1, (((4,), (4,)),), ()), rounds=2)
    coordinator = DrivenCoordinator(plan, saved, settings())
    write(coordinator)
    coordinator.hear(join(0, 2, 2, layout=plan, durable=(Xi(0, (4,), ((4,),)),)), 1.0)
    write(coordinator)
    assert coordinator.decision is not None
    assert coordinator.decision.bounds == (((4,), (4,)),)


def test_who_is_behind_may_join_twice_for_that_is_what_it_is_told() -> None:
    saved = SavedJob(PLAN, None, KeptDecision(4, 2, (GROUND, GROUND), ()))
    coordinator = DrivenCoordinator(PLAN, saved, settings())
    coordinator.hear(join(0, 1, 2), 0.0)
    assert coordinator.workers[Place(0)].presence is Presence.BEHIND
    coordinator.hear(join(0, 1, 4), 0.0)
    assert not any(isinstance(effect, Fence) for effect in coordinator.take())
    assert (coordinator.workers[Place(0)].presence, coordinator.workers[Place(0)].failures) == (Presence.JOINED, 0)


def test_a_process_that_was_lost_before_it_joined_is_known_when_it_joins_late() -> None:
    coordinator = running()
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.lost(0, 2, 1.0, "killed before it could join")
    coordinator.take()
    coordinator.hear(join(0, 2, 1), 1.0)
    assert coordinator.take() == []
    assert coordinator.workers[Place(0)].presence is Presence.ABSENT
    coordinator.hear(join(0, 3, 1), 1.0)
    assert coordinator.workers[Place(0)].presence is Presence.JOINED


def test_the_loss_of_a_process_that_is_not_of_the_job_is_none() -> None:
    coordinator = running()
    coordinator.lost(7, 1, 1.0, "killed")
    assert coordinator.take() == []


def test_who_offers_what_cannot_be_is_fenced() -> None:
    coordinator = running()
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.take()
    coordinator.hear(join(0, 2, 1, durable=(Xi(9, (3,), ()),)), 1.0)
    first, second, third = without_events(coordinator)
    assert isinstance(first, Fence)
    assert "what it offers cannot be" in first.reason
    assert (second, third) == (Respawn(Place(0)), Send(Place(1), Drain(3, (Place(1),))))
    assert coordinator.workers[Place(0)].presence is Presence.ABSENT


def test_who_has_drained_and_says_what_cannot_be_is_fenced() -> None:
    coordinator = running()
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.hear(join(0, 2, 1), 1.0)
    coordinator.take()
    coordinator.hear(Drained(Place(1), 2, memory()[1:]), 1.0)
    (fence, *_) = without_events(coordinator)
    assert isinstance(fence, Fence)
    assert "Drained cannot be" in fence.reason


def test_what_was_drained_for_an_earlier_round_does_not_count() -> None:
    """The living may have been sent a decision since, and have worked on."""
    coordinator = running()
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.hear(Drained(Place(1), 2, memory()), 1.0)
    coordinator.lost(0, 2, 1.0, "killed")
    coordinator.hear(join(0, 3, 1), 1.0)
    assert coordinator.phase is JobPhase.GATHERING
    coordinator.hear(Drained(Place(1), 3, memory()), 1.0)
    assert coordinator.phase is JobPhase.DECIDING


def test_nobody_is_silent_who_waited_for_others_to_restore() -> None:
    coordinator = running(heartbeat_seconds=5.0)
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.hear(join(0, 2, 1), 1.0)
    coordinator.hear(Drained(Place(1), 2, memory()), 1.0)
    write(coordinator)
    coordinator.hear(Restored(Place(1), 2), 2.0)
    coordinator.hear(Restored(Place(0), 2), 50.0)
    coordinator.tick(51.0)
    assert coordinator.phase is JobPhase.RUNNING


def test_a_round_without_a_solution_fails_the_job_and_names_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of workers are checked before, so only a mistake of ours could lead here: then nothing may be decided."""
    coordinator = running()
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.hear(join(0, 2, 1), 1.0)
    coordinator.take()

    def none(*_: object) -> None:
        raise NoSolutionError("processor 2 would have to go below its low-watermark at (3,)")

    monkeypatch.setattr("monitor.coordination.options.solve", none)
    coordinator.hear(Drained(Place(1), 2, memory()), 1.0)
    (fail,) = without_events(coordinator)
    assert isinstance(fail, Fail)
    assert "operator 'count' of worker 0" in fail.reason
    assert coordinator.phase is JobPhase.OVER
    coordinator.tick(1e9)
    assert coordinator.take() == []


def test_a_new_monitor_hears_at_once_that_everything_is_released() -> None:
    """Workers say it with their join, while the new monitor is still reserving numbers for its rounds."""
    end = tuple(info.everything for info in PLAN.processors)
    saved = SavedJob(PLAN, (end, end), KeptDecision(4, 2, (GROUND, GROUND), ()), rounds=1000)
    coordinator = DrivenCoordinator(PLAN, saved, settings(awaited=places(2)))
    for worker in range(2):
        coordinator.hear(join(worker, 3, 4, True, durable=xis(NEVER)), 0.0)
        coordinator.hear(Released(Place(worker)), 0.0)
    assert coordinator.phase is JobPhase.ASSEMBLING
    while coordinator.phase is JobPhase.ASSEMBLING:
        write(coordinator)
    assert coordinator.phase in (JobPhase.CLOSING, JobPhase.OVER)


@pytest.mark.parametrize("how", ["refused", "replaced once too often"])
def test_a_job_that_has_failed_tells_nobody_anything_more(how: str) -> None:
    """Not even who is behind, and would have been told what was decided."""
    if how == "refused":
        saved = SavedJob(PLAN, None, KeptDecision(4, 2, (GROUND, GROUND), ()))
        coordinator = DrivenCoordinator(PLAN, saved, settings())
        coordinator.hear(join(0, 1, 2, layout=layout(*FIREWALL)), 0.0)
    else:
        coordinator = running(attempts=1)
        coordinator.hear(join(0, 2, 0), 0.0)
    assert isinstance(without_events(coordinator)[-1], Fail)
    assert coordinator.phase is JobPhase.OVER


def test_a_failure_of_the_program_is_durable_before_it_ends_the_job() -> None:
    coordinator = running()
    coordinator.broke(1, "ZeroDivisionError in operator 'count'", 2.0)
    told, persist = coordinator.take()
    data = {"worker": 1, "text": "ZeroDivisionError in operator 'count'", "processor": -1, "trace": ""}
    assert told == TimelineEvent("error", 2.0, data)
    assert isinstance(persist, Persist)
    assert persist.records[-1] == KeptEvent("error", 2.0, data, 4)
    coordinator.stored(persist.ticket)
    assert coordinator.take() == [Fail("ZeroDivisionError in operator 'count'")]


def test_what_is_said_twice_in_a_round_counts_once() -> None:
    coordinator = running()
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.hear(Drained(Place(1), 2, memory()), 1.0)
    coordinator.take()
    coordinator.hear(Drained(Place(1), 2, ()), 1.0)
    assert coordinator.take() == []


def test_who_is_still_restoring_when_a_round_begins_has_the_time_for_both() -> None:
    coordinator = running(join_seconds=1e6, pause_seconds=4.0, restore_seconds=6.0)
    respawned(coordinator, 2)
    write(coordinator)
    coordinator.lost(0, 2, 100.0, "killed")
    coordinator.take()
    coordinator.tick(109.9)
    assert without_events(coordinator) == []
    coordinator.tick(110.0)
    assert without_events(coordinator)[0] == Fence(Place(1), 1, "it did not drain its links in time")


def test_a_new_monitor_hears_of_a_cut_of_the_earlier_one_before_all_have_joined() -> None:
    saved = SavedJob(PLAN, None, KeptDecision(4, 2, (GROUND, GROUND), ()))
    coordinator = DrivenCoordinator(PLAN, saved, settings(awaited=places(2)))
    write(coordinator)
    coordinator.hear(join(0, 3, 4, True), 0.0)
    coordinator.hear(Durable(Place(0), 4, 0, (3,), xis(3)), 0.0)
    coordinator.hear(join(1, 3, 4, True, durable=xis(3)), 0.0)
    assert coordinator.phase is JobPhase.RUNNING
    assert coordinator.options.watermarks == (((3,), (3,)),) * 2


def test_what_keeps_nothing_lets_w_rise_when_it_comes_to_where_the_others_had_been_saved_before() -> None:
    """At the end of input there may be no further cut that would do it."""
    plan = layout("a source, q any, b chain", "a|q, q|b", 1)
    saved = SavedJob(plan, None, KeptDecision(4, 2, ((None,) * 3,), ()))
    coordinator = DrivenCoordinator(plan, saved, settings(awaited=places(1)))
    write(coordinator)
    five = (Xi(0, (5,), ((0,),)), Xi(2, (5,), ()))
    coordinator.hear(join(0, 3, 4, True, layout=plan, durable=five), 0.0)
    assert coordinator.phase is JobPhase.RUNNING
    assert coordinator.options.watermarks == (((5,), (0,), (0,)),)
    coordinator.hear(Completed(Place(0), 4, ((4,),) * 3), 1.0)
    assert coordinator.options.watermarks == (((5,), (0,), (0,)),)
    coordinator.hear(Completed(Place(0), 4, ((5,),) * 3), 1.0)
    assert coordinator.options.watermarks == (((5,), (5,), (5,)),)


def test_what_keeps_nothing_lets_w_rise_when_it_comes_to_the_end_after_the_last_cut() -> None:
    plan = layout("a source, q any", "a|q", 1)
    coordinator = DrivenCoordinator(
        plan, SavedJob(plan, None, KeptDecision(4, 2, ((None,) * 2,), ())), settings(awaited=places(1))
    )
    write(coordinator)
    coordinator.hear(join(0, 3, 4, True, layout=plan, durable=(Xi(0, (5,), ((0,),)),)), 0.0)
    coordinator.hear(Completed(Place(0), 4, ((5,), (5,))), 1.0)
    coordinator.hear(Completed(Place(0), 4, ((NEVER,), (5,))), 1.0)
    coordinator.hear(Durable(Place(0), 4, 0, (NEVER,), (Xi(0, (NEVER,), ((0,),)),)), 1.0)
    assert coordinator.options.watermarks == (((NEVER,), (5,)),)
    coordinator.hear(Completed(Place(0), 4, ((NEVER,), (NEVER,))), 1.0)
    assert coordinator.options.watermarks == (((NEVER,), (NEVER,)),)


def test_the_next_cut_is_announced_when_the_last_one_is_there() -> None:
    coordinator = running()
    for epoch in (3, 5):
        for worker in range(2):
            coordinator.hear(Completed(Place(worker), 1, ((epoch,),)), 1.0)
    assert [effect for effect in without_events(coordinator) if isinstance(effect, Send)] == [
        Send(Place(worker), Cut(1, 0, (3,))) for worker in range(2)
    ]
    for worker in range(2):
        coordinator.hear(Durable(Place(worker), 1, 0, (3,), xis(3)), 1.0)
    assert Send(Place(1), Cut(1, 0, (5,))) in coordinator.take()


def test_nothing_is_cut_while_the_job_goes_back() -> None:
    coordinator = running()
    coordinator.hear(Completed(Place(0), 1, ((5,),)), 1.0)
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.take()
    coordinator.hear(Completed(Place(1), 1, ((5,),)), 1.0)
    coordinator.tick(2.0)
    assert coordinator.take() == []


def test_a_process_that_has_restored_nothing_yet_has_no_memory_to_lose() -> None:
    coordinator = DrivenCoordinator(PLAN, None, settings())
    coordinator.take()
    coordinator.hear(join(0, 1, 0, alive=True), 0.0)
    assert coordinator.take() == []
    assert coordinator.workers[Place(0)].presence is Presence.JOINED


def test_the_process_that_failed_is_the_one_whose_place_was_taken() -> None:
    coordinator = running()
    coordinator.hear(join(0, 2, 1), 1.0)
    (failure,) = [each for each in coordinator.take() if isinstance(each, TimelineEvent) and each.kind == "failure"]
    assert failure.data == {"worker": 0, "incarnation": 1, "reason": "another process took its place", "output": ""}


def test_numbers_of_rounds_are_reserved_before_they_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.coordination.coordinator.ROUNDS", 4)
    coordinator = running(attempts=1000)
    reserved = []
    for incarnation in range(1, 20):
        coordinator.lost(0, incarnation, 1.0, "killed")
        coordinator.hear(join(0, incarnation + 1, 1), 1.0)
        reserved += [
            record.last
            for effect in coordinator.take()
            if isinstance(effect, Persist) and coordinator.stored(effect.ticket) is None
            for record in effect.records
            if isinstance(record, KeptRounds)
        ]
    assert coordinator.round == 20
    assert reserved == list(range(7, 24, 3))  # not each time, and four more at once


def test_a_question_that_nobody_answers_is_given_up() -> None:
    coordinator = running()
    coordinator.ask(7, [(0, 1)], 1.0)
    coordinator.hear(CurrentMemory(Place(0), 1, 7, memory()), 1.0)
    coordinator.take()
    coordinator.tick(1.0 + PATIENCE_SECONDS)
    (answered,) = coordinator.take()
    assert isinstance(answered, Answered)
    assert str(answered.answer).startswith("worker 1 is busy")


def test_what_a_worker_shows_to_who_looks_is_no_affair_of_the_coordinator() -> None:
    coordinator = running()
    coordinator.hear(Observed(Place(0), 1, b"", 0, 0, None), 1.0)
    assert coordinator.take() == []
    assert coordinator.phase is JobPhase.RUNNING


def test_what_a_worker_tells_the_user_is_on_the_timeline() -> None:
    coordinator = running()
    coordinator.happens(Noted(Place(1), "a run of Spark is tried again"), 3.0)
    assert coordinator.take() == [TimelineEvent("note", 3.0, {"worker": 1, "text": "a run of Spark is tried again"})]


@pytest.mark.parametrize(
    ("known", "decided"),
    [
        (EpochEnds(0, 0, 0, 2), True),
        (EpochEnds(0, 0, 0, 2, local_only=True), False),
        (EpochEnds(0, 0, 1, 2), False),
    ],
)
def test_ends_of_epochs_are_decided_that_others_may_read_by_from_where_they_go_back(
    known: EpochEnds, decided: bool
) -> None:
    """Not those by which one process can read alone, nor those behind the epoch in which a source begins again."""
    coordinator = running()
    coordinator.lost(0, 1, 1.0, "killed")
    coordinator.hear(join(0, 2, coordinator.generation), 1.0)
    coordinator.hear(Drained(Place(1), coordinator.round, memory(), (known,)), 1.0)
    write_all(coordinator)
    assert coordinator.decision is not None
    assert coordinator.decision.generation == 2
    assert coordinator.decision.ends == ((known,) if decided else ())


def test_who_stays_as_it_is_still_has_what_it_came_back_with_in_the_decision_before() -> None:
    plan = layout("read source, count chain", "read=>count", 2, kept=True)
    coordinator = running(plan=plan)
    for worker in range(2):
        coordinator.hear(Completed(Place(worker), 1, ((3,),)), 1.0)
        coordinator.hear(Durable(Place(worker), 1, 0, (3,), xis(3)), 1.5)
    write_all(coordinator)

    def fails(worker: int) -> KeptDecision:
        """The decision without one of the two."""
        here = 1 - worker
        coordinator.lost(worker, 1, 2.0, "killed")
        coordinator.hear(join(worker, 2, coordinator.generation, layout=plan, durable=xis(3)), 2.0)
        kept = InMemory((6,), (6,), (), ((7,),), kept=(((3,), (3,)),))
        coordinator.hear(Drained(Place(here), coordinator.round, (kept, InMemory((6,), (6,), ((7,),), ()))), 2.0)
        write_all(coordinator)
        assert coordinator.decision is not None
        for each in range(2):
            coordinator.hear(Restored(Place(each), coordinator.generation), 3.0)
        write_all(coordinator)
        return coordinator.decision

    first = fails(0)
    assert (first.bounds, first.held) == ((((3,), (3,)), (LIVE, (6,))), (((3,), (3,)), ((0,), (6,))))
    second = fails(1)
    assert second.bounds[0][0] is LIVE
    assert second.held[0][0] == (3,)


def test_cuts_come_early_once_a_worker_was_lost_and_not_before() -> None:
    seldom = layout("read source, count chain", "read=>count", groups=GroupInfo(10, None))
    coordinator = running(plan=seldom)

    def cuts(generation: int, epoch: int, at: float) -> list[Send]:
        for worker in range(2):
            coordinator.hear(Completed(Place(worker), generation, ((epoch,),)), at)
        return [each for each in coordinator.take() if isinstance(each, Send) and isinstance(each.message, Cut)]

    assert cuts(1, 3, 1.0) == []
    coordinator.lost(0, 1, 2.0, "killed")
    coordinator.hear(join(0, 2, 1, layout=seldom), 2.5)
    coordinator.hear(Drained(Place(1), coordinator.round, memory(3, seldom)), 2.5)
    write_all(coordinator)
    for worker in range(2):
        coordinator.hear(Restored(Place(worker), 2), 3.0)
    coordinator.take()
    assert {each.message for each in cuts(2, 4, 4.0)} == {Cut(2, 0, (4,))}
