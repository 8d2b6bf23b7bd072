"""An agent makes cuts: piece by piece, each told of when it is durable, and those of eager groups by itself."""

from __future__ import annotations

from msgspec.structs import replace

from recovery.agent.agent import Agent
from recovery.agent.effects import Acknowledge, Delete, Perform, Put, Save, Saved
from recovery.agent.events import Connected, PieceDue, TurnEnded
from recovery.checkpoint.checkpoints import PIECE_ROWS
from recovery.metadata import everything
from recovery.protocol import Completed, Cut, Durable
from tests.recovery.agent.driven import DrivenAgents, counts, eager, logged, of_kind, passing, reported, timed


def unwritten(agent: Agent) -> int:
    return agent.cuts.unwritten + agent.journal.unwritten


def large(agents: DrivenAgents, keys: int = 20) -> None:
    """An epoch that leaves so many counts behind."""
    agents.feed(0, 0, list(range(keys)))
    agents.settle()
    agents.take()


def test_a_cut_is_made_piece_by_piece_and_told_of_when_all_of_it_is_durable() -> None:
    agents = DrivenAgents(counts, 1).begin()
    large(agents)
    agent = agents.of[0]
    agents.hear(0, Cut(1, 0, (1,)))
    assert agents.said[0].save
    saved = []
    while agents.said[0].save:
        assert not of_kind(agents.tell(0, PieceDue(4)), Put)
        saved.append(agent.checkpoints.saved_rows)
    assert saved[:3] == [4, 8, 12]
    agents.turn(0)
    assert agent.reports.waits_for_store()  # it is on its way
    sent = agents.take()[0]
    assert not reported(sent, Durable)
    (durable,) = reported(agents.store(0), Durable)
    assert (durable.place.worker, durable.generation, durable.group, durable.at) == (0, 1, 0, (1,))
    assert {agents.layout.processors[xi.processor].name for xi in durable.xis} == {"in", "count", "out"}
    assert {xi.bound for xi in durable.xis} == {(1,)}
    (put,) = of_kind(sent, Put)
    assert durable.size == sum(memoryview(part).nbytes for part in put.parts)
    assert not agent.reports.waits_for_store()


def test_a_cut_tells_how_long_each_part_of_it_took() -> None:
    """Until it was begun, until its pieces were made, until it was durable; and the next one from when that was asked for."""
    agents = DrivenAgents(counts).begin()
    agents.epochs(3)
    for epoch, (waits, makes, writes) in ((1, (3.0, 4.0, 5.0)), (2, (1.0, 0.0, 7.0))):
        agents.take()
        agents.hear(0, Cut(1, 0, (epoch,)))
        agents.now += waits
        agents.tell(0, PieceDue(1))
        agents.now += makes
        while agents.said[0].save:
            agents.tell(0, PieceDue(PIECE_ROWS))
        agents.turn(0)
        agents.now += writes
        agents.store(0)
        (said,) = reported(agents.take()[0], Durable)
        assert (said.waited, said.made, said.written) == (waits, makes, writes)


def test_pieces_are_of_the_size_that_the_driver_asks_for() -> None:
    agents = DrivenAgents(counts, 1).begin()
    large(agents)
    agents.hear(0, Cut(1, 0, (1,)))
    agents.tell(0, PieceDue(1000))
    while agents.said[0].save:
        agents.tell(0, PieceDue(1000))
    assert agents.of[0].checkpoints.saved_rows == 40  # 20 counts, and 20 records that were staged
    assert agents.of[0].checkpoints.piece_rows == 1000


def test_the_driver_brings_where_sources_are_with_the_first_piece_of_a_cut() -> None:
    agents = DrivenAgents(counts, 1).begin()
    agents.epochs(1)
    source = agents.named("in")
    assert of_kind(agents.hear(0, Cut(1, 0, (1,))), Save) == [Save(None, ((source, 1),))]
    effects = agents.tell(0, PieceDue(1))
    assert of_kind(effects, Saved) == [Saved(1, over=False)]
    assert of_kind(effects, Save) == [Save(None)]  # they are known now
    agents.cut(0, (1,))
    assert [each.position for each in agents.of[0].checkpoints.at(source, (1,)).positions] == [1]  # type: ignore[union-attr]


def test_a_cut_that_is_asked_for_again_is_told_again_without_a_write() -> None:
    agents = DrivenAgents(counts, 1).begin()
    agents.epochs(1)
    agents.save(1)
    did = agents.take()[0]
    (before,) = reported(did, Durable)
    agents.cut(0, (1,))
    did = agents.take()[0]
    assert reported(did, Durable) == [replace(before, size=0)]
    assert not of_kind(did, Put)


