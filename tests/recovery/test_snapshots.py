"""Regions with snapshots in a layout: one group by itself, with its own interval, and logs on both sides."""

from __future__ import annotations

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from recovery.layout import GroupInfo, Layout
from recovery.policy import AtLeastOnce, Batch, Ephemeral, Lazy, LogHistory, Snapshot
from tests.recovery.test_layout import groups, laid_out, logged
from timely.errors import GraphError
from timely.io import Iterable


def stock(policy: object, front: object = Lazy(every=1)) -> Layout:  # frozen
    """Something in front, a region with two parts that nothing joins, and something behind."""
    flow = Dataflow()
    with flow.region("front", policy=front):
        moves = flow.source("moves", Iterable([1])).map(abs, name="parse")
    with flow.region("stock", policy=policy):
        total = moves.key_by(abs, name="by").sum(name="sum").records()
        total.map(str, name="text").capture("inside")
        flow.source("prices", Iterable([1])).key_by(str, name="each").max(name="max").capture("prices-out")
    total.distinct(name="behind").policy(Lazy(every=2)).capture("out")
    return laid_out(flow)


def test_what_enters_or_leaves_is_logged_and_nothing_else() -> None:
    assert logged(stock(Snapshot(every=9))) == {("parse", "by"), ("sum", "behind")}
    assert logged(stock(Lazy(every=9))) == set()


def test_region_is_one_group_although_nothing_joins_its_parts() -> None:
    inside = {"by", "sum", "text", "inside", "prices", "each", "max", "prices-out"}
    found = groups(stock(Snapshot(every=9)))
    assert frozenset(inside) in found
    assert frozenset({"moves", "parse"}) in found
    assert all(not inside & group or group == inside for group in found)


def test_its_interval_is_its_own() -> None:
    layout = stock(Snapshot(every=9))
    of = {info.name: layout.groups[info.group] for info in layout.processors}
    assert (of["sum"], of["moves"], of["behind"]) == (GroupInfo(9, None), GroupInfo(1, None), GroupInfo(2, None))
    layout = stock(Lazy(every=9))
    assert next(layout.groups[info.group] for info in layout.processors if info.name == "sum").epochs == 1


def test_what_keeps_nothing_in_front_is_cut_with_it() -> None:
    layout = stock(Snapshot(every=9), Ephemeral())
    assert logged(layout) == {("sum", "behind")}
    assert any({"moves", "parse", "sum", "max"} <= group for group in groups(layout))


def test_what_keeps_nothing_may_be_cut_with_regions_that_are_no_snapshots() -> None:
    layout = stock(Lazy(every=9), Ephemeral())
    assert any({"moves", "parse", "sum"} <= group for group in groups(layout))


@pytest.mark.parametrize("between", [Ephemeral(), AtLeastOnce()])
@pytest.mark.parametrize("other", [Lazy(every=1), LogHistory(every=1), Snapshot(every=1)])
def test_it_is_not_cut_with_another_region_because_what_both_are_given_is_not_logged(
    between: object, other: object
) -> None:
    """Its interval would be that one's, and both would go back together."""

    def fan_out(front: object) -> Layout:  # frozen
        flow = Dataflow()
        with flow.region("front", policy=front):
            moves = flow.source("moves", Iterable([1])).map(abs, name="parse")
        with flow.region("often", policy=other):
            moves.distinct(name="seen").capture("seen-out")
        with flow.region("stock", policy=Snapshot(every=9)):
            moves.key_by(abs).sum(name="sum").records().capture("out")
        return laid_out(flow)

    with pytest.raises(
        GraphError, match=r"logs nothing, so the snapshot region '\w+' and the .*would be saved together.*Batch\(\)"
    ):
        fan_out(between)
    layout = fan_out(Batch(log_outputs=True))
    of = {info.name: layout.groups[info.group] for info in layout.processors}
    assert (of["sum"].epochs, of["seen"].epochs) == (9, 1)


def test_what_logs_nothing_is_named_where_something_that_is_saved_comes_before_it() -> None:
    flow = Dataflow()
    moves = flow.source("moves", Iterable([1])).policy(Lazy(every=1)).map(abs, name="parse").policy(Ephemeral())
    with flow.region("stock", policy=Snapshot(every=9)):
        moves.key_by(abs).sum(name="sum").records().capture("out")
    with pytest.raises(GraphError, match=r"the map 'parse' \(.*\) is Ephemeral and logs nothing.*'moves'"):
        laid_out(flow)


def test_what_has_no_policy_may_be_cut_with_it() -> None:
    flow = Dataflow()
    moves = flow.source("moves", Iterable([1])).map(abs, name="parse").policy(Ephemeral())
    with flow.region("stock", policy=Snapshot(every=9)):
        moves.key_by(abs).sum(name="sum").records().capture("out")
    assert any({"moves", "parse", "sum"} <= group for group in groups(laid_out(flow)))
