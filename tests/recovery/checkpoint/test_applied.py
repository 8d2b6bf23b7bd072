"""The decisions that a worker has carried out: what they make void, and which of them counts as the last."""

from __future__ import annotations

from recovery.checkpoint.applied import AppliedDecisions
from recovery.checkpoint.records import Applied
from recovery.store.journal import Journal


def decisions() -> tuple[AppliedDecisions, Journal]:
    journal = Journal("worker-0", b"store")
    return AppliedDecisions(journal), journal


def test_a_new_worker_has_applied_none() -> None:
    assert decisions()[0].generation == 0


def test_the_newest_counts_in_whatever_order_they_are_read() -> None:
    """An older one is written again where it is still of use, behind the newest."""
    applied, journal = decisions()
    for generation in (2, 5, 3):
        applied.load(Applied(generation, (None,)))
    assert applied.generation == journal.generation == 5


def test_nothing_of_a_processor_that_stayed_is_void() -> None:
    applied, _ = decisions()
    applied.load(Applied(2, (None, (3,))))
    assert applied.keeps(0, 1, (7,))
    assert applied.holds(0, 1, (7,))
    assert [applied.keeps(1, 1, (at,)) for at in (2, 3)] == [True, False]
    assert [applied.holds(1, 1, (at,)) for at in (3, 4)] == [True, False]
    assert applied.keeps(1, 2, (7,))