def test_of_cuts_that_are_due_the_most_impatient_says_how_much_time_there_is() -> None:
    agents = DrivenAgents(timed, 1).begin()
    agents.epochs(1)
    assert agents.said[0].save is None
    for name, seconds in (("in", None), ("first", 3.0), ("second", 0.5)):
        agents.hear(0, Cut(1, agents.layout.processors[agents.named(name)].group, (1,)))
        assert agents.said[0].save.every == seconds  # type: ignore[union-attr]
    left = []
    while agents.said[0].save:
        agents.tell(0, PieceDue(1))
        left.append(agents.said[0].save and agents.said[0].save.every)
    assert left[0] == left[-2] == 0.5  # the last one is the most impatient, and is made in several pieces
    assert left[-1] is None


def test_what_is_made_and_not_durable_is_counted() -> None:
    agents = DrivenAgents(counts, 1).begin()
    large(agents, 200)
    agent = agents.of[0]
    assert unwritten(agent) == 0
    agents.hear(0, Cut(1, 0, (1,)))
    sizes = []
    while agents.said[0].save:
        agents.tell(0, PieceDue(50))
        sizes.append(unwritten(agent))
    assert sizes == sorted(sizes)
    assert 0 < sizes[0] < sizes[1] < sizes[-1]
    agents.turn(0)
    assert unwritten(agent) == sizes[-1]  # it is on its way
    agents.store(0)
    assert unwritten(agent) == 0


def test_there_is_one_write_at_a_time_and_what_comes_meanwhile_goes_into_the_next() -> None:
    agents = DrivenAgents(counts, 1).begin()
    agents.epochs(2)
    agents.cut(0, (1,))
    agents.cut(0, (2,))
    assert len(agents.writes[0]) == 1
    first = agents.store(0)
    assert [message.at for message in reported(first, Durable)] == [(1,)]
    assert len(of_kind(first, Put)) == 1
    assert [message.at for message in reported(agents.store(0), Durable)] == [(2,)]
    assert not agents.writes[0]


def test_segments_that_nobody_needs_are_removed_though_nothing_is_to_be_written() -> None:
    agents = DrivenAgents(passing, 1).begin()
    agents.of[0].journal.idle_release = 1
    agents.epochs(3)
    agents.save(1, 2, 3)
    agents.take()
    agents.raise_to((3,))
    assert len(agents.writes[0]) == 1  # a segment that says which others are not needed
    agents.store_all()
    assert len(of_kind(agents.take()[0], Delete)) == 2


def test_what_was_published_is_told_with_the_next_segment_and_is_no_reason_for_one() -> None:
    agents = DrivenAgents(counts, 1).begin()
    agents.epochs(2)
    agents.save(1)
    agents.raise_to((1,))
    agents.turn(0)
    assert not agents.writes[0]
    agents.save(2)
    agents.dies(0)
    agents.tell(0, Connected())
    back = {info.name: (2,) for info in agents.layout.processors}
    effects = agents.hear(0, agents.decision(2, [back], (0,), watermarks=(((2,),) * len(agents.layout.processors),)))
    (performed,) = of_kind(effects, Perform)
    assert {each.time for each in performed.effects} == {(1,)}  # type: ignore[union-attr]


def test_what_is_still_needed_of_old_segments_is_written_again_and_old_decisions_are_forgotten() -> None:
    """Otherwise the first segment, which says of which program the journal is, would keep all decisions for ever."""
    agents = DrivenAgents(passing, 1).begin()
    journal = agents.of[0].journal
    journal.small = 1700
    for generation in range(2, 12):
        agents.drain(generation)
        agents.hear(0, agents.decision(generation))
        agents.store_all()
        agents.settle()
        agents.epochs(1)
        agents.save(generation - 1)
        agents.raise_to((generation - 1,))
    agents.store_all()
    assert ("opening",) in journal
    assert [("applied", generation) in journal for generation in (2, 11)] == [False, True]


# Eager groups


def committed(agents: DrivenAgents, epoch: int) -> list[object]:
    """The worker reads an epoch, and ends its turn."""
    agents.feed(0, epoch, [1, 2, 3])
    return [*agents.turn(0)]


def test_an_eager_group_is_cut_as_soon_as_an_epoch_is_complete_and_written_in_the_same_turn() -> None:
    agents = DrivenAgents(eager, 1).begin()
    effects = committed(agents, 0)
    assert len(of_kind(effects, Put)) == 1
    assert not agents.said[0].save
    (durable,) = reported(agents.store(0), Durable)
    assert durable.at == (1,)
    assert durable.group in agents.of[0].eager


