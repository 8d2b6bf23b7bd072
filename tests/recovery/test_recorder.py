"""The memory of a worker for recovery: what it has sent since it came back, and the logs that it found."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from recovery.metadata import Bound
from recovery.recorder import RESULT, LogEntry, WorkerRecorder, image, last_of
from tests.recovery.layouts import layout
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
    ],
)
def test_the_image_of_a_frontier_and_its_last_time(summary: Summary, bound: Bound, least: Bound, last: Time) -> None:
    assert image(summary, bound) == least
    assert last_of(summary, bound) == last


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
        with pytest.raises(OperatorError, match="which nobody would remember"):
            later()
    with pytest.raises(OperatorError, match="could not find it again after a failure"):
        of.held(BACK, (2,), (3,), 1)
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
