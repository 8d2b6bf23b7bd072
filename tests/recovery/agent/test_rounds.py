"""An agent in a round of rollback: it pauses, waits until its links are empty, says what it holds, and does what is decided."""

from __future__ import annotations

import pytest

from recovery.agent.effects import Acknowledge, Perform, Rewind, Run, SendFrame
from recovery.agent.events import Connected, PieceDue, Received, TurnEnded, for_the_engine
from recovery.agent.state import WorkerPhase
from recovery.place import Place, places
from recovery.protocol import (
    AskCost,
    AskMemory,
    Cost,
    CurrentMemory,
    Cut,
    Drain,
    Drained,
    Durable,
    Restored,
    Unanswered,
)
from tests.recovery.agent.driven import DrivenAgents, counts, logged, of_kind, reported
from timely.data.messages import Frame
from timely.errors import FalkirkError

# The pause


def markers(agents: DrivenAgents, worker: int) -> list[tuple[int, int]]:
    """The end markers on their way from a worker: to whom, and of which round."""
    return [(to, event.frame.ends) for to, event in agents.sent[worker] if event.frame.ends]


def test_a_worker_in_a_round_stops_and_sends_a_marker_to_each_other_that_lives() -> None:
    agents = DrivenAgents(counts, 3).begin()
    assert all(agent.running for agent in agents.of)
    agents.hear(0, Drain(5, (Place(0), Place(2))))
    assert not agents.of[0].running
    assert agents.of[0].round == 5
    assert markers(agents, 0) == [(2, 5)]


def test_a_worker_that_lives_alone_has_no_links_to_wait_for() -> None:
    agents = DrivenAgents(counts).begin()
    (drained,) = reported(agents.hear(0, Drain(5, (Place(0),))), Drained)
    assert (drained.place.worker, drained.round) == (0, 5)
    assert markers(agents, 0) == []


def test_only_when_all_have_sent_their_marker_of_this_round_are_the_links_empty() -> None:
    agents = DrivenAgents(counts, 3).begin()
    everybody = places(3)
    generation = agents.of[0].worker.generation
    agents.hear(0, Drain(5, everybody))
    assert not reported(agents.tell(0, Received(Frame(1, generation, ends=5))), Drained)
    assert not reported(agents.tell(0, Received(Frame(2, generation, ends=4))), Drained)  # of a round that was given up
    assert len(reported(agents.tell(0, Received(Frame(2, generation, ends=5))), Drained)) == 1
    assert agents.of[0].phase is WorkerPhase.DRAINED
    assert agents.tell(0, TurnEnded(True, 0.0)) == []  # it was said


def test_a_marker_that_comes_before_the_word_of_the_monitor_counts_and_a_late_one_does_not_take_it_back() -> None:
    agents = DrivenAgents(counts).begin()
    generation = agents.of[0].worker.generation
    agents.tell(0, Received(Frame(1, generation, ends=5)), Received(Frame(1, generation, ends=3)))
    assert len(reported(agents.hear(0, Drain(5, (Place(0), Place(1)))), Drained)) == 1


def test_the_word_of_a_round_that_is_known_changes_nothing() -> None:
    agents = DrivenAgents(counts).begin()
    agents.drain(5)
    for worker in (0, 1):
        agents.deliver(worker)
    assert agents.of[0].phase is WorkerPhase.DRAINED
    for known in (5, 4):
        assert agents.hear(0, Drain(known, (Place(0), Place(1)))) == []
        assert agents.of[0].phase is WorkerPhase.DRAINED


def test_what_was_on_its_way_arrives_before_anybody_says_what_it_holds() -> None:
    """The three records of an epoch that nobody has completed: what the other worker was sent of them waits there."""
    agents = DrivenAgents(counts).begin()
    agents.feed(0, 0, list(range(20)))
    agents.drain(2)
    assert agents.of[1].worker.queued_bytes == 0
    assert not reported(agents.did[1], Drained)
    agents.deliver(0)
    assert agents.of[1].worker.queued_bytes > 0
    (drained,) = reported(agents.did[1], Drained)
    assert all(memory.upto == (0,) for memory in drained.memory)


