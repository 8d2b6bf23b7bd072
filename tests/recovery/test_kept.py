"""Kept messages: from the coverage on, all that was sent is there, in order, and never more than the budget."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from recovery.kept import Channel, KeptMessages, Suppression
from recovery.metadata import Bound
from timely.time import Time

DEPTHS = {0: 1, 1: 2}
CHANNELS = [(0, 0), (0, 1), (1, 1)]


def time(random: Random, depth: int) -> Time:
    return tuple(random.randrange(5) for _ in range(depth))


@given(st.integers(0, 2**40), st.integers(0, 60))
def test_from_the_coverage_on_everything_is_kept_in_order(seed: int, budget: int) -> None:
    random = Random(seed)
    kept = KeptMessages[int](DEPTHS, budget)
    sent: dict[Channel, list[tuple[Time, Time, int, int]]] = {channel: [] for channel in CHANNELS}
    least: dict[Channel, Bound] = {channel: (0,) * DEPTHS[channel[0]] for channel in CHANNELS}
    for number in range(200):
        channel = random.choice(CHANNELS)
        depth, kind = DEPTHS[channel[0]], random.random()
        if kind < 0.8:
            event = time(random, depth)
            message = event, max(event, time(random, depth)), random.randrange(1, 5), number
            sent[channel].append(message)
            kept.keep(channel, *message)
        elif kind < 0.9:
            least[channel] = max(least[channel], time(random, depth))
            kept.forget(channel, least[channel])
        else:
            bound = time(random, depth)
            kept.undo(channel[0], bound)
            for at in CHANNELS:
                if at[0] == channel[0]:
                    sent[at] = [each for each in sent[at] if each[0] < bound]
        held = 0
        for at in CHANNELS:
            coverage = kept.coverage(at)
            assert coverage >= least[at]
            there = [(each.event, each.time, each.size, each.message) for each in kept.wanted(at, least[at])]
            assert there == [each for each in sent[at] if each[1] >= coverage]
            held += sum(size for _, _, size, _ in there)
            target = time(random, DEPTHS[at[0]])
            again = [each.message for each in kept.wanted(at, target)]
            assert again == [n for _, t, _, n in sent[at] if t >= max(coverage, target)]
        assert kept.size == held <= budget


def test_nothing_is_dropped_within_the_budget_and_the_oldest_goes_first_beyond_it() -> None:
    kept = KeptMessages[str](DEPTHS, 8)
    kept.keep((0, 0), (2,), (2,), 2, "c")
    kept.keep((1, 1), (1, 4), (1, 4), 2, "b")
    kept.keep((0, 0), (0,), (1,), 2, "a")
    assert [kept.coverage(each) for each in CHANNELS] == [(0,), (0,), (0, 0)]
    kept.keep((0, 1), (3,), (3,), 3, "d")
    assert [kept.coverage(each) for each in CHANNELS] == [(2,), (0,), (1, 5)]
    assert kept.size == 5
    kept.keep((0, 1), (4,), (4,), 4, "e")
    assert [kept.coverage(each) for each in CHANNELS] == [(3,), (4,), (1, 5)]
    kept.keep((0, 0), (2,), (2,), 1, "too old")
    assert kept.size == 4


def test_dropping_and_forgetting_leave_nothing_behind() -> None:
    kept = KeptMessages[int](DEPTHS, 100)
    for n in range(10_000):
        kept.keep((0, n % 2), (n,), (n,), 7, n)
        kept.forget((0, 0), (n - 3,) if n > 3 else (0,))
    assert kept.size <= 100
    assert 9_900 < kept.coverage((0, 1))[0] < 9_999


def test_who_stays_at_top_still_has_what_it_came_back_with() -> None:
    suppression = Suppression([[(0,), (0,)], [(0,), (0,)]])
    suppression.decided([[(5,), None], [(2,), (2,)]])
    assert [suppression.has(0, 0, (4,)), suppression.has(0, 0, (5,)), suppression.has(0, 1, (0,))] == [
        True,
        False,
        False,
    ]
    suppression.decided([[None, (3,)], [(1,), None]])
    assert suppression.bounds == [[(5,), (3,)], [(1,), (2,)]]
