"""An agent tells the monitor how far its worker is: often enough, not oftener, and never less than before."""

from __future__ import annotations

from recovery.agent.events import Connected, TurnEnded
from recovery.agent.reports import HEARTBEAT_SECONDS, ITERATION_SECONDS, REPORT_SECONDS
from recovery.metadata import NEVER, everything
from recovery.place import Place
from recovery.protocol import Completed, Cut, Durable, Released, Restored
from tests.recovery.agent.driven import DrivenAgents, counts, eager, logged, looping, reported


def told(agents: DrivenAgents, after: float, quiet: bool = True, worker: int = 0) -> list[Completed]:
    """The report of a worker at the end of a turn, so many seconds after the last event."""
    agents.now += after
    return reported(agents.tell(worker, TurnEnded(quiet, 0.0)), Completed)


def test_a_quiet_worker_that_has_come_further_says_so_but_not_all_the_time() -> None:
    agents = DrivenAgents(counts, 1).begin()
    agents.feed(0, 0, [1])
    agents.turn(0)
    assert told(agents, REPORT_SECONDS / 2) == []
    assert told(agents, REPORT_SECONDS / 2) == [Completed(Place(0), 1, ((1,),))]
    assert told(agents, REPORT_SECONDS) == []  # no further
    agents.feed(0, 1, [1])
    agents.of[0].worker.run()
    assert told(agents, REPORT_SECONDS) == [Completed(Place(0), 1, ((2,),))]


def test_a_quiet_worker_that_has_come_no_further_says_now_and_then_that_it_is_alive() -> None:
    agents = DrivenAgents(counts, 1).begin()
    (first,) = told(agents, HEARTBEAT_SECONDS)
    assert told(agents, HEARTBEAT_SECONDS - 0.01) == []
    assert told(agents, 0.01) == [first]


def test_a_worker_with_an_eager_group_says_at_once_what_it_can_commit() -> None:
    agents = DrivenAgents(eager, 1).begin()
    agents.feed(0, 0, [1])
    agents.of[0].worker.run()
    (said,) = told(agents, 0.0)
    assert said.upto[0] == (1,)


def test_a_busy_worker_says_seldom_that_it_is_alive_and_oftener_where_loops_are_cut() -> None:
    for build, seconds in ((counts, HEARTBEAT_SECONDS), (looping, ITERATION_SECONDS)):
        agents = DrivenAgents(build, 1).begin()
        told(agents, HEARTBEAT_SECONDS)
        agents.feed(0, 0, [5])
        agents.of[0].worker.run(3)
        assert [bool(told(agents, (seconds + 1e-6) / 4, quiet=False)) for _ in range(4)] == [False, False, False, True]


def test_a_busy_worker_says_how_many_iterations_are_over_but_no_more_of_what_is_cut_between_epochs() -> None:
    """Work that waits here may still lead to epochs that progress takes for complete."""
    agents = DrivenAgents(looping, 1).begin()
    depths = [group.depth for group in agents.layout.groups]
    assert sorted(depths) == [1, 2]
    agents.feed(0, 0, [5])
    agents.of[0].worker.run(5)
    (said,) = told(agents, HEARTBEAT_SECONDS, quiet=False)
    inside, outside = said.upto[depths.index(2)], said.upto[depths.index(1)]
    assert (0, 0) < inside < (1, 0)
    assert outside == (0,)


def test_nothing_is_said_of_progress_while_first_frames_are_awaited_or_links_drained() -> None:
    agents = DrivenAgents(counts).begin()
    agents.drain(2)
    assert told(agents, 10.0) == []
    for worker in (0, 1):
        agents.deliver(worker)
    agents.hear(0, agents.decision(2))
    assert told(agents, 10.0) == []


def test_a_new_monitor_hears_at_once_how_far_a_worker_is() -> None:
    agents = DrivenAgents(counts, 1).begin()
    agents.epochs(1)
    agents.tell(0, Connected())
    assert told(agents, 0.0) == [Completed(Place(0), 1, ((1,),))]


