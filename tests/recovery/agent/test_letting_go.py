"""An agent hears that W has risen: what it lets go of, what it gives out, and what it keeps."""

from __future__ import annotations

import pytest

from recovery.agent.effects import Acknowledge, Perform, SendFrame
from recovery.agent.events import EpochsEnded, Received
from recovery.epoch_ends import EpochEnds, decode_ends, encode_ends
from recovery.protocol import AskMemory, CurrentMemory, Watermarks
from tests.recovery.agent.driven import DrivenAgents, counts, logged, of_kind, reported
from timely.data.messages import Frame


def test_w_rises_and_never_falls() -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(3)
    agents.save(1, 2)
    count = agents.named("count")
    for said, then in (((2,), (2,)), ((1,), (2,))):
        agents.raise_to(said)
        assert agents.of[0].low[1][count] == then
        assert agents.of[0].low[0][count] == then


def test_outputs_within_w_are_given_out_once_in_order() -> None:
    agents = DrivenAgents(counts, 1).begin()
    agents.epochs(3)
    agents.save(1, 2, 3)
    agents.take()
    given = []
    for epoch in (2, 2, 3):
        agents.raise_to((epoch,))
        did = agents.take()[0]
        given.append([each.time for effect in of_kind(did, Perform) for each in effect.effects])  # type: ignore[union-attr]
    assert given == [[(0,), (1,)], [], [(2,)]]


def test_a_source_hears_once_what_is_never_read_again() -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(3)
    agents.save(1, 3)
    agents.take()
    heard = []
    for epoch in (1, 1, 3):
        agents.raise_to((epoch,))
        heard.append(of_kind(agents.take()[0], Acknowledge))
    assert heard == [[Acknowledge(0, 1)], [], [Acknowledge(0, 3)]]


def test_checkpoints_below_w_go_and_that_at_w_stays() -> None:
    agents = DrivenAgents(counts, 1).begin()
    agents.epochs(3)
    agents.save(1, 2, 3)
    agents.raise_to((2,))
    source = agents.named("in")
    assert [agents.of[0].checkpoints.at(source, (epoch,)) is not None for epoch in (1, 2, 3)] == [False, True, True]


def test_a_log_goes_when_its_own_receiver_will_never_need_it() -> None:
    agents = DrivenAgents(logged).begin()
    for epoch in range(3):
        agents.feed(0, epoch, list(range(50)))
        agents.feed(1, epoch, [])
    agents.settle()
    (edge,) = (edge for edge in agents.layout.edges if edge.logged)
    group = agents.layout.processors[agents.named("count")].group

    def times(receiver: int) -> list[int]:
        return [entry.time[0] for entry in agents.of[0].recorder.logs[edge.edge, receiver]]

    for worker in (0, 1):
        for number in range(len(agents.layout.groups)):
            agents.cut(worker, (2,), number)
    agents.store_all()
    assert [sorted(set(times(receiver))) for receiver in (0, 1)] == [[0, 1, 2]] * 2
    changed = tuple((p, 1, (2,)) for p in agents.layout.members(group))
    agents.hear(0, Watermarks(changed))
    assert [sorted(set(times(receiver))) for receiver in (0, 1)] == [[0, 1, 2], [2]]
    source = agents.layout.processors[agents.named("in")].group
    agents.raise_to((2,), *(agents.layout.processors[p].name for p in agents.layout.members(source)))
    assert [sorted(set(times(receiver))) for receiver in (0, 1)] == [[0, 1, 2], [2]]


def test_what_is_kept_for_another_worker_goes_when_that_one_will_never_need_it() -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(3)
    agents.save(2)
    (edge,) = (edge for edge in agents.layout.edges if edge.kept)
    shipments = agents.of[0].recorder.shipments
    assert shipments.coverage((edge.edge, 1)) == (0,)
    agents.hear(0, Watermarks(((edge.target, 0, (2,)),)))
    assert shipments.coverage((edge.edge, 1)) == (0,)
    agents.hear(0, Watermarks(((edge.target, 1, (2,)),)))
    assert shipments.coverage((edge.edge, 1)) == (2,)