def test_what_is_committed_is_not_committed_again() -> None:
    agents = DrivenAgents(eager, 1).begin()
    committed(agents, 0)
    agents.store_all()
    agents.settle()
    agents.take()
    agents.settle()
    assert not reported(agents.take()[0], Durable)


def test_what_becomes_complete_during_a_commit_goes_into_the_next_one_as_one() -> None:
    agents = DrivenAgents(eager, 1).begin()
    committed(agents, 0)
    for epoch in (1, 2, 3):
        assert not of_kind(committed(agents, epoch), Put)
    agents.store(0)
    effects = agents.turn(0)
    assert len(of_kind(effects, Put)) == 1
    assert [message.at for message in reported(agents.store(0), Durable)] == [(4,)]


def test_a_commit_of_a_group_that_nothing_can_take_back_is_published_and_acknowledged_at_once() -> None:
    agents = DrivenAgents(eager, 1).begin()
    committed(agents, 0)
    effects = agents.store(0)
    (performed,) = of_kind(effects, Perform)
    assert [each.batch for each in performed.effects] == [[1, 2, 3]]  # type: ignore[union-attr]
    assert [effect.epoch for effect in of_kind(effects, Acknowledge)] == [1]


def test_what_was_published_with_a_commit_is_not_published_by_the_next_process() -> None:
    agents = DrivenAgents(eager, 1).begin()
    for epoch in (0, 1):
        committed(agents, epoch)
        agents.store(0)
    agents.dies(0)
    agents.tell(0, Connected())
    back = {info.name: (2,) if info.policy == "Eager" else (0,) for info in agents.layout.processors}
    low = tuple(back[info.name] for info in agents.layout.processors)
    effects = agents.hear(0, agents.decision(2, [back], (0,), watermarks=(low,)))
    assert [each.time for effect in of_kind(effects, Perform) for each in effect.effects] == [(1,)]  # type: ignore[union-attr]


def test_nobody_behind_an_eager_group_sees_what_is_not_committed() -> None:
    agents = DrivenAgents(eager, 1).begin()
    count = agents.of[0].worker.runtimes[agents.named("count")].operator
    committed(agents, 0)
    assert agents.of[0].recorder.handled[agents.named("count")] == {}
    agents.store(0)
    agents.turn(0)
    assert agents.of[0].recorder.handled[agents.named("count")]
    assert count is agents.of[0].worker.runtimes[agents.named("count")].operator


def test_gates_are_open_after_a_rollback_for_what_is_durable_and_was_not_taken_back() -> None:
    agents = DrivenAgents(eager, 1).begin()
    for epoch in range(3):
        committed(agents, epoch)
        agents.store_all()
        agents.turn(0)
    agents.store_all()
    (gate,) = agents.of[0].worker.gates
    assert agents.of[0].worker.gates[gate] == (3,)
    agents.drain(2)
    agents.hear(0, agents.decision(2, [{info.name: (2,) for info in agents.layout.processors}]))
    assert agents.of[0].worker.gates[gate] == (2,)


def test_a_lazy_group_of_the_same_worker_waits_until_it_is_told() -> None:
    agents = DrivenAgents(eager, 1).begin()
    committed(agents, 0)
    agents.store_all()
    agents.settle()
    assert {message.group for message in reported(agents.take()[0], Durable)} == set(agents.of[0].eager)


def test_a_worker_without_an_eager_group_cuts_nothing_by_itself() -> None:
    agents = DrivenAgents(counts, 1).begin()
    agents.epochs(3)
    did = agents.take()[0]
    assert reported(did, Completed)
    assert not of_kind(did, Put)
    agents.end()
    agents.settle()
    assert not of_kind(agents.tell(0, TurnEnded(True, 0.0)), Put)
    assert agents.of[0].completion.reported == (everything(1),)


def test_with_a_group_its_own_logs_are_saved_and_no_others() -> None:
    """Those of the group in front may be of epochs of which more is to come there, which could not be told from these."""
    agents = DrivenAgents(logged, 1).begin()
    agents.epochs(2)
    groups = [agents.layout.processors[agents.named(name)].group for name in ("count", "same")]
    (log,) = agents.of[0].recorder.logs.values()
    assert len(log) == 2
    for group, saved in zip(groups, (False, True)):
        agents.cut(0, (2,), group)
        agents.store_all()
        assert [entry.durable for entry in log] == [saved] * 2