def test_what_stays_on_a_worker_is_kept_until_it_is_complete_there() -> None:
    agents = DrivenAgents(counts).begin()
    (edge,) = (edge for edge in agents.layout.edges if edge.kept)
    agents.feed(0, 0, list(range(20)))
    shipments = agents.of[0].recorder.shipments
    assert list(shipments.wanted((edge.edge, 0), (0,)))
    agents.feed(1, 0, [1])
    agents.settle()
    assert not list(shipments.wanted((edge.edge, 0), (0,)))
    assert list(shipments.wanted((edge.edge, 1), (0,)))  # another worker may die


def test_what_is_kept_for_others_stays_within_its_budget() -> None:
    agents = DrivenAgents(counts).begin()
    agents.of[0].recorder.shipments.budget = 1
    agents.feed(0, 0, list(range(20)))
    agents.settle()
    assert agents.of[0].recorder.shipments.size <= 1


# The end


def test_a_worker_is_done_when_everything_is_saved_and_w_holds_it_on_all_workers() -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(1)
    agents.end()
    agents.settle()
    for worker in (0, 1):
        agents.cut(worker, everything(1))
    agents.store_all()
    assert not reported(agents.turn(0), Released)
    agents.raise_to(everything(1), "in", "ones-1", "count")
    assert not reported(agents.turn(0), Released)
    agents.raise_to(everything(1), "out")
    assert reported(agents.turn(0), Released) == [Released(Place(0))]
    assert agents.said[0].done


def test_a_worker_is_not_done_before_its_outputs_are_out() -> None:
    agents = DrivenAgents(counts, 1).begin()
    agents.end()
    agents.settle()
    agents.cut(0, everything(1))
    agents.store_all()
    agents.raise_to(everything(1))
    effects = agents.of[0].worker.effects
    effects.append("an effect that nobody has carried out")  # type: ignore[arg-type]
    assert not reported(agents.turn(0), Released)
    effects.clear()
    assert reported(agents.turn(0), Released)


def test_a_worker_is_not_done_before_a_cut_that_was_asked_for_is_told_of() -> None:
    """A monitor that has just begun asks again for what it does not know to be durable."""
    agents = DrivenAgents(counts, 1).begin()
    agents.end()
    agents.settle()
    agents.cut(0, everything(1))
    agents.store_all()
    agents.hear(0, Cut(1, 0, everything(1)))
    agents.raise_to(everything(1))
    assert not reported(agents.turn(0), Released)
    agents.cut(0, everything(1))
    assert reported(agents.turn(0), Released)


def test_a_worker_is_not_done_before_the_last_decision_is_durable() -> None:
    """The other worker dies at the very end: this one has to say that it has gone along."""
    agents = DrivenAgents(counts).begin()
    agents.end()
    agents.settle()
    for worker in (0, 1):
        agents.cut(worker, everything(1))
    agents.store_all()
    low = ((everything(1),) * 4,) * 2
    agents.dies(1)
    agents.tell(1, Connected())
    agents.drain(2, (0,))
    made = agents.decision(
        2, [{}, {info.name: everything(1) for info in agents.layout.processors}], (1,), watermarks=low
    )
    for worker in (0, 1):
        agents.hear(worker, made)
    agents.deliver(1)
    assert not reported(agents.turn(0), Released)
    assert reported(agents.store(0), Restored) == [Restored(Place(0), 2)]
    assert reported(agents.turn(0), Released) == [Released(Place(0))]


def test_who_is_done_stays_done_and_says_it_once() -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(1)
    agents.finish()
    assert all(said.done for said in agents.said)
    agents.now += 10.0
    assert agents.turn(0) == []


def test_groups_are_told_one_by_one() -> None:
    """The front of a job is further than what waits for it behind an exchange."""
    agents = DrivenAgents(logged, 1).begin()
    agents.epochs(1)
    agents.end()
    agents.of[0].worker.run()
    (said,) = told(agents, 1.0)
    assert {upto[0] for upto in said.upto} == {NEVER}
    assert not reported(agents.take()[0], Durable)