def test_a_worker_says_that_it_is_drained_when_what_it_told_of_is_durable() -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(1)
    agents.cut(0, (1,))
    agents.drain(2)
    agents.deliver(1)
    assert not reported(agents.did[0], Durable)
    assert not reported(agents.did[0], Drained)
    effects = agents.store(0)
    assert len(reported(effects, Durable)) == len(reported(effects, Drained)) == 1


def test_a_worker_whose_last_cut_was_durable_already_is_drained_with_its_turn() -> None:
    """A new monitor had asked for it once more; nothing is written, so no store tells that it is."""
    agents = DrivenAgents(counts, 1).begin()
    agents.epochs(1)
    agents.save(1)
    agents.hear(0, Cut(1, 0, (1,)))
    agents.tell(0, PieceDue(10))
    assert reported(agents.hear(0, Drain(2, (Place(0),))), Durable)
    assert reported(agents.tell(0, TurnEnded(True, 0.0)), Drained)


def test_what_was_complete_when_links_were_empty_is_complete_whatever_progress_says_later() -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(2)
    agents.drain(2)
    for worker in (0, 1):
        agents.deliver(worker)
    assert set(agents.of[0].completion.before) == {(2,)}


def test_cuts_that_were_asked_for_and_not_begun_are_void_in_a_round() -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(1)
    agents.hear(0, Cut(1, 0, (1,)))
    assert agents.said[0].save
    agents.drain(2)
    assert agents.of[0].cuts.due == []
    assert agents.said[0].save is None


# What somebody asks meanwhile


def test_a_running_worker_says_what_it_would_hold_and_what_a_decision_would_cost() -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(2)
    (memory,) = reported(agents.hear(0, AskMemory(7)), CurrentMemory)
    assert (memory.place.worker, memory.generation, memory.question) == (0, 1, 7)
    assert {each.upto for each in memory.memory} == {(2,)}
    agents.feed(0, 2, list(range(8)))
    agents.turn(0, worked=3.0)
    agents.turn(0, worked=5.0)  # without anything to do
    (cost,) = reported(agents.hear(0, AskCost(8, agents.decision(2, otherwise="nothing").bounds, ((), ()))), Cost)
    assert (cost.place.worker, cost.generation, cost.question) == (0, 1, 8)
    assert {each.epochs for each in cost.redone} == {2, 3}
    assert sum(each.seconds for each in cost.redone) == pytest.approx(3.0)


def test_a_question_that_cannot_be_answered_fails_alone() -> None:
    agents = DrivenAgents(counts).begin()
    (said,) = reported(agents.hear(0, AskCost(8, (), ((), ()))), Unanswered)
    assert (said.place.worker, said.generation, said.question) == (0, 1, 8)
    assert said.reason.startswith("IndexError: ")
    assert agents.of[0].running


def test_in_a_round_no_question_is_answered() -> None:
    agents = DrivenAgents(counts).begin()
    agents.drain(2)
    assert agents.hear(0, AskMemory(7)) == []


# The decision


def decided(agents: DrivenAgents, bound: tuple[int, ...] | None, failed: tuple[int, ...] = ()) -> list[object]:
    """Links are empty, and all processors of all workers go back to `bound`; what worker 0 does then."""
    generation = agents.of[0].checkpoints.generation + 1
    agents.drain(generation)
    for worker in range(agents.workers):
        agents.deliver(worker)
    back = {} if bound is None else {info.name: bound for info in agents.layout.processors}
    effects: list[object] = []
    for worker in range(agents.workers):
        did = agents.hear(worker, agents.decision(generation, [back] * agents.workers, failed))
        if worker == 0:
            effects = [*did]
    return effects


