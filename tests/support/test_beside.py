"""Nothing that goes wrong beside a job is lost, and nothing waits for ever for it."""

from __future__ import annotations

import time

import pytest

from tests.support.beside import run_beside


def fail() -> None:
    raise LookupError("beside")


def test_what_fails_beside_interrupts_work_that_would_wait_for_ever() -> None:
    with pytest.raises(LookupError, match="beside"):
        run_beside(lambda: time.sleep(600), fail)


def test_what_fails_after_work_has_ended_is_raised_too() -> None:
    def fail_late() -> None:
        time.sleep(0.1)
        fail()

    with pytest.raises(LookupError, match="beside"):
        run_beside(lambda: 1, fail_late)


def test_what_work_raises_is_raised_and_what_it_returns_returned() -> None:
    with pytest.raises(ZeroDivisionError):
        run_beside(lambda: 1 // 0, lambda: None)
    assert run_beside(lambda: 1, lambda: None) == 1
