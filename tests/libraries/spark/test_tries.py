"""The count of failures of a query, and of Sparks that were lost."""

from __future__ import annotations

import pytest

from libraries.spark.errors import SparkError
from libraries.spark.host.retries import MOST_LOSSES, Losses, Tries


def lose(tries: Tries, processes: range) -> None:
    for process in processes:
        tries.lost(process, f"process {process} was killed")


def test_query_may_fail_as_often_as_it_may_be_tried_again() -> None:
    for retries in range(3):
        tries = Tries(retries, Losses())
        for _ in range(retries):
            tries.failed("no file")
        with pytest.raises(SparkError, match=r"failed (once|\d times).*no file"):
            tries.failed("no file")


def test_losses_are_not_failures_and_failures_are_not_losses() -> None:
    losses = Losses()
    tries = Tries(1, losses)
    lose(tries, range(MOST_LOSSES))
    tries.failed("no file")
    assert (tries.failures, len(losses)) == (1, MOST_LOSSES)
    with pytest.raises(
        SparkError, match=f"was lost {MOST_LOSSES + 1} times in a row.*process {MOST_LOSSES} was killed"
    ):
        lose(tries, range(MOST_LOSSES, MOST_LOSSES + 1))


def test_any_number_of_losses_is_survived_where_something_is_done_between_them() -> None:
    losses = Losses()
    long, short = Tries(0, losses), Tries(0, losses)
    for process in range(10 * MOST_LOSSES):
        long.lost(process, "killed")
        short.lost(process, "killed")  # one process, which both hear of
        if process % MOST_LOSSES == MOST_LOSSES - 1:
            short.done()
    lose(long, range(1000, 1000 + MOST_LOSSES))
    with pytest.raises(SparkError):
        lose(short, range(2000, 2001))


def test_failures_are_forgotten_when_something_new_is_there() -> None:
    tries = Tries(1, Losses())
    for _ in range(5):
        tries.failed("busy")
        tries.done()


def test_who_asks_for_more_tries_survives_as_many_losses() -> None:
    lose(Tries(3 * MOST_LOSSES, Losses()), range(3 * MOST_LOSSES))
