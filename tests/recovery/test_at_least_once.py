"""AtLeastOnce in a layout: who sends anew what it does again, and who is given something else by that."""

from __future__ import annotations

from recovery.layout import Layout
from recovery.policies import AtLeastOnce, Batch, Lazy
from tests.recovery.test_layout import laid_out, logged
from timely.dataflow.dataflow import Dataflow
from timely.io import Console, Iterable


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
