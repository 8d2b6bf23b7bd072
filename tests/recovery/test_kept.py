"""Kept messages: from the coverage on, all that was sent is there, in order, and never more than the budget."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from recovery.memory.kept_messages import LATEST, SOONEST, Channel, KeptMessages, Suppression
from recovery.metadata import MORE, Bound, everything, holds, leaving_out, union, within
from timely.time import Time

DEPTHS = {0: 1, 1: 2}
CHANNELS = [(0, 0), (0, 1), (1, 1)]


def time(random: Random, depth: int) -> Time:
    return tuple(random.randrange(5) for _ in range(depth))


def bound(random: Random, depth: int) -> Bound:
    """In a loop also one of several steps, each for an epoch."""
    return leaving_out([time(random, depth) for _ in range(random.randrange(1, 4))], depth)


Shipped: TypeAlias = tuple[Time, Time, int, int]
"""A message: its event's time, its own, its size, its number."""


def size_of(edge: int, messages: Sequence[Shipped]) -> int:
    """On one edge messages take twice as much as on the other. Nobody asks what no message weighs."""
    assert messages
    return sum(message[2] * (2 - edge) for message in messages)


def kept_messages(budget: int) -> KeptMessages[Shipped]:
    return KeptMessages(DEPTHS, budget, size_of)


@given(st.integers(0, 2**40), st.integers(0, 60))
def test_from_the_coverage_on_everything_is_kept_in_order(seed: int, budget: int) -> None:
    random = Random(seed)
    kept = kept_messages(budget)
    sent: dict[Channel, list[Shipped]] = {channel: [] for channel in CHANNELS}
    least: dict[Channel, Bound] = {channel: (0,) * DEPTHS[channel[0]] for channel in CHANNELS}
    for number in range(200):
        channel = random.choice(CHANNELS)
        depth, kind = DEPTHS[channel[0]], random.random()
        if kind < 0.8:
            event = time(random, depth)
            message = event, max(event, time(random, depth)), random.randrange(1, 5), number
            sent[channel].append(message)
            kept.keep(channel, message)
        elif kind < 0.9:
            least[channel] = union(least[channel], bound(random, depth))
            kept.forget(channel, least[channel])
        else:
            back = bound(random, depth)
            kept.undo(channel[0], back)
            for at in CHANNELS:
                if at[0] == channel[0]:
                    sent[at] = [each for each in sent[at] if holds(back, each[0])]
        for at in CHANNELS:
            coverage = kept.coverage(at)
            assert within(least[at], coverage)
            assert list(kept.wanted(at, least[at])) == [each for each in sent[at] if not holds(coverage, each[1])]
            target = bound(random, DEPTHS[at[0]])
            again = list(kept.wanted(at, target))
            assert again == [each for each in sent[at] if not holds(coverage, each[1]) and not holds(target, each[1])]
        if random.random() < 0.3:
            kept.weigh()
            assert kept.size <= kept.most <= budget
            assert kept.size == sum(size for _, _, size in kept.sizes())


def test_what_is_forgotten_of_several_epochs_of_a_loop_is_gone_at_once() -> None:
    """All before the first that is still wanted: later ones go with that."""
    kept = kept_messages(100)
    for number, at in enumerate([(0, 3), (2, 0), (1, 1), (1, 2), (2, 0), (1, 0)]):
        kept.keep((1, 1), (at, at, 1, number))
    kept.weigh()
    kept.forget((1, 1), (1, 1, MORE, 1))
    assert list(kept.sizes()) == [((1, 1), 4, 4)]
    kept.forget((1, 1), (1, 2, MORE, 1))
    assert list(kept.sizes()) == [((1, 1), 3, 3)]
    assert [message[3] for message in kept.wanted((1, 1), (0, 0))] == [3]
    kept.forget((1, 1), (2, 3, MORE, 1))
    assert list(kept.sizes()) == [((1, 1), 0, 0)]


def test_nothing_is_dropped_within_the_budget_and_the_oldest_goes_first_beyond_it() -> None:
    kept = kept_messages(16)
    kept.keep((0, 0), ((2,), (2,), 2, 0))
    kept.keep((1, 1), ((1, 4), (1, 4), 4, 1))
    kept.keep((0, 0), ((0,), (1,), 4, 2))
    kept.weigh()
    assert kept.most == 16
    assert [kept.coverage(each) for each in CHANNELS] == [(0,), (0,), (0, 0)]
    assert list(kept.sizes()) == [((0, 0), 2, 12), ((1, 1), 1, 4)]
    kept.keep((0, 1), ((3,), (3,), 3, 3))
    assert [kept.coverage(each) for each in CHANNELS] == [(0,), (0,), (0, 0)]
    kept.weigh()
    assert [kept.coverage(each) for each in CHANNELS] == [(2,), (0,), (1, 5)]
    kept.weigh()
    assert kept.size == kept.most == 10
    kept.keep((0, 1), ((4,), (4,), 4, 4))
    kept.weigh()
    assert [kept.coverage(each) for each in CHANNELS] == [(3,), (4,), (1, 5)]
    kept.keep((0, 0), ((2,), (2,), 1, 5))
    assert not list(kept.wanted((0, 0), (0,)))  # too old
    kept.weigh()
    assert kept.most == 8