def test_a_decision_is_carried_out_and_told_of_when_it_is_durable() -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(3)
    agents.save(1)
    effects = decided(agents, (2,))
    agent = agents.of[0]
    (rewind,) = of_kind(effects, Rewind)
    assert [order[0] for order in rewind.sources.values()] == [2]
    assert [frame.place.worker for frame in of_kind(effects, SendFrame)] == [1]
    assert not reported(effects, Restored)
    assert not of_kind(effects, Run)  # before that
    effects = agents.store(0)
    (restored,) = reported(effects, Restored)
    assert (restored.place.worker, restored.generation, restored.resent) == (0, 2, ())
    assert [(each.processor, each.records, each.epochs) for each in restored.redone] == [
        (1, 8, 1),
        (2, 6, 1),
        (3, 3, 1),
    ]
    assert (agent.phase, agent.worker.generation, agent.round) == (WorkerPhase.RUNNING, 2, 2)
    assert of_kind(effects, Run) == [Run(2)]
    assert not agent.running  # before the first frames of all others
    assert set(agent.completion.before) == {(2,)}
    assert agent.completion.reported is None
    agents.settle()
    assert agent.running


def test_a_decision_that_is_known_changes_nothing() -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(2)
    decided(agents, (1,))
    agents.store_all()
    agents.settle()
    agents.take()
    for known in (2, 1):
        assert agents.hear(0, agents.decision(known, otherwise="nothing")) == []
    assert agents.of[0].running


def test_a_living_worker_goes_back_in_memory_and_one_without_memory_from_its_store() -> None:
    for failed in ((), (0, 1)):
        agents = DrivenAgents(counts).begin()
        agents.epochs(3)
        agents.save(2)
        for worker in failed:
            agents.dies(worker)
        decided(agents, (2,), failed)
        assert set(agents.of[0].recorder.since) == {(2,) if failed else (0,)}


def test_a_round_that_ended_with_a_decision_is_known() -> None:
    """A living worker that missed the word of the round hears its decision; then that word comes."""
    agents = DrivenAgents(counts).begin()
    agents.hear(0, agents.decision(4))
    agents.store_all()
    assert agents.hear(0, Drain(4, (Place(0), Place(1)))) == []


def test_a_round_that_was_heard_of_stays_the_newest_when_an_older_decision_comes_late() -> None:
    agents = DrivenAgents(counts).begin()
    agents.drain(5)
    agents.hear(0, agents.decision(4))
    assert agents.of[0].round == 5


def test_a_question_may_come_before_the_first_turn_is_over() -> None:
    agents = DrivenAgents(counts, 1)
    agents.tell(0, Connected())
    agents.hear(0, agents.decision(1, failed=(0,), otherwise="nothing"))
    agents.store_all()
    (cost,) = reported(agents.hear(0, AskCost(1, agents.decision(2).bounds, ((),))), Cost)
    assert cost.redone == ()


def test_a_round_may_come_before_the_first_turn() -> None:
    """A notification that is due has not been found, and what it sends is still to come: nothing more is complete."""
    agents = DrivenAgents(counts, 1).begin()
    agent = agents.of[0]
    agents.feed(0, 0, [1, 2, 3])
    for round in (2, 3):
        (drained,) = reported(agents.hear(0, Drain(round, (Place(0),))), Drained)
        assert drained.memory[agents.named("out")].upto == (0,)
        agents.hear(0, agents.decision(round))
        agents.store_all()
        assert agent.running
        assert agent.begins
    agents.settle()
    assert agent.completion.at(agents.named("out")) == (1,)


def test_a_worker_that_lives_does_not_carry_out_what_was_decided_without_its_memory() -> None:
    """It would go back to what its store has, which others take for lost, while a later process does that, too."""
    agents = DrivenAgents(counts).begin()
    agents.epochs(2)
    before = agents.of[0].completion.at(agents.named("count"))
    agents.drain(2)
    for worker in (0, 1):
        agents.deliver(worker)
    with pytest.raises(
        FalkirkError, match="worker 0 was taken for lost, and generation 2 was decided without its memory"
    ):
        agents.hear(0, agents.decision(2, failed=(0,), otherwise="nothing"))
    assert agents.of[0].completion.at(agents.named("count")) == before == (2,)
    agents.hear(1, agents.decision(2, failed=(0,)))  # of others' it hears


