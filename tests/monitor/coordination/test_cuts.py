"""The moments at which groups are checkpointed."""

from __future__ import annotations

from random import Random

import pytest

from monitor.coordination.cuts import Cuts, cut_event
from recovery.layout import GroupInfo
from recovery.metadata import MORE, NEVER, Bound, at_epoch, nothing
from timely.time import FINITE


def test_a_cut_is_due_after_its_seconds_and_only_past_the_last() -> None:
    cuts = Cuts([GroupInfo(None, 1.0)], [[(0,), (0,)]], 10.0)
    assert cuts.due([(3,)], 10.5) == []
    assert cuts.due([(0,)], 11.0) == []
    assert cuts.due([(3,)], 11.0) == [(0, (3,), [0, 1])]


def test_a_slow_worker_holds_the_next_cut_back() -> None:
    cuts = Cuts([GroupInfo(1, None)], [[(0,), (0,)]], 0.0)
    assert cuts.due([(3,)], 1.0) == [(0, (3,), [0, 1])]
    assert cuts.durable(0, 1, (3,)) is None
    assert cuts.due([(7,)], 2.0) == []
    assert cuts.durable(0, 0, (3,)) == 1.0
    assert cuts.due([(7,)], 3.0) == [(0, (7,), [0, 1])]


def test_what_a_worker_says_of_an_earlier_cut_does_not_count_for_the_outstanding_one() -> None:
    cuts = Cuts([GroupInfo(1, None)], [[(0,), (0,)]], 0.0)
    assert cuts.due([(5,)], 0.0) == [(0, (5,), [0, 1])]
    assert cuts.durable(0, 0, (5,)) is None
    assert cuts.durable(0, 1, (3,)) is None  # it was on its way to the store when there was another monitor
    assert cuts.due([(6,)], 1.0) == []
    assert cuts.durable(0, 1, (5,)) == 0.0
    assert cuts.due([(6,)], 1.0) == [(0, (6,), [0, 1])]


def test_by_epochs_and_by_seconds_whichever_is_first() -> None:
    cuts = Cuts([GroupInfo(5, 60.0)], [[(2,)]], 0.0)
    assert cuts.due([(6,)], 1.0) == []
    assert cuts.due([(7,)], 1.0) == [(0, (7,), [0])]
    cuts.durable(0, 0, (7,))
    assert cuts.due([(8,)], 61.0) == [(0, (8,), [0])]


@pytest.mark.parametrize("every", [GroupInfo(6, None), GroupInfo(None, 6.0)])
def test_after_a_failure_cuts_come_early_and_then_less_and_less_so(every: GroupInfo) -> None:
    cuts = Cuts([every], [[(0,)]], 0.0, early=True)
    found = []
    for now in range(30):
        for _, cut, _ in cuts.due([(now,)], float(now)):
            assert cut == (now,)
            found.append(now)
            cuts.durable(0, 0, cut)
    assert found == [1, 3, 7, 13, 19, 25]


def test_no_cut_is_later_than_asked_for_because_it_might_be_early() -> None:
    cuts = Cuts([GroupInfo(None, 0.5)], [[(0,)]], 0.0, early=True)
    assert cuts.due([(1,)], 0.4) == []
    assert cuts.due([(1,)], 0.5) == [(0, (1,), [0])]


def test_the_end_is_cut_at_once_and_once() -> None:
    cuts = Cuts([GroupInfo(None, 3600.0)], [[(0,)]], 0.0)
    assert cuts.due([(NEVER,)], 0.0) == [(0, (NEVER,), [0])]
    cuts.durable(0, 0, (NEVER,))
    assert cuts.due([(NEVER,)], 9999.0) == []


def test_who_is_further_already_is_left_out() -> None:
    cuts = Cuts([GroupInfo(1, None)], [[(2,), (9,)]], 0.0)
    assert cuts.due([(4,)], 0.0) == [(0, (4,), [0])]
    assert cuts.durable(0, 0, (4,)) == 0.0


