"""The memory of a worker for recovery: what it has sent since it came back, and the logs that it found."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from recovery.memory.channels import _LOOKED_AT, _MESSAGE_BYTES
from recovery.memory.recorder import WorkerRecorder
from recovery.memory.records import RESULT, LogEntry
from recovery.metadata import MORE, Bound, image, last_of
from tests.recovery.layouts import layout
from timely.data.batch import nbytes
from timely.data.codec import encode_batch
from timely.data.codec.batches import ARROW
from timely.data.messages import Message
from timely.errors import CodecError, OperatorError
from timely.time import INF, Summary, Time

FRONT, BACK = 0, 1


def recorder(edges: str, workers: int = 1) -> WorkerRecorder:
    return WorkerRecorder(layout("front source, back chain", edges, workers), 0)


def test_what_was_sent_before_a_restore_from_the_store_counts_as_discarded() -> None:
    """Nothing of it is known here, and the receiver needs all of it: D̄(e, ⊤) must not be less than it was."""
    of = recorder("front>back")
    of.sent(FRONT, 0, (4,), (4,), [1])
    assert of.sent_bounds(FRONT) == ((5,),)
    of.restored(FRONT, (3,), ())
    assert of.sent_bounds(FRONT) == of.discards(FRONT, (3,)) == ((3,),)
    of.restored(FRONT, (2,), None)
    assert of.sent_bounds(FRONT) == ((2,),)
    assert of.discards(FRONT, (1,)) == ((1,),)


def test_a_logged_edge_has_discarded_nothing() -> None:
    of = recorder("front|back")
    of.restored(FRONT, (3,), ())
    of.sent(FRONT, 0, (4,), (4,), [1])
    assert of.sent_bounds(FRONT) == of.discards(FRONT, (5,)) == ((0,),)
    assert len(of.logged) == 1
    assert not recorder("front>back").logged


@pytest.mark.parametrize("parts", [[b"ab"], [b"a", b"b"], [b"", b"a", b"b"]])
def test_a_message_in_parts_is_logged_whole(parts: list[bytes]) -> None:
    of = recorder("front|back", 2)
    (edge,) = of.logged
    of.shipped(1, Message(edge, 1, (2,), (2,), b"header", list(parts)))
    (entry,) = of.logs[edge, 1]
    assert bytes(entry.payload) == b"ab"
    again = entry.message()
    assert (again.number, again.event, again.time, b"".join(again.payload)) == (1, (2,), (2,), b"ab")


def test_numbers_within_a_worker_go_on_behind_those_of_its_log() -> None:
    of = recorder("front|back")
    (edge,) = of.logged
    for number in (5, 3):
        of.recall(LogEntry(edge, 0, number, (1,), (1,), batch=[number]))
    of.kept(edge, (2,), (2,), [6])
    of.kept(edge, (2,), (2,), [7])
    assert [entry.number for entry in of.logs[edge, 0]] == [5, 3, 6, 7]


@pytest.mark.parametrize(
    ("summary", "bound", "least", "last"),
    [
        (Summary.identity(1), (3,), (3,), (2,)),
        (Summary.identity(1), (0,), (0,), ()),
        (Summary.identity(2), (3, 0), (3, 0), (2, INF)),
        (Summary.identity(2), (3, 2), (3, 2), (3, 1)),
        (Summary.egress(2), (3, 1), (4,), (3,)),
        (Summary.feedback(2), (3, 2), (3, 3), (3, 2)),
        (Summary.feedback(2, by=3), (3, 2), (3, 5), (3, 4)),
        (Summary.feedback(2, by=2), (3, 1), (3, 3), (3, 2)),
        (Summary.feedback(2, by=2), (3, 0), (3, 0), (2, INF)),
        (Summary.feedback(2, by=2), (3, 7, MORE, 1), (3, 9, MORE, 3), (4, 2)),
        (Summary.feedback(3), (3, 7, 0), (3, 7, 0), (3, 6, INF)),
        (Summary.feedback(3, by=2), (3, 7, 1), (3, 7, 3), (3, 7, 2)),
        (Summary.egress(2), (3, 7, MORE, 5), (5,), (4,)),
        (Summary.identity(2), (3, 7, MORE, 5), (3, 7, MORE, 5), (4, 4)),
        (Summary.feedback(2), (3, 7, MORE, 5, MORE, 1), (3, 8, MORE, 6, MORE, 2), (5, 1)),
    ],
)
def test_the_image_of_a_frontier_and_its_last_time(summary: Summary, bound: Bound, least: Bound, last: Time) -> None:
    assert image(summary, bound) == least
    assert last_of(summary, bound) == last


def test_capabilities_of_a_checkpoint_come_in_the_order_of_their_times() -> None:
    plan = layout("front source, back chain", "front>back")
    back = replace(plan.processors[BACK], finds_capabilities=True)
    of = WorkerRecorder(replace(plan, processors=(plan.processors[FRONT], back)), 0)
    for time in (7, 5, 6, 5):
        of.held(BACK, (2,), (time,), 1)
    of.held(BACK, (2,), (6,), -1)
    assert of.held_at(BACK, (3,)) == (((5,), 2), ((7,), 1))


def test_messages_leave_by_the_recorder_where_they_are_logged_or_kept() -> None:
    assert len(recorder("front|back").shipping) == 1
    assert len(keeping().shipping) == 1
    assert not recorder("front>back").shipping
    assert keeping().keeping == keeping().shipping
    assert not recorder("front|back").keeping, "a log is kept for longer than what is sent beside it"


def keeping(index: int = 0) -> WorkerRecorder:
    """Of one worker of two, with one edge on which messages are kept."""
    return WorkerRecorder(layout("front source, back chain", "front=>back", 2, kept=True), index)


def test_one_of_so_many_batches_that_stay_is_looked_at_to_learn_what_a_record_takes() -> None:
    of = keeping()
    (edge,) = of.shipping

    def size(number: int, batch: list[str]) -> int:
        return of._bytes_of(edge, [((1,), (1,), number, None, batch)]) - _MESSAGE_BYTES

    long, short = ["two" * 100] * 10, ["x"] * 5
    assert size(1, long) == nbytes(long)
    assert size(_LOOKED_AT, short) == nbytes(long) // 2
    assert size(_LOOKED_AT + 1, short) == nbytes(short)
    assert size(_LOOKED_AT + 2, long) == 2 * nbytes(short)
    assert size(3 * _LOOKED_AT, []) == 0
    assert size(4 * _LOOKED_AT, ["one"]) == nbytes(["one"])


def test_a_message_that_is_kept_counts_with_what_it_takes_beside_its_payload() -> None:
    of = keeping()
    (edge,) = of.shipping
    of.shipped(1, Message(edge, 1, (2,), (2,), b"header", [b"payload"]))
    sizes = {channel: (count, size) for channel, count, size in of.shipments.sizes()}
    assert sizes[edge, 1] == (1, _MESSAGE_BYTES + len(b"payload"))


@pytest.mark.parametrize("index", [0, 1])
def test_what_stays_on_a_worker_is_kept_as_what_its_own_share_is(index: int) -> None:
    of = keeping(index)
    (edge,) = of.shipping
    of.kept(edge, (2,), (2,), ["here"])
    of.shipped(1 - index, Message(edge, 1, (2,), (2,), b"header", [b"th", b"ere"]))
    (_, _, _, _, here), *none = of.shipments.wanted((edge, index), (0,))
    assert (here, none) == (["here"], [])
    ((_, _, _, _, there),) = of.shipments.wanted((edge, 1 - index), (0,))
    assert there == b"there"


def test_a_message_on_an_edge_that_leads_ahead_is_logged_or_kept_and_numbers_tell_the_order_of_both() -> None:
    """In the log it is found by whoever comes back, too; kept beside that, it would be sent twice."""
    plan = layout("front source, back chain", "front=>back", 2, kept=True)
    of = WorkerRecorder(replace(plan, edges=(replace(plan.edges[0], ahead=True),)), 0)
    (edge,) = of.shipping
    sent = [((1,), (1,)), ((1,), (4,)), ((2,), (2,)), ((2,), (3,)), ((3,), (3,))]
    for number, (event, time) in enumerate(sent):
        of.kept(edge, event, time, [number])
        of.shipped(1, Message(edge, number, event, time, b"header", [b"payload"]))
    for worker in (0, 1):
        logged = [(entry.number, entry.event, entry.time) for entry in of.logs[edge, worker]]
        kept = [(number, event, time) for event, time, number, *_ in of.shipments.wanted((edge, worker), (0,))]
        assert [each[1:] for each in logged] == [each for each in sent if each[0] != each[1]]
        assert [each[1:] for each in kept] == [each for each in sent if each[0] == each[1]]
        assert [each[1:] for each in sorted(logged + kept)] == sent


def test_what_is_kept_goes_back_with_its_sender_and_what_came_before_a_store_is_not_known() -> None:
    for from_store in (False, True):
        of = keeping()
        (edge,) = of.shipping
        for number in range(5):
            of.shipped(1, Message(edge, number, (number,), (number,), b"header", [b"payload"]))
        of.restored(FRONT, (3,), () if from_store else None)
        coverage = (3,) if from_store else (0,)
        assert of.kept_bounds(FRONT) == ((coverage, coverage),)
        assert [each[1] for each in of.shipments.wanted((edge, 1), (0,))] == ([] if from_store else [(0,), (1,), (2,)])


def test_capabilities_that_later_events_kept_are_gone_with_them() -> None:
    plan = layout("front source, back chain", "front>back")
    back = replace(plan.processors[BACK], finds_capabilities=True)
    of = WorkerRecorder(replace(plan, processors=(plan.processors[FRONT], back)), 0)
    of.held(BACK, (2,), (7,), 1)
    of.held(BACK, (4,), (9,), 1)
    of.restored(BACK, (3,), None)
    assert of.held_at(BACK, (6,)) == (((7,), 1),)


def test_what_is_sent_where_nobody_is_says_nothing() -> None:
    of = recorder("front>back")
    of.sent(BACK, 0, (1,), (1,), [1])
    assert of.sent_bounds(BACK) == ()


def test_a_job_for_a_later_time_is_refused_where_it_is_started() -> None:
    of = recorder("front|back")
    of.started(BACK, (2,), (2,))
    with pytest.raises(OperatorError, match=r"starts a job for \(3,\) in an event at \(2,\)"):
        of.started(BACK, (2,), (3,))


def test_what_an_any_processor_leaves_for_a_later_time_is_refused_where_it_is_left() -> None:
    of = WorkerRecorder(layout("front any, back chain", "front>back"), 0)
    for later in (
        lambda: of.sent(FRONT, 0, (2,), (3,), [1]),
        lambda: of.requested(FRONT, (2,), (3,)),
        lambda: of.held(FRONT, (2,), (3,), 1),
    ):
        with pytest.raises(OperatorError, match=r"which nobody would remember.*: leave out stateful=False$"):
            later()
    with pytest.raises(OperatorError, match="could not find it again after a failure"):
        of.held(BACK, (2,), (3,), 1)
    bare = layout("front any, back chain", "front>back")
    bare = replace(bare, processors=(replace(bare.processors[0], bare=True), *bare.processors[1:]))
    with pytest.raises(OperatorError, match=r"remember after a failure: give it Lazy\(\) or Batch\(\) by"):
        WorkerRecorder(bare, 0).sent(FRONT, 0, (2,), (3,), [1])
    of.sent(FRONT, 0, (2,), (2,), [1])
    of.requested(FRONT, (2,), (2,))
    of.held(FRONT, (2,), (2,), 1)


def test_an_any_processor_may_ask_for_a_later_iteration_of_an_epoch_that_is_cut_as_a_whole() -> None:
    of = WorkerRecorder(layout("front any2, back chain2", "front>back"), 0)
    of.requested(FRONT, (2, 0), (2, 3))
    assert of.requests(FRONT, (2, 1)) == (((2, 0), (2, 3)),)
    with pytest.raises(OperatorError, match="asked for a notification"):
        of.requested(FRONT, (2, 0), (3, 0))


def test_a_history_has_results_of_jobs_and_knows_what_was_kept_beside_state() -> None:
    plan = layout("front source, back chain", "front=>back")
    of = WorkerRecorder(replace(plan, processors=(plan.processors[0], replace(plan.processors[1], history=True))), 0)
    keeps = [True, False]
    of.beside[BACK] = lambda: keeps.pop(0)
    of.delivered(BACK, 0, (1,), [5])
    of.completed(BACK)
    of.resulted(BACK, (1,), "found")
    of.completed(BACK)
    of.resulted(FRONT, (1,), "not kept")
    of.completed(FRONT)
    history = [(each.order, each.port, each.time, each.what, each.beside) for each in of.histories[BACK]]
    assert history == [(1, 0, (1,), [5], True), (2, RESULT, (1,), "found", False)]


def test_an_entry_of_the_log_gives_its_batch_back_however_it_was_kept() -> None:
    header, parts = encode_batch([1, "two"])
    whole = b"".join(bytes(part) for part in parts)
    damaged = LogEntry(0, 1, 1, (1,), (1,), ARROW, b"no table")
    with pytest.raises(CodecError):
        damaged.message()  # whoever gets it would trust it
    assert LogEntry(0, 1, 1, (1,), (1,), header, whole).content() == [1, "two"]
    assert LogEntry(0, 0, 1, (1,), (1,), batch=[3]).content() == [3]