def test_after_a_decision_w_is_what_it_says_and_what_lies_below_goes_out() -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(2)
    agents.save(1)
    low = tuple(tuple((1,) for _ in agents.layout.processors) for _ in range(2))
    agents.drain(2)
    for worker in (0, 1):
        agents.deliver(worker)
    effects = agents.hear(0, agents.decision(2, watermarks=low))
    assert agents.of[0].low == [list(each) for each in low]
    assert of_kind(effects, Acknowledge) == [Acknowledge(0, 1)]
    (performed,) = of_kind(effects, Perform)
    assert {each.time for each in performed.effects} == {(0,)}  # type: ignore[union-attr]


def test_what_a_new_process_finds_below_w_is_published_with_the_first_decision() -> None:
    """It was staged, W rose, and the worker died before it was out."""
    agents = DrivenAgents(counts).begin()
    agents.epochs(2)
    agents.save(1)
    low = tuple(tuple((1,) for _ in agents.layout.processors) for _ in range(2))
    agents.dies(0)
    agents.tell(0, Connected())
    back = {info.name: (1,) for info in agents.layout.processors}
    effects = agents.hear(0, agents.decision(2, [back, back], (0,), watermarks=low))
    (performed,) = of_kind(effects, Perform)
    assert {each.time for each in performed.effects} == {(0,)}  # type: ignore[union-attr]


def test_frames_of_a_generation_that_has_not_begun_here_wait_for_it() -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(1)
    agents.drain(2)
    for worker in (0, 1):
        agents.deliver(worker)
    agents.hear(1, agents.decision(2))
    agents.deliver(1)  # worker 0 has not heard of the decision
    assert [frame.generation for frame in agents.of[0].rounds.early] == [2]
    assert not agents.of[0].running
    agents.hear(0, agents.decision(2))
    assert agents.of[0].rounds.early == []
    assert not agents.of[0].running  # all first frames were here, and its report is not sent
    agents.store_all()
    assert agents.of[0].running


def test_frames_for_a_worker_without_memory_wait_for_its_first_decision() -> None:
    agents = DrivenAgents(counts)
    agents.tell(0, Connected())
    assert not for_the_engine(Frame(1, 0), agents.said[0].generation)
    agents.tell(0, Received(Frame(1, 0)))
    assert [frame.generation for frame in agents.of[0].rounds.early] == [0]


@pytest.mark.parametrize(
    ("frame", "alone"),
    [
        (Frame(1, 1), True),
        (Frame(1, 1, ends=2), False),
        (Frame(1, 1, recovery=b"x"), False),
        (Frame(1, 2), False),
        (Frame(1, 0), False),
    ],
)
def test_of_frames_the_agent_sees_those_that_are_not_the_engines_alone(frame: Frame, alone: bool) -> None:
    assert for_the_engine(frame, DrivenAgents(counts).begin().said[0].generation) == alone


def test_a_worker_goes_back_with_a_log_to_what_its_receiver_lacks() -> None:
    """The back fails on worker 1, the front lives and stays: what it logged goes again, in order, once."""
    agents = DrivenAgents(logged).begin()
    agents.epochs(3)
    agents.drain(2)
    for worker in (0, 1):
        agents.deliver(worker)
    group = agents.layout.processors[agents.named("count")].group
    back = {agents.layout.processors[p].name: (1,) for p in agents.layout.members(group)}
    effects = agents.hear(0, agents.decision(2, [{}, back]))
    (frame,) = (effect.frame for effect in of_kind(effects, SendFrame))
    assert [message.time for message in frame.messages] == [(1,), (2,)]
