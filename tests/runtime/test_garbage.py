"""Garbage is sought seldom while a job runs in the caller's process, and as before it afterwards.

What sources gave goes without a search.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pytest

import falkirk
from falkirk import Batches, Columns, Dataflow, Iterable, SessionWindow, Tumbling, agg
from runtime.session.garbage import SELDOM
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


class Frames(list[pl.DataFrame]):
    """The batches of a source: one sees whether anybody holds them."""


VERBS: list[Callable[[Columns], Any]] = [
    lambda sales: sales,
    lambda sales: sales.select("shop", double=pl.col("price") * 2).filter(pl.col("double") > 6),
    lambda sales: sales.join(sales.select("shop", other="price"), on="shop"),
    lambda sales: sales.group_by("shop").agg(total=agg.sum("price"), mean=agg.mean("price")),
    lambda sales: sales.window(Tumbling(10), "at").group_by("shop").agg(total=agg.sum("price")),
    lambda sales: sales.window(SessionWindow(10), "at").group_by("shop").agg(total=agg.sum("price")),
    lambda sales: sales.to_records().key_by(lambda row: row["shop"]).count(),
    lambda sales: sales.select("price").iterate(
        lambda round: round.select(pl.col("price") - 1).filter(pl.col("price") > 0)
    ),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("verb", VERBS)
def test_what_sources_gave_goes_with_the_result_and_not_when_garbage_is_sought(verb: Callable[[Columns], Any]) -> None:
    def run() -> weakref.ref[Frames]:
        days = Frames([pl.DataFrame({"shop": ["n", "s"], "at": [3, 14], "price": [4, day]}) for day in range(3)])
        flow = Dataflow("goes")
        verb(flow.columns("sales", Batches(days))).capture("out")
        assert falkirk.run(flow).captured("out")
        return weakref.ref(days)

    run()  # what is made once, such as tables of functions, is there
    gc.collect()
    gc.disable()
    try:
        assert run()() is None
    finally:
        gc.enable()
