"""Records of mates: how each is, who may begin another, and who has fallen behind."""

from __future__ import annotations

from recovery.place import Place
from runtime.control import Followed
from runtime.supervisor.mates import BEHIND, BEHIND_SECONDS, MOST_FAILURES, MateRecords


def report(behind: int, epoch: int = 7) -> Followed:
    return Followed(Place(1, 1), 1 << 20, epoch, behind, 300)


def test_a_mate_is_shown_as_it_last_said() -> None:
    records = MateRecords(2)
    assert [(view.worker, view.state, view.begun) for view in records.views] == [(0, "begins", 0), (1, "begins", 0)]
    records.begun(1, 4711)
    records.followed(1, report(9), 0.0)
    view = records.views[1]
    assert (view.state, view.pid, view.memory, view.epoch, view.behind, view.left) == (
        "loads",
        4711,
        1 << 20,
        7,
        9,
        300,
    )
    records.caught_up(1, 0.5)
    assert (records.views[1].state, records.views[1].seconds) == ("follows", 0.5)
    records.took_over(1)
    records.begun(1, 4712)
    assert (records.views[1].state, records.views[1].begun, records.views[1].epoch) == ("loads", 2, None)


def test_only_who_had_caught_up_falls_behind_and_only_after_a_while() -> None:
    records = MateRecords(2)
    records.begun(1, 4711)
    records.followed(1, report(50), 0.0)
    assert records.fallen_behind(10 * BEHIND_SECONDS) == [], "it has much to load"
    records.caught_up(1, 0.5)
    records.followed(1, report(BEHIND + 1), 100.0)
    records.followed(1, report(BEHIND), 100.0 + BEHIND_SECONDS / 2)
    records.followed(1, report(BEHIND + 1), 101.0 + BEHIND_SECONDS / 2)
    assert records.fallen_behind(101.0 + BEHIND_SECONDS) == []
    records.followed(1, report(BEHIND + 5), 101.0 + BEHIND_SECONDS)
    assert records.fallen_behind(102.0 + 1.5 * BEHIND_SECONDS) == [1]
    assert records.lost(1)
    assert records.fallen_behind(1e9) == []


def test_failures_in_a_row_end_with_none_and_one_that_catches_up_starts_the_count_anew() -> None:
    records = MateRecords(1)
    for number in range(MOST_FAILURES - 1):
        records.begun(0, number)
        assert records.lost(0)
    records.caught_up(0, 0.1)
    assert [records.lost(0) for _ in range(MOST_FAILURES)] == [True] * (MOST_FAILURES - 1) + [False]
    assert not records.may_begin(0)
    assert (records.views[0].state, records.views[0].begun) == ("none", MOST_FAILURES - 1)