def test_what_operators_were_told_and_counted_below_w_is_forgotten() -> None:
    agents = DrivenAgents(counts, 1).begin()
    agents.epochs(3)
    agents.save(2)
    count = agents.named("count")
    assert sorted(agents.of[0].recorder.handled[count]) == [(0,), (1,), (2,)]
    agents.raise_to((2,))
    assert sorted(agents.of[0].recorder.handled[count]) == [(2,)]


# Ends of epochs that a clock has cut


def ends(worker: int, upto: int, local_only: bool = False, begin: int = 0) -> EpochEnds:
    return EpochEnds(worker, 0, begin, upto, (("all", tuple((n, 10 * n) for n in range(begin, upto))),), local_only)


def told(agents: DrivenAgents, worker: int) -> list[tuple[int, tuple[EpochEnds, ...]]]:
    frames = of_kind(agents.take()[worker], SendFrame)
    return [(each.place.worker, decode_ends(each.frame.recovery)) for each in frames if each.frame.recovery]


def known(agents: DrivenAgents, worker: int) -> tuple[EpochEnds, ...]:
    (memory,) = reported(agents.hear(worker, AskMemory(1)), CurrentMemory)
    return memory.ends


def test_all_others_hear_where_the_epochs_of_a_source_have_ended() -> None:
    agents = DrivenAgents(counts, 3).begin()
    agents.tell(0, EpochsEnded((ends(0, 2),)))
    assert told(agents, 0) == [(1, (ends(0, 2),)), (2, (ends(0, 2),))]
    agents.deliver(0)
    assert [known(agents, worker) for worker in (0, 1, 2)] == [(ends(0, 2),)] * 3


def test_what_only_this_process_can_read_again_is_of_no_use_to_others() -> None:
    agents = DrivenAgents(counts).begin()
    agents.tell(0, EpochsEnded((ends(0, 2, local_only=True),)))
    assert told(agents, 0) == []
    assert known(agents, 0) == (ends(0, 2, local_only=True),)


def test_ends_that_were_told_in_another_generation_are_void() -> None:
    """All that was read then is read again, perhaps in other epochs."""
    agents = DrivenAgents(counts).begin()
    late = Frame(1, 0, recovery=encode_ends([ends(1, 2)]))
    agents.tell(0, Received(late))
    assert known(agents, 0) == ()


def test_ends_below_w_are_forgotten() -> None:
    agents = DrivenAgents(counts, 1).begin()
    agents.epochs(3)
    agents.save(2)
    agents.tell(0, EpochsEnded((ends(0, 3),)))
    agents.raise_to((2,))
    assert known(agents, 0) == (ends(0, 3, begin=2),)


@pytest.mark.parametrize("failed", [False, True])
def test_after_a_decision_those_ends_are_known_that_it_names_and_what_a_survivor_alone_can_read(failed: bool) -> None:
    agents = DrivenAgents(counts).begin()
    agents.epochs(2)
    agents.save(1)
    agents.tell(0, EpochsEnded((ends(0, 2, local_only=True),)))
    agents.tell(0, Received(Frame(1, 1, recovery=encode_ends([ends(1, 2)]))))
    lost = (0,) if failed else ()
    for worker in lost:
        agents.dies(worker)
    agents.drain(2)
    for worker in (0, 1):
        agents.deliver(worker)
    back = {info.name: (1,) for info in agents.layout.processors}
    for worker in (0, 1):
        agents.hear(worker, agents.decision(2, [back, back], lost, ends=(ends(1, 1),)))
    agents.store_all()
    agents.settle()
    assert known(agents, 0) == ((ends(1, 1),) if failed else (ends(0, 2, local_only=True), ends(1, 1)))


def test_ends_of_epochs_that_are_read_anew_are_void() -> None:
    """A source that goes back before all that is known of it may end its epochs elsewhere."""
    agents = DrivenAgents(counts, 1).begin()
    agents.epochs(3)
    agents.save(1)
    agents.tell(0, EpochsEnded((ends(0, 3, begin=2, local_only=True),)))
    agents.drain(2)
    agents.hear(0, agents.decision(2, [{info.name: (1,) for info in agents.layout.processors}]))
    agents.store_all()
    agents.settle()
    assert known(agents, 0) == ()
