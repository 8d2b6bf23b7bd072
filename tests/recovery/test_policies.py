"""Policies: what they accept, and to which operators the verb gives them."""

from __future__ import annotations

import datetime as dt
import inspect
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import falkirk
from libraries.columns import agg
from libraries.columns.verbs.columns import Columns, Stream
from libraries.columns.verbs.dataflow import Dataflow
from monitor.coordination.handshake import layout_changes
from recovery.layout import Layout, lay_out
from recovery.policy import POLICIES, Batch, Ephemeral, Interval, Lazy, LogHistory, Snapshot, interval
from timely.dataflow.fingerprint import differences, fingerprint, outline
from timely.dataflow.keyed import Keyed
from timely.dataflow.plan import compile_plan
from timely.errors import GraphError
from timely.io import Iterable


def words(flow: Dataflow) -> Stream:
    return flow.source("in", Iterable(["a", "b"]))


def policies_of(flow: Dataflow) -> dict[str, object]:
    return {node.name: node.policy for node in flow.graph.nodes}


def laid_out(flow: Dataflow) -> Layout:
    return lay_out(compile_plan(flow.graph, 2))


# every=


@pytest.mark.parametrize(
    ("every", "expected"),
    [
        (1, Interval(epochs=1)),
        (500, Interval(epochs=500)),
        (0.25, Interval(seconds=0.25)),
        ("500ms", Interval(seconds=0.5)),
        (" 2.5 s ", Interval(seconds=2.5)),
        ("3m", Interval(seconds=180.0)),
        ("3 min", Interval(seconds=180.0)),
        ("1h", Interval(seconds=3600.0)),
        (dt.timedelta(minutes=2), Interval(seconds=120.0)),
    ],
)
def test_every_is_a_number_of_epochs_or_a_duration(every: Any, expected: Interval) -> None:
    assert interval(every) == expected
    assert Lazy(every).every is every
    assert LogHistory(every, log_outputs=True).every is every


@pytest.mark.parametrize(
    "every",
    [
        0,
        -3,
        0.0,
        -1.5,
        float("inf"),
        float("nan"),
        True,
        None,
        "",
        "5",
        "s",
        "1 day",
        "-1s",
        "1s2",
        "0s",
        [1],
        dt.timedelta(0),
    ],
)
def test_every_that_says_nothing_is_refused_where_the_policy_is_made(every: Any) -> None:
    for policy in (Lazy, LogHistory, Snapshot):
        with pytest.raises(GraphError, match=r"every=.*positive number of epochs") as caught:
            policy(every)
        assert repr(every) in str(caught.value)


@given(st.text(max_size=8))
def test_texts_are_durations_or_errors_and_nothing_else(every: str) -> None:
    try:
        seconds = interval(every).seconds
    except GraphError:
        return
    assert seconds is not None
    assert seconds > 0


def test_policies_are_public_names() -> None:
    assert all(getattr(falkirk, policy.__name__) is policy for policy in POLICIES)
    assert len(POLICIES) == 9


# The verb


def test_verb_gives_the_policy_to_the_operator_and_keeps_the_kind_of_stream() -> None:
    flow = Dataflow()
    stream = words(flow).policy(Batch(log_outputs=True))
    keyed = stream.key_by(len, name="by").policy(Ephemeral())
    columns = keyed.records().to_columns({"k": pl.Int64, "v": pl.String}, name="table").policy(Lazy(2))
    assert [type(each) for each in (stream, keyed, columns)] == [Stream, Keyed, Columns]
    columns.group_by("k").agg(n=agg.count(), name="n").policy(LogHistory(3))
    expected = {"in": Batch(True), "by": Ephemeral(), "table": Lazy(2), "n": LogHistory(3)}
    assert policies_of(flow) == expected
    assert {name: flow.graph.node_named(name).policy for name in expected} == expected


def test_stage_in_front_of_count_stays_as_it_is() -> None:
    flow = Dataflow()
    words(flow).key_by(len, name="by").count(name="n").policy(LogHistory())
    assert policies_of(flow) == {"in": None, "by": None, "ones-1": None, "n": LogHistory()}


def test_operator_in_a_region_may_have_a_policy_of_its_own() -> None:
    flow = Dataflow()
    with flow.region("front", policy=Ephemeral()):
        words(flow).key_by(len, name="by").sum(name="n").policy(Lazy(7))
    assert policies_of(flow) == {"in": Ephemeral(), "by": Ephemeral(), "n": Lazy(7)}
    assert flow.graph.node_named("n").region is flow.graph.regions[0]


def test_later_policy_replaces_an_earlier_one() -> None:
    flow = Dataflow()
    looped = words(flow).iterate(lambda inner: inner.filter(len, name="some"), name="loop")
    looped.policy(Lazy(1)).policy(Lazy(2, log_outputs=True))
    assert policies_of(flow) == {"in": None, **dict.fromkeys(LOOP, Lazy(2, log_outputs=True))}


