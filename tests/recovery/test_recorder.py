"""The memory of a worker for recovery: what it has sent since it came back, and the logs that it found."""

from __future__ import annotations

import pytest

from recovery.metadata import Bound
from recovery.recorder import LogEntry, WorkerRecorder, image, last_of
from tests.recovery.layouts import layout
from timely.data.messages import Message
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
