"""An agent joins: what it says of itself to a monitor that knows nothing of it, and what it does before it may."""

from __future__ import annotations

import pytest

from recovery.agent.effects import Fail, Rewind, SendFrame
from recovery.agent.events import Connected
from recovery.agent.state import WorkerPhase
from recovery.metadata import NEVER
from recovery.place import Place
from recovery.protocol import Cut, Drain, Join, Refused, Released, Restored
from tests.recovery.agent.driven import DrivenAgents, counts, of_kind, reported


def joined(agents: DrivenAgents, worker: int = 0) -> Join:
    """The words of a worker to a new monitor."""
    (join,) = reported(agents.tell(worker, Connected()), Join)
    return join


def test_a_new_worker_has_nothing_to_be_restored_to() -> None:
    agents = DrivenAgents(counts)
    join = joined(agents, 1)
    assert (join.place.worker, join.incarnation, join.generation) == (1, 1, 0)
    assert (join.alive, join.paused, join.durable) == (False, False, ())
    assert join.layout == agents.of[1].layout


def test_a_living_worker_says_so_and_offers_what_its_store_has_only() -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(2)
    agents.cut(0, (1,))
    agents.store_all()
    agents.cut(0, (2,))
    join = joined(agents)
    assert (join.generation, join.alive, join.paused) == (1, True, False)
    assert {xi.bound for xi in join.durable} == {(1,)}
    agents.store_all()
    assert {xi.bound for xi in joined(agents).durable} == {(1,), (2,)}


def test_the_next_process_of_a_worker_joins_without_memory_and_with_what_is_durable() -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(2)
    agents.cut(0, (1,))
    agents.store_all()
    agents.cut(0, (2,))
    agents.dies(0)  # before the second one is written
    join = joined(agents)
    assert (join.incarnation, join.generation, join.alive) == (2, 1, False)
    assert {xi.bound for xi in join.durable} == {(1,)}


def test_a_worker_in_a_round_says_that_it_is_paused() -> None:
    agents = DrivenAgents(counts).begin()
    agents.drain(2)
    assert agents.of[0].phase is WorkerPhase.DRAINING
    assert joined(agents).paused
    agents.deliver(1)
    assert agents.of[0].phase is WorkerPhase.DRAINED
    assert joined(agents).paused
    agents.hear(0, agents.decision(2))
    agents.store_all()
    assert not joined(agents).paused


def test_a_worker_that_is_done_tells_a_new_monitor_so_and_no_other_does() -> None:
    agents = DrivenAgents(counts).begin()
    assert not reported(agents.tell(0, Connected()), Released)
    agents.finish()
    assert reported(agents.tell(0, Connected()), Released) == [Released(Place(0))]


def test_a_worker_that_missed_a_decision_joins_again_once_its_store_has_it() -> None:
    """It has no memory that could go back; what it wrote before is void where the decision says so, and it must know that."""
    agents = DrivenAgents(counts).begin()
    agents.epochs(2)
    for epoch in (1, 2):
        agents.cut(0, (epoch,))
        agents.store_all()
    agents.dies(0)
    joined(agents)
    back = {info.name: (1,) for info in agents.layout.processors}
    effects = agents.hear(0, agents.decision(3, [back, back], catch_up=True))
    assert not of_kind(effects, Rewind)
    assert not reported(effects, Join)
    assert not reported(agents.tell(0, Connected()), Join)  # to yet another monitor: not before
    (join,) = reported(agents.store(0), Join)
    assert (join.generation, join.alive, join.paused) == (3, False, False)
    assert {xi.bound for xi in join.durable} == {(1,)}
    assert agents.of[0].phase is WorkerPhase.JOINING


def test_a_living_worker_carries_out_a_decision_that_is_told_again_to_those_who_missed_it() -> None:
    agents = DrivenAgents(counts).begin()
    agents.drain(2)
    agents.hear(0, agents.decision(2, catch_up=True))
    assert reported(agents.store(0), Restored) == [Restored(Place(0), 2)]


def test_a_living_worker_that_never_heard_of_the_round_drops_the_cuts_of_the_generation_before() -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(1)
    agents.hear(0, Cut(1, 0, (1,)))
    agents.hear(0, agents.decision(2, catch_up=True))
    assert agents.said[0].save is None


def test_a_worker_without_memory_has_nothing_to_drain_and_joins_again() -> None:
    agents = DrivenAgents(counts)
    joined(agents)
    effects = agents.hear(0, Drain(1, (Place(0), Place(1))))
    (join,) = reported(effects, Join)
    assert not join.alive
    assert not of_kind(effects, SendFrame)
    assert agents.of[0].phase is WorkerPhase.JOINING
    assert agents.hear(0, Drain(1, (Place(0), Place(1)))) == []  # that round is known


def test_a_worker_that_cannot_take_part_fails_with_the_reason_of_the_monitor() -> None:
    agents = DrivenAgents(counts)
    assert of_kind(agents.hear(0, Refused("another program")), Fail) == [Fail("another program")]
    assert agents.of[0].refused == "another program"


def test_what_a_decision_made_void_keeps_no_segment_for_the_next_process() -> None:
    """It is read again, with what is needed of its segment; a journal that kept it could never let go of that."""
    agents = DrivenAgents(counts).begin()
    agents.epochs(3)
    for epoch in (1, 2, 3):
        agents.cut(0, (epoch,))
    assert len(agents.writes[0]) == 1  # the other two are written together
    agents.store_all()
    back = {info.name: (2,) for info in agents.layout.processors}
    agents.drain(2, (0,))
    agents.hear(0, agents.decision(2, [back, back]))
    agents.store(0, told=False)
    agents.dies(0)
    count, journal = agents.named("count"), agents.of[0].journal
    assert [("cut", count, (epoch,)) in journal for epoch in (1, 2, 3)] == [True, True, False]
    assert ("opening",) in journal


def test_what_was_written_again_is_read_once() -> None:
    agents = DrivenAgents(counts, 1).begin()
    agents.of[0].journal.small = 1500
    agents.epochs(8)
    agents.save(*range(1, 9))
    assert agents.of[0].journal.carried
    before = joined(agents).durable
    agents.dies(0)
    assert joined(agents).durable == before


def test_a_process_without_memory_comes_back_from_its_store_whatever_it_is_told_of_itself() -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(2)
    agents.save(1)
    agents.dies(0)
    joined(agents)
    back = {info.name: (1,) for info in agents.layout.processors}
    agents.hear(0, agents.decision(2, [back, back]))
    assert set(agents.of[0].recorder.since) == {(1,)}


@pytest.mark.parametrize("ended", [False, True])
def test_only_who_is_done_is_done(ended: bool) -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(1)
    if ended:
        agents.finish()
    assert [said.done for said in agents.said] == [ended, ended]
    assert all(agent.low[w][p][0] == NEVER for agent in agents.of for w in range(2) for p in range(4)) == ended
