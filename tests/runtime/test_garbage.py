"""Garbage is sought seldom while a job runs in the caller's process, and as before it afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import falkirk
from falkirk import Dataflow, Iterable
from runtime.garbage import SELDOM
from timely.errors import FalkirkError


@pytest.fixture(autouse=True)
def of_python() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def thresholds_during(fails: bool = False) -> list[int]:
    seen: list[int] = []

    def look(number: int) -> int:
        seen.append(gc.get_threshold()[0])
        return number // (not fails)

    flow = Dataflow("looks")
    flow.source("in", Iterable([1])).map(look).capture("out")
    falkirk.run(flow)
    return seen


def test_a_job_in_the_callers_process_has_garbage_sought_seldom_and_leaves_it_as_it_was(
    of_python: tuple[int, int, int],
) -> None:
    assert thresholds_during() == [max(SELDOM, of_python[0])]
    assert gc.get_threshold() == of_python
    with pytest.raises(FalkirkError, match="ZeroDivisionError"):
        thresholds_during(fails=True)
    assert gc.get_threshold() == of_python


@pytest.mark.parametrize("own", [50, 0, 50_000])
def test_what_the_caller_has_said_holds(own: int) -> None:
    gc.set_threshold(own, 5, 5)
    assert thresholds_during() == [own]
    assert gc.get_threshold() == (own, 5, 5)