def test_no_cut_leaves_out_where_a_survivor_came_back() -> None:
    cuts = Cuts([GroupInfo(1, None)], [[(1,), (1,)]], 0.0, beyond=[{(1, (3,)), (2, (2, 5))}])
    assert cuts.due([(2,)], 9.0) == []
    assert cuts.due([(3,)], 9.0) == [(0, (3,), [0, 1])]
    cuts = Cuts([GroupInfo(None, 1.0, 2)], [[(1, 0)]], 0.0, beyond=[{(2, (2, 5))}])
    assert cuts.due([(2, 3)], 9.0) == []
    assert cuts.due([(2, 6)], 9.0) == [(0, (2, 6), [0])]


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_is_the_last_one_that_is_complete_and_the_next_waits_for_all_that_were_asked(seed: int) -> None:
    """Of two workers, in a loop too: asked is who does not have the cut, once, and never less."""
    random = Random(seed)
    depth = 1 + seed % 2
    last: list[Bound] = [nothing(depth), (*at_epoch(random.randrange(3), depth)[:-1], random.randrange(2))]
    upto = nothing(depth)
    cuts = Cuts([GroupInfo(1, 0.5, depth=depth)], [list(last)], 0.0)
    asked: set[int] = set()
    cut, announced, made = upto, 0.0, 0
    for now in map(float, range(1, 60)):
        more = random.choice([0, 0, 0, 1])
        upto = at_epoch(upto[0] + 1, depth) if more else (*upto[:-1], upto[-1] + (random.randrange(2) or depth == 1))
        found = cuts.due([upto], now)
        if asked or upto <= min(last):
            assert found == []
        else:
            within = upto[0] == min(last)[0]
            cut, announced = upto if within else at_epoch(upto[0], depth), now
            asked = {worker for worker, there in enumerate(last) if there < cut}
            assert found == [(0, cut, sorted(asked))]
            made += 1
        assert cuts.outstanding == ([(0, cut)] if asked else [])
        worker, late = random.randrange(2), random.choice([cut, cut, nothing(depth)])
        if late == cut or random.random() < 0.3:  # it says it again, or was not asked, or means an earlier cut
            counts = late == cut and worker in asked
            last[worker] = max(last[worker], late)
            asked -= {worker} if counts else set()
            assert cuts.durable(0, worker, late) == (announced if counts and not asked else None)
    assert made > 5


@pytest.mark.parametrize(
    ("cut", "data"),
    [
        ((4,), {"epoch": 4}),
        ((4, 0), {"epoch": 4}),
        ((4, 2), {"epoch": 4, "iteration": 2}),
        ((4, 2, 0), {"epoch": 4, "iteration": 2}),
        ((4, 0, 3), {"epoch": 4, "iteration": 0}),
        ((FINITE - 1,), {"epoch": FINITE - 1}),
        ((FINITE,), {"epoch": -1}),
        ((NEVER, 0), {"epoch": -1}),
    ],
)
def test_the_timeline_has_a_cut_within_an_epoch_with_its_iteration_and_the_end_as_an_epoch_before_all(
    cut: Bound, data: dict[str, int]
) -> None:
    assert cut_event(7, cut) == {"group": 7, **data}


def test_a_cut_that_neither_holds_what_is_saved_nor_lies_within_waits() -> None:
    """One processor of a loop stayed as it is where another went back: of two epochs each has more of another one."""
    cuts = Cuts([GroupInfo(None, 1.0, 2)], [[(3, 0)]], 0.0, [[(3, 5, MORE, 4)]])
    assert cuts.due([(3, 7, MORE, 2)], 5.0) == []
    assert cuts.due([(3, 7, MORE, 4)], 6.0) == [(0, (3, 7, MORE, 4), [0])]


def test_without_what_is_saved_only_the_last_cuts_count() -> None:
    cuts = Cuts([GroupInfo(None, 1.0, 2), GroupInfo(1, None)], [[(3, 0)], [(1,)]], 0.0)
    assert cuts.due([(3, 7, MORE, 2), (3,)], 5.0) == [(0, (3, 7, MORE, 2), [0]), (1, (3,), [0])]


@pytest.mark.parametrize(
    ("cut", "told"),
    [
        ((3,), {"group": 4, "epoch": 3}),
        ((3, 0), {"group": 4, "epoch": 3}),
        ((3, 7), {"group": 4, "epoch": 3, "iteration": 7}),
        ((3, 7, MORE, 5), {"group": 4, "epoch": 3, "iteration": 7, "iterations": [7, 5]}),
        ((NEVER,), {"group": 4, "epoch": -1}),
    ],
)
def test_a_cut_as_the_timeline_has_it(cut: Bound, told: dict[str, object]) -> None:
    assert cut_event(4, cut) == told


def test_a_hurried_cut_comes_at_once_if_there_is_something_new_and_only_once() -> None:
    cuts = Cuts([GroupInfo(None, 60.0)], [[(2,)]], 0.0)
    assert cuts.due([(5,)], 1.0) == []
    cuts.hurry()
    assert cuts.due([(2,)], 1.0) == []
    assert cuts.due([(5,)], 1.5) == [(0, (5,), [0])]
    cuts.durable(0, 0, (5,))
    assert cuts.due([(9,)], 2.0) == []
    assert cuts.due([(9,)], 61.5) == [(0, (9,), [0])]