def test_a_time_goes_as_a_whole_and_what_is_left_is_counted() -> None:
    kept = kept_messages(16)
    for number, at in enumerate((1, 1, 2)):
        kept.keep((0, 0), ((at,), (at,), 3, number))
    kept.weigh()
    assert [message[3] for message in kept.wanted((0, 0), (0,))] == [2]
    assert kept.size == kept.most == 6


def test_what_was_forgotten_makes_room_before_anything_kept_has_to_go() -> None:
    kept = kept_messages(100)
    for n in range(10_000):
        kept.keep((0, 0), ((n,), (n,), 7, n))
        kept.forget((0, 0), (n - 3,) if n > 3 else (0,))
        kept.weigh()
        assert len(list(kept.wanted((0, 0), (0,)))) == min(n + 1, 4)
    assert kept.size == 56 <= kept.most <= 100


def test_dropping_and_forgetting_leave_nothing_behind() -> None:
    kept = kept_messages(100)
    for n in range(10_000):
        kept.keep((0, n % 2), ((n,), (n,), 7, n))
        kept.forget((0, 0), (n - 3,) if n > 3 else (0,))
        kept.weigh()
        assert kept.size <= kept.most <= 100
    assert 9_900 < kept.coverage((0, 1))[0] < 9_999
    for channel in CHANNELS:
        kept.forget(channel, everything(DEPTHS[channel[0]]))
    assert kept.size == 0
    kept.keep((0, 0), ((10_000,), (10_000,), 7, 0))
    kept.weigh()
    assert kept.size == 0, "what nobody will ever want is given up, however late it was sent"


def test_a_message_is_weighed_once_however_often_that_is_done() -> None:
    asked: list[int] = []

    def size(edge: int, messages: Sequence[Shipped]) -> int:
        asked.extend(message[3] for message in messages)
        return sum(message[2] for message in messages)

    kept = KeptMessages[Shipped](DEPTHS, 1_000, size)
    for n in range(50):
        kept.keep((0, 0), ((n,), (n,), 2, n))
        kept.forget((0, 0), (n - 5,) if n > 5 else (0,))
        kept.keep((0, 1), ((n,), (n,), 2, 100 + n))
        kept.forget((0, 1), (n - 15,) if n > 15 else (0,))
        if n % 10 == 9:
            kept.weigh()
            kept.weigh()
    assert [n for n in asked if n < 100] == [n for n in range(50) if n % 10 >= 4]  # others were forgotten before
    assert [n for n in asked if n >= 100] == list(range(100, 150))


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


def test_it_is_weighed_seldom_while_there_is_room_and_often_when_there_is_little() -> None:
    kept = KeptMessages[tuple[Time, Time, int]]({7: 1}, 1_000, lambda edge, messages: sum(each[2] for each in messages))
    assert kept.weigh_within(float("inf")) == LATEST, "nothing comes"

    def sent(size: int, seconds: float) -> float:
        kept.keep((7, 0), ((kept.most,), (kept.most,), size))
        return kept.weigh_within(seconds)

    assert sent(1, 0.02) == LATEST
    assert sent(9, 0.02) == LATEST
    assert sent(90, 0.04) == 0.04 * 900 / 90 / 4, "four times as much may come"
    assert sent(100, 9.0) == LATEST
    assert sent(500, 9.0) == SOONEST, "all of it may have come just now"
    assert sent(300, 0.1) == SOONEST
    assert kept.most == 1_000
    assert sent(100, 0.1) == SOONEST, "there was no room, so it may soon be full again"
    assert kept.most <= 750
    assert kept.weigh_within(0.02) == LATEST


def test_what_is_forgotten_before_it_is_weighed_weighs_nothing() -> None:
    kept = KeptMessages[tuple[Time, Time, int]]({7: 2}, 1_000, lambda edge, messages: sum(each[2] for each in messages))
    kept.forget((7, 0), (3, 2))
    for time in ((3, 1), (3, 2), (2, 9), (4, 0)):
        kept.keep((7, 0), (time, time, 10))
    kept.weigh()
    assert kept.most == 20
    assert [each[1] for each in kept.wanted((7, 0), (0, 0))] == [(3, 2), (4, 0)]
    kept.forget((7, 0), (4, 5, MORE, 2))
    for time in ((4, 7), (5, 1), (5, 2)):
        kept.keep((7, 0), (time, time, 10))
    kept.weigh()
    assert kept.most == 40
    assert [each[1] for each in kept.wanted((7, 0), (0, 0))] == [(4, 7), (5, 2)]