LOOP = ("loop-feedback", "loop-enter", "some", "loop-leave")


def test_policy_of_iterate_is_that_of_the_loop_but_for_what_has_its_own() -> None:
    flow = Dataflow()
    front = words(flow).map(str, name="front")

    def body(inner: Stream) -> Stream:
        once = inner.distinct(name="once").policy(LogHistory(5))
        with flow.region("within", policy=Batch()):
            shorter = once.map(lambda word: word[1:], name="shorter")
        return shorter.filter(len, name="some")

    front.iterate(body, name="loop").policy(Lazy(3)).map(str, name="behind")
    expected = {"in": None, "front": None, "once": LogHistory(5), "shorter": Batch(), "behind": None}
    assert policies_of(flow) == {**expected, **dict.fromkeys(LOOP, Lazy(3))}


def test_policy_behind_a_verb_after_iterate_leaves_the_loop_alone() -> None:
    flow = Dataflow()
    looped = words(flow).iterate(lambda inner: inner.filter(len, name="some"), name="loop")
    looped.map(str, name="behind").policy(Lazy(3))
    looped.key_by(len, name="by").policy(Lazy(4))
    assert policies_of(flow) == {"in": None, **dict.fromkeys(LOOP), "behind": Lazy(3), "by": Lazy(4)}


def test_views_of_a_loop_are_the_loop() -> None:
    flow = Dataflow()
    pairs = words(flow).key_by(len, name="by")
    pairs.iterate(lambda inner: inner.map_values(str, name="some"), name="loop").records().policy(Lazy(3))
    assert policies_of(flow) == {"in": None, "by": None, **dict.fromkeys(LOOP, Lazy(3))}


def test_policy_of_one_port_is_that_of_the_operator() -> None:
    flow = Dataflow()
    yes, no = words(flow).branch(bool, name="b")
    no.policy(Batch(log_outputs=True))
    yes.map(str, name="m")
    assert policies_of(flow) == {"in": None, "b": Batch(log_outputs=True), "m": None}


def test_policy_of_a_concat_is_refused_at_its_line() -> None:
    flow = Dataflow()
    both = words(flow).concat(flow.source("other", Iterable(["c"])))
    with pytest.raises(GraphError, match=r"several operators.*before concat") as caught:
        both.policy(Lazy())
    frame = inspect.currentframe()
    assert frame is not None
    assert f"{Path(__file__).name}:{frame.f_lineno - 3}" in str(caught.value)
    assert "Stream(in, other)" in str(caught.value)


def test_steps_with_different_policies_are_not_fused() -> None:
    flow = Dataflow()
    words(flow).map(str, name="one").map(str, name="two").policy(Batch(log_outputs=True)).map(
        str, name="three"
    ).capture()
    plan = compile_plan(flow.graph)
    assert [[node.name for node in each.nodes] for each in plan.processors] == [
        ["in"],
        ["one"],
        ["two"],
        ["three"],
        ["capture-1"],
    ]


# What a store keeps of them


def program(policy: object, name: str = "n") -> Dataflow:
    flow = Dataflow()
    words(flow).key_by(len, name="by").sum(name=name).policy(policy).records().capture("out")
    return flow


def test_interval_may_change_between_runs() -> None:
    a, b = program(Lazy(1)), program(Lazy("3s"))
    assert fingerprint(a.graph) == fingerprint(b.graph)
    assert layout_changes(laid_out(a), laid_out(b)) == []
    assert laid_out(a).groups != laid_out(b).groups


def test_what_has_no_policy_may_get_the_default_one_to_set_its_interval() -> None:
    plain = Dataflow()
    words(plain).key_by(len, name="by").sum(name="n").records().capture("out")
    assert layout_changes(laid_out(plain), laid_out(program(Lazy(9)))) == []
    assert laid_out(program(Lazy(9))).groups != laid_out(plain).groups


def test_class_and_logging_may_not_change_and_the_outline_says_so() -> None:
    before = program(Lazy())
    logging, other = program(Lazy(log_outputs=True)), program(LogHistory())
    assert len({fingerprint(flow.graph) for flow in (before, logging, other)}) == 3
    assert differences(outline(before.graph), outline(logging.graph)) == [
        "operator 'n': its logs outputs was False and is True"
    ]
    assert differences(outline(before.graph), outline(other.graph)) == [
        "operator 'n': its policy was 'Lazy' and is 'LogHistory'"
    ]
    assert any("logs outputs" in line for line in layout_changes(laid_out(before), laid_out(logging)))
    assert any("'LogHistory'" in line for line in layout_changes(laid_out(before), laid_out(other)))
