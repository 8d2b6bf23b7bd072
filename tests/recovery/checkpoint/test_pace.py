"""Pieces of cuts are as long as they should be, and wait for input that is about to come, but not for ever."""

from __future__ import annotations

import pytest

from recovery.checkpoint.checkpoints import PIECE_ROWS
from recovery.checkpoint.pace import LATEST, LONGEST, SHORTEST, Pace


@pytest.mark.parametrize("each", [1e-8, 2e-7, 1e-5])
def test_pieces_come_to_take_as_long_as_they_should(each: float) -> None:
    pace = Pace()
    for _ in range(60):
        pace.saved(pace.rows, pace.rows * each, pace.rows * each)
    assert pace.rows * each == pytest.approx(SHORTEST, rel=0.05)
    for _ in range(200):
        pace.worked(1.0)
        pace.saved(pace.rows, pace.rows * each, pace.rows * each)
    assert pace.rows * each == pytest.approx(min(LONGEST, (1 << 17) * each), rel=0.05)


def test_a_piece_that_was_interrupted_does_not_make_the_next_ones_tiny() -> None:
    pace = Pace()
    for _ in range(60):
        pace.saved(pace.rows, pace.rows * 1e-7, pace.rows * 1e-7)
    usual = pace.rows
    pace.saved(pace.rows, 1.0, 1.0)
    assert pace.rows > usual / 2


def test_pieces_follow_what_a_row_costs_now_and_never_get_too_small() -> None:
    pace = Pace()
    for each in (1e-7, 1e-6):
        for _ in range(60):
            pace.saved(pace.rows, pace.rows * each, pace.rows * each)
    assert pace.rows * 1e-6 == pytest.approx(SHORTEST, rel=0.05)
    slow = Pace()
    slow.saved(slow.rows, 1e9, 1e9)
    assert slow.rows == 16


def test_a_piece_is_expected_to_take_as_long_as_the_longest_of_late() -> None:
    pace = Pace()
    for seconds in (0.01, 0.001):
        pace.saved(PIECE_ROWS, seconds, seconds)
    assert pace.puts_off(0.0085)
    assert not pace.puts_off(0.0085)
    assert not pace.puts_off(0.0095)


def test_pieces_do_not_get_smaller_on_a_machine_that_others_use() -> None:
    alone, shared = Pace(), Pace()
    for _ in range(60):
        alone.saved(alone.rows, alone.rows * 1e-7, alone.rows * 1e-7)
        shared.saved(shared.rows, shared.rows * 1e-7 + 0.004, shared.rows * 1e-7)
    assert shared.rows == alone.rows
    assert shared.puts_off(0.004)
    assert not alone.puts_off(0.004)


def test_the_end_of_a_state_says_nothing_of_how_long_a_piece_takes() -> None:
    pace = Pace()
    pace.saved(1, 0.5, 0.5)
    assert pace.rows == PIECE_ROWS


def test_with_a_clock_that_stands_still_nothing_changes() -> None:
    pace = Pace()
    for _ in range(10):
        pace.worked(0.0)
        pace.saved(PIECE_ROWS, 0.0, 0.0)
        assert not pace.puts_off(0.0)
        assert pace.rows == PIECE_ROWS


def test_a_piece_waits_for_input_that_comes_before_it_would_be_over_but_only_once() -> None:
    pace = Pace()
    pace.saved(PIECE_ROWS, 0.004, 0.004)
    assert not pace.puts_off(None)
    assert not pace.puts_off(0.01)
    assert [pace.puts_off(0.002) for _ in range(4)] == [True, False, True, False]


class _Pieces:
    """A number of pieces to make, each of which takes `seconds` by the clock."""

    def __init__(self, count: int, seconds: float) -> None:
        self.left = count
        self.seconds = seconds
        self.now = 100.0

    def make(self, rows: int) -> int:
        self.left -= 1
        self.now += self.seconds
        return rows

    def turn(self, pace: Pace, every: float = 0.5) -> int:
        """A turn: how many pieces were made."""
        before = self.left
        clock = lambda: self.now  # noqa: E731
        assert pace.make(self.now, every, lambda: self.left > 0, self.make, clock, clock) == self.now
        return before - self.left


def test_a_turn_makes_as_many_pieces_as_its_budget_has_room_for() -> None:
    pace, pieces = Pace(), _Pieces(1000, SHORTEST / 8)
    assert pieces.turn(pace) == 8
    for _ in range(100):
        pace.worked(1.0)
    assert pieces.turn(pace) == pytest.approx(8 * LONGEST / SHORTEST, abs=1)


def test_pieces_should_take_half_of_what_a_turn_takes() -> None:
    pace = Pace()
    for _ in range(200):
        pace.worked(0.002)
    assert pace.usual == pytest.approx(0.001, rel=0.01)


