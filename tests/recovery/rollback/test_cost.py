"""The cost of a supposed rollback on one worker: messages that would go again, and records that would be handled again."""

from __future__ import annotations

from recovery.memory.recorder import WorkerRecorder
from recovery.metadata import Bound
from recovery.place import Place
from recovery.protocol import AskCost, Redone, Resent
from recovery.rollback.queues import cost
from tests.recovery.layouts import layout
from timely.data.batch import nbytes
from timely.data.messages import Message

PLAN = layout("front chain, back chain", "front|back", 2)
FRONT, BACK = 0, 1
BATCH = [[1, 2, 3]]


def recorder() -> WorkerRecorder:
    """Front has sent five epochs to both workers, and back has handled three records of each."""
    found = WorkerRecorder(PLAN, 0)
    (edge,) = found.logged
    for epoch in range(5):
        found.shipped(1, Message(edge, epoch + 1, (epoch,), (epoch,), b"", [b"payload"]))
        found.kept(edge, (epoch,), (epoch,), BATCH)
        found.delivered(BACK, 0, (epoch,), [0, 0])
        found.delivered(BACK, 0, (epoch,), [0])
    return found


def asked(
    of: WorkerRecorder, front: Bound | None, back: tuple[Bound | None, Bound | None], failed: tuple[int, ...] = ()
) -> tuple[tuple[Resent, ...], tuple[Redone, ...]]:
    question = AskCost(7, ((front, back[0]), (None, back[1])), (failed, ()))
    found = cost(question, PLAN, of, Place(0), 3, 30.0)
    assert (found.place.worker, found.generation, found.question) == (0, 3, 7)
    return found.resent, found.redone


def test_who_goes_back_is_sent_again_what_it_forgets_and_handles_it_again() -> None:
    size = nbytes(BATCH)
    resent, redone = asked(recorder(), None, ((2,), (4,)))
    assert resent == (Resent(0, 0, 3, 3 * size), Resent(0, 1, 1, len(b"payload")))
    assert redone == (Redone(BACK, 9, 3, 9 * 30.0 / 15),)


def test_who_stays_is_sent_again_the_log_of_one_that_loses_its_memory_only() -> None:
    assert asked(recorder(), None, (None, None)) == ((), ())
    resent, redone = asked(recorder(), (3,), (None, None), failed=(FRONT,))
    assert [(each.receiver, each.messages) for each in resent] == [(0, 3), (1, 3)]
    assert redone == ()


def test_nothing_done_costs_nothing() -> None:
    of = WorkerRecorder(PLAN, 0)
    assert asked(of, (0,), ((0,), (0,))) == ((), ())
    of.delivered(BACK, 0, (1,), [])
    assert asked(of, (0,), ((1,), (0,))) == ((), (Redone(BACK, 0, 1, 0.0),))
