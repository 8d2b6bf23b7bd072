"""Pieces of cuts are as long as they should be, and wait for input that is about to come, but not for ever."""

from __future__ import annotations

import pytest

from recovery.checkpoints import PIECE_ROWS
from recovery.pace import LONGEST, SHORTEST, Pace


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