def test_a_piece_that_is_too_long_is_the_only_one_of_its_turn() -> None:
    pace, pieces = Pace(), _Pieces(1000, 1.0)
    assert pieces.turn(pace, every=1e6) == 1


def test_what_is_there_is_all_that_is_made() -> None:
    assert _Pieces(3, 1e-6).turn(Pace()) == 3


def test_with_a_clock_that_stands_still_a_turn_makes_one_piece() -> None:
    assert _Pieces(1000, 0.0).turn(Pace()) == 1


def test_a_cut_that_is_late_gets_more_of_each_turn_up_to_a_limit_and_the_next_one_begins_anew() -> None:
    pace = Pace()
    for _ in range(100):
        pace.worked(0.02)
    assert pace.budget(10.0, 0.5) == pytest.approx(LONGEST)
    assert pace.budget(10.1, 0.5) == pytest.approx(LONGEST)
    assert pace.budget(10.5, 0.5) == pytest.approx(0.02, rel=0.05)
    assert pace.budget(11.0, 0.5) == pytest.approx(0.04, rel=0.05)
    assert pace.budget(99.0, 0.5) == LATEST
    pace.over()
    assert pace.budget(99.0, 0.5) == pytest.approx(LONGEST)


def test_a_late_cut_gets_what_is_usual_at_least_and_as_long_as_a_long_turn_at_most() -> None:
    idle, busy = Pace(), Pace()
    for _ in range(200):
        busy.worked(0.2)
    for pace in (idle, busy):
        pace.budget(10.0, 0.5)
    assert idle.budget(10.6, 0.5) == SHORTEST
    assert busy.budget(99.0, 0.5) == pytest.approx(0.2, rel=0.05)


def test_a_cut_is_not_late_before_a_share_of_the_least_interval_is_over() -> None:
    pace = Pace()
    for _ in range(100):
        pace.worked(0.02)
    pace.budget(10.0, 0.0)
    assert pace.budget(10.01, 0.0) == pytest.approx(LONGEST)
    assert pace.budget(10.0 + LATEST, 0.0) == pytest.approx(0.02, rel=0.05)


def test_the_first_piece_of_a_turn_is_measured_unless_the_cut_is_late() -> None:
    for late in (False, True):
        pace, pieces = Pace(), _Pieces(1, PIECE_ROWS * 1e-6)
        for _ in range(100):
            pace.worked(0.02)
        pace.budget(pieces.now - (1.0 if late else 0.0), 0.5)
        assert pieces.turn(pace) == 1
        assert pace.rows == (PIECE_ROWS if late else pytest.approx(LONGEST / 1e-6, rel=0.05))
        assert pace.puts_off(0.004) is not late
        assert not pace.puts_off(1.0)


def test_the_duration_of_a_piece_is_measured_whenever_the_turn_began() -> None:
    """Of a late cut that of the second, as the first looks through what the turn has written."""
    for late in (False, True):
        pace, pieces = Pace(), _Pieces(2 if late else 1, 0.004)
        for _ in range(100):
            pace.worked(0.02)
        pace.budget(pieces.now - (1.0 if late else 0.0), 0.5)
        assert pieces.turn(pace) == (2 if late else 1)
        assert not pace.puts_off(0.0041)
        assert pace.puts_off(0.0039)


def test_a_late_turn_goes_on_behind_a_first_piece_that_takes_all_of_it_but_no_further() -> None:
    pace, pieces = Pace(), _Pieces(1000, 0.03)
    for _ in range(100):
        pace.worked(0.02)
    pace.budget(pieces.now - 1.0, 0.5)
    assert pieces.turn(pace) == 2


class _CostlyTurns:
    """A large state to save, and a first piece after each turn that takes 30 ms more."""

    def __init__(self) -> None:
        self.left, self.now, self.first = 500_000, 100.0, True

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.first = True

    def make(self, rows: int) -> int:
        self.left -= rows
        self.now += rows * 1e-7 + (0.03 if self.first else 0.0)
        self.first = False
        return rows

    def clock(self) -> float:
        return self.now


def test_what_a_turn_costs_a_cut_makes_no_piece_smaller_and_a_late_cut_is_made_all_the_same() -> None:
    """Each turn writes much, which the first piece after it has to look through, however few rows it has."""
    pace, pieces, turns = Pace(), _CostlyTurns(), 0
    while pieces.left > 0:
        pace.worked(0.1)
        pieces.work(0.1)
        pace.make(pieces.now, 0.5, lambda: pieces.left > 0, pieces.make, pieces.clock, pieces.clock)
        turns += 1
    assert turns < 30
