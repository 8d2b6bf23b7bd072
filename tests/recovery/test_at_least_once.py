"""AtLeastOnce in a layout: who sends anew what it does again, and who is given something else by that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from recovery.layout import Layout
from recovery.policy import AtLeastOnce, Batch, Ephemeral, Lazy
from recovery.policy.at_least_once import given_anew, sending_anew
from tests.recovery.layouts import layout
from tests.recovery.test_layout import laid_out, logged
from timely.errors import GraphError
from timely.io import Console, Iterable
from timely.operators.base import Operator


def fronted() -> Dataflow:
    """A region that sends again, local operators behind it, an exchange, and a source of its own beside all that."""
    flow = Dataflow()
    with flow.region("front", policy=AtLeastOnce()):
        front = flow.source("in", Iterable([1])).map(abs, name="parse")
        front.to(Console(), name="told")
    behind = front.map(str, name="local").policy(Lazy())
    behind.map(len, name="logs").policy(Batch(log_outputs=True)).capture("lengths")
    beside = flow.source("beside", Iterable([1])).map(str, name="other")
    both = behind.concat(beside).map(str, name="both")
    both.key_by(str, name="by").count(name="count").records().map(str, name="after").capture("out")
    beside.capture("others")
    return flow


def named(layout: Layout, trait: str) -> set[str]:
    return {info.name for info in layout.processors if getattr(info, trait)}


def test_what_keeps_nothing_sends_anew_as_far_as_all_that_it_is_given_is_read_on_its_worker() -> None:
    assert named(laid_out(fronted()), "anew") == {"in", "parse", "told", "local"}


def test_nobody_behind_repeats() -> None:
    assert named(laid_out(fronted()), "repeats") == {"beside", "other", "others"}


def test_nothing_is_logged_in_the_region_and_only_its_source_persists_anything() -> None:
    layout = laid_out(fronted())
    assert logged(layout) == {("logs", "lengths")}
    assert named(layout, "chain") & {"in", "parse", "told", "local"} == {"in"}


def test_what_is_behind_an_exchange_is_given_what_others_have_read() -> None:
    """Others may come back at other moments than this worker does."""
    plan = layout("in source, local any, others any", "in>local, local=>others", 2)
    policies = [AtLeastOnce(), Ephemeral(), Ephemeral()]
    assert sending_anew(policies, [info.chain for info in plan.processors], plan.edges) == {0, 1}
    assert given_anew({0, 1}, plan.edges) == {0, 1, 2}


def test_a_source_that_nobody_reads_is_behind_nothing() -> None:
    assert given_anew({0}, ()) == {0}


def fed_by_another(flow: Dataflow) -> None:
    stream = flow.source("in", Iterable([1])).map(abs).policy(Lazy())
    with flow.region("anew", policy=AtLeastOnce()):
        stream.map(str).capture()


def exchanged(flow: Dataflow) -> None:
    with flow.region("anew", policy=AtLeastOnce()):
        flow.source("in", Iterable([1])).exchange(by=abs).capture()


def lost(flow: Dataflow) -> None:
    source: Any = Lossy()
    with flow.region("anew", policy=AtLeastOnce()):
        flow.source("in", source).capture()


def in_a_loop(flow: Dataflow) -> None:
    with flow.region("anew", policy=AtLeastOnce()):
        flow.source("in", Iterable([1])).iterate(lambda inner: inner.filter(bool)).capture()


def keeps_capabilities(flow: Dataflow) -> None:
    with flow.region("anew", policy=AtLeastOnce()):
        flow.source("in", Iterable([1])).unary("holds", Operator, holds=True).capture()


class Lossy:
    rereadable = False

    def partitions(self, worker: int, workers: int) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (fed_by_another, r"is AtLeastOnce, and is fed by the map .* which is Lazy"),
        (exchanged, r"is AtLeastOnce, and so is the .* which sends to it on other workers"),
        (lost, r"the source 'in' .* is AtLeastOnce, and cannot be read again"),
        (in_a_loop, r"is AtLeastOnce, and in .*loops and nested scopes cannot be"),
        (keeps_capabilities, r"the unary 'holds' .* is AtLeastOnce, and may keep capabilities"),
    ],
)
def test_what_cannot_be_sent_again_in_another_epoch_is_refused(build: Callable[[Dataflow], Any], says: str) -> None:
    flow = Dataflow()
    build(flow)
    with pytest.raises(GraphError, match=says):
        laid_out(flow)


def test_a_source_that_says_nothing_can_be_read_again() -> None:
    class Plain:
        def partitions(self, worker: int, workers: int) -> list[Any]:
            return []

    flow = Dataflow()
    source: Any = Plain()
    with flow.region("anew", policy=AtLeastOnce()):
        flow.source("in", source).capture("out")
    assert "in" in named(laid_out(flow), "anew")
