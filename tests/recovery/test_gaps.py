"""Regions that lose their state in a layout: what is lost, what is declared, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from recovery.guarantees.promises import Grade, promises
from recovery.layout import Layout
from recovery.policy import Amnesia, Eager, Lazy
from tests.recovery.test_layout import laid_out
from timely.errors import GraphError
from timely.io import Console, Iterable
from timely.operators.base import Context, Operator
from timely.time import Time


def trends() -> Dataflow:
    """Counts that are lost with a worker, behind them totals, and something that keeps nothing."""
    flow = Dataflow()
    words = flow.source("words", Iterable(["to", "be"]))
    with flow.region("trends", policy=Amnesia()):
        counts = words.key_by(str, name="key").count(name="count").records()
    counts.keyed().sum(name="sum").records().capture("totals")
    counts.map(lambda pair: pair, name="plain").to(Console(), name="told")
    words.to(Console(), name="beside")
    return flow


def named(layout: Layout, trait: str) -> set[str]:
    return {info.name for info in layout.processors if getattr(info, trait)}


def test_state_is_lost_and_all_else_of_the_region_has_none() -> None:
    layout = laid_out(trends())
    assert named(layout, "comes_back_empty") == {"count"}
    assert not named(layout, "chain") & {"count", "key"}
    assert named(layout, "remembers") == {"count", "sum"}


def test_what_leaves_the_region_is_lossy_and_joins_no_groups() -> None:
    layout = laid_out(trends())
    infos = layout.processors
    lossy = [(infos[edge.source], infos[edge.target]) for edge in layout.edges if edge.lossy]
    assert lossy
    assert all(source.policy == Amnesia().name != target.policy for source, target in lossy)
    assert all(source.group != target.group for source, target in lossy)


def test_what_may_differ_the_second_time_does_not_repeat() -> None:
    layout = laid_out(trends())
    targets = {layout.processors[edge.target].name for edge in layout.edges if edge.lossy}
    assert not named(layout, "repeats") & ({"count"} | targets)


def test_promises_name_what_is_lost_and_what_counts_without_it() -> None:
    found = {promise.output: promise for promise in promises(trends().graph)}
    assert {name: (each.one, each.besides) for name, each in found.items()} == {
        "totals": (Grade.GAP, Grade.PRECISE),
        "told": (Grade.GAP, Grade.REPEATING),
        "beside": (Grade.REPEATING, Grade.REPEATING),
    }
    blamed = [cause.name for cause in found["totals"].causes if cause.declared]
    assert sorted(blamed) == ["count", "sum"]
    assert [cause.name for cause in found["told"].causes if cause.declared] == ["count"]


class Beside(Operator):
    """Keeps something in an attribute."""

    def __init__(self) -> None:
        self.seen = 0

    def on_batch(self, ctx: Context, port: int, time: Time, batch: object) -> None:
        self.seen += 1


def looped(stream: Stream) -> Stream:
    return stream.iterate(lambda inner: inner.map(lambda n: n - 1).filter(bool))


REFUSED: dict[str, Callable[[Stream], Stream]] = {
    "loops and nested scopes cannot be": looped,
    "may keep capabilities or start jobs": lambda stream: stream.unary("job", Beside, holds=True),
    "may keep something outside of a State": lambda stream: stream.unary("beside", Beside),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_would_be_lost_unknown_to_anybody_is_refused_with_its_line(why: str) -> None:
    flow = Dataflow()
    with flow.region("trends", policy=Amnesia()):
        found = REFUSED[why](flow.source("in", Iterable([1])))
    found.capture("out")
    with pytest.raises(GraphError, match=rf"test_gaps\.py:\d+.*{why}"):
        laid_out(flow)


def test_an_eager_region_behind_it_is_refused() -> None:
    flow = Dataflow()
    numbers = flow.source("in", Iterable([1]))
    with flow.region("trends", policy=Amnesia()):
        trend = numbers.map(abs)
    with flow.region("eager", policy=Eager()):
        trend.map(abs).capture("out")
    with pytest.raises(GraphError, match="what comes to such a region is logged"):
        laid_out(flow)


def test_a_region_of_another_policy_logs_nothing_into_it() -> None:
    flow = Dataflow()
    numbers = flow.source("in", Iterable([1]))
    with flow.region("front", policy=Lazy(1, log_outputs=True)):
        front = numbers.map(abs)
    with flow.region("trends", policy=Amnesia()):
        front.map(abs).capture("out")
    assert not any(edge.lossy for edge in laid_out(flow).edges)
