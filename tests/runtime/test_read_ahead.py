"""Reading ahead: as many epochs as take some milliseconds of work, two at least, and never so few that nothing moves."""

from __future__ import annotations

from math import inf

import pytest

from runtime.sources.read_ahead import FEWEST, FEWEST_DEALT, ReadAhead


def run(
    cost: float, epochs: int, most: int = 16, seconds: float = 0.02, together: int = 1
) -> tuple[ReadAhead, list[int]]:
    """A source whose epochs cost so many seconds, and are complete in batches of `together`; how many were open at a time."""
    ahead, spent, oldest, epoch = ReadAhead(), 0.0, 0, 0
    seen = []
    while oldest < epochs:
        ahead.measure(spent, oldest)
        while epoch < ahead.bound(oldest, seconds, most):
            ahead.read(epoch)
            epoch += 1
        seen.append(epoch - oldest)
        done = min(together, epoch - oldest)
        assert done, "nothing may be read, and nothing is open"
        oldest, spent = oldest + done, spent + done * cost
    return ahead, seen


@pytest.mark.parametrize(
    ("cost", "expected"), [(0.1, FEWEST), (0.01, FEWEST), (0.005, 4), (0.002, 10), (0.0001, 16), (0.0, 16)]
)
def test_open_work_is_as_much_as_is_said(cost: float, expected: int) -> None:
    _, seen = run(cost * 1.0001 if cost != 0.01 else cost, 200) if cost in (0.1, 0.01) else run(cost * 0.9999, 200)
    assert set(seen[50:]) == {expected}


def test_the_limit_on_epochs_counts_also_where_it_is_less() -> None:
    assert set(run(0.1, 50, most=1)[1]) == {1}
    assert max(run(0.0, 50, most=3)[1]) == 3


def test_epochs_that_become_complete_together_cost_no_more_each() -> None:
    _, seen = run(0.0019, 400, together=4)
    assert max(seen[-20:]) == 10


def test_a_change_of_cost_is_followed() -> None:
    ahead = ReadAhead()
    spent = 0.0
    for epoch in range(100):
        ahead.read(epoch)
        spent += 0.001 if epoch < 50 else 0.5
        ahead.measure(spent, epoch + 1)
        if epoch == 49:
            assert ahead.may_be_open(0.02, 64) in (19, 20)
    assert ahead.may_be_open(0.02, 64) == FEWEST


def test_only_epochs_that_this_worker_has_read_are_open() -> None:
    ahead = ReadAhead()
    for epoch in (0, 8):  # of every eighth one it has the records
        ahead.read(epoch)
    assert ahead.bound(0, 0.02, 16) == 9, "one that is begun may be read to its end"
    assert ahead.bound(1, 0.02, 16) == 17, "one is complete, so another one may be begun, as far ahead as is allowed"


def dealt(workers: int, days: int, cost: float = 0.1) -> list[int]:
    """The number of epochs of worker 0 that are open at a time, where epoch e is read by worker e mod `workers`."""
    ahead, spent, epoch, seen = ReadAhead(), 0.0, 0, []
    for oldest in range(workers * days):
        ahead.measure(spent, oldest)
        while epoch < ahead.bound(oldest, 0.02, 16):
            ahead.read(epoch)
            epoch += workers
        seen.append(sum(each >= oldest for each in range(0, epoch, workers)))
        spent += cost
    return seen


def test_one_epoch_is_enough_where_others_read_others() -> None:
    assert set(dealt(8, 40)[80:]) == {FEWEST_DEALT}
    assert set(dealt(4, 40)[80:]) == {FEWEST_DEALT}
    assert set(dealt(3, 60)[80:]) == {FEWEST}, "of two others there may be too little to do meanwhile"
    assert max(dealt(8, 40, cost=0.0001)[80:]) == 2, "short ones as far ahead as the limit on epochs lets them"
    assert set(dealt(1, 100)[80:]) == {FEWEST}


def test_numbers_that_no_epoch_has_are_not_epochs_of_others() -> None:
    ahead, spent, seen = ReadAhead(), 0.0, []
    for epoch in range(0, 1000, 10):  # all workers have these
        for oldest in (
            epoch - 10,
            epoch - 9,
        ):  # the last one is under way; it is over, and somebody has not begun this one
            ahead.measure(spent, max(oldest, 0))
            seen.append(ahead.may_be_open(0.02, 16))
        ahead.read(epoch)
        spent += 0.1
    assert set(seen) == {FEWEST}


def test_epochs_of_others_are_forgotten_when_there_are_none_any_more() -> None:
    ahead, spent = ReadAhead(), 0.0
    for epoch in range(0, 80, 8):
        ahead.read(epoch)
        for oldest in range(epoch, epoch + 8):
            ahead.measure(spent, oldest)
            spent += 0.1
    assert ahead.may_be_open(0.02, 16) == FEWEST_DEALT
    for epoch in range(80, 120):
        ahead.read(epoch)
        ahead.measure(spent, epoch)
        spent += 0.1
    assert ahead.may_be_open(0.02, 16) == FEWEST
    ahead.begin()
    ahead.measure(spent, 7)
    assert ahead.may_be_open(0.02, 16) == FEWEST, "nothing is known of where it goes on"


def test_who_goes_back_has_nothing_open() -> None:
    ahead = ReadAhead()
    for epoch in range(5):
        ahead.read(epoch)
    ahead.measure(1.0, 0)
    ahead.begin()
    ahead.read(0)
    assert ahead.bound(0, 0.02, 16) == 16
    ahead.measure(9.0, 0)
    ahead.measure(9.001, 1)
    assert ahead.may_be_open(0.02, 64) in (19, 20)


def test_endless_seconds_are_no_bound() -> None:
    assert set(run(0.5, 50, seconds=inf)[1]) == {16}
