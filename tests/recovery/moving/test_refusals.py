"""What may go on with another number of workers, by the program alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import falkirk
from libraries.differential.collection import Collection
from recovery.guarantees.classes import operators_of
from recovery.layout import lay_out
from recovery.moving.refusals import CannotMove, refusals
from recovery.policy.traits import Policy
from timely.dataflow.plan import compile_plan


class Kept(falkirk.Operator):
    """State by key, of which nothing says where it belongs."""

    def __init__(self) -> None:
        self.state = falkirk.KeyedState()

    def on_batch(self, ctx: falkirk.Context, port: int, time: falkirk.Time, batch: falkirk.Batch) -> None:
        """Nothing is done with it."""


class ByKey(Kept):
    moves_by_key = True


def reasons(make: Callable[[falkirk.Dataflow], object]) -> list[str]:
    flow = falkirk.Dataflow()
    make(flow)
    plan = compile_plan(flow.graph, 2)
    return refusals(plan, lay_out(plan), operators_of(flow.graph))


def pairs(flow: falkirk.Dataflow) -> falkirk.Stream:
    return flow.source("pairs", falkirk.Iterable([("a", 1)]))


def under(flow: falkirk.Dataflow, policy: Policy) -> object:
    with flow.region("counted", policy=policy):
        counts = pairs(flow).keyed().sum()
    return counts.records().capture("out")


def stateless(flow: falkirk.Dataflow, policy: Policy) -> object:
    with flow.region("front", policy=policy):
        front = pairs(flow).map(str)
    return front.capture("out")


BY_KEY = falkirk.Exchange()

MAY: dict[str, Callable[[falkirk.Dataflow], object]] = {
    "verbs by key": lambda flow: pairs(flow).keyed().sum().records().distinct().capture("out"),
    "windows": lambda flow: pairs(flow).keyed().window(falkirk.Tumbling(5), time=int).count().records().capture("out"),
    "state that says so": lambda flow: pairs(flow).unary("kept", ByKey, BY_KEY).capture("out"),
    "a history of verbs": lambda flow: pairs(flow).keyed().sum().policy(falkirk.LogHistory()).records().capture("out"),
}

MAY_NOT: dict[str, tuple[str, Callable[[falkirk.Dataflow], object]]] = {
    "state that says nothing": (
        "does not say where its entries belong",
        lambda flow: pairs(flow).unary("kept", Kept, BY_KEY).capture("out"),
    ),
    "no exchange in front": (
        "with no exchange by key in front of it",
        lambda flow: pairs(flow).unary("kept", ByKey).capture("out"),
    ),
    "a loop": (
        "is in a loop or another scope",
        lambda flow: pairs(flow).iterate(lambda inner: inner.filter(lambda _: False)).capture("out"),
    ),
    "Amnesia": ("nobody knows which of its records were under way", lambda flow: under(flow, falkirk.Amnesia())),
    "Ephemeral": (
        "nobody knows which of its records were under way",
        lambda flow: stateless(flow, falkirk.Ephemeral()),
    ),
    "Snapshot": ("is in a region with Snapshot", lambda flow: under(flow, falkirk.Snapshot())),
    "Eager": ("is Eager", lambda flow: under(flow, falkirk.Eager())),
    "a collection": (
        "keeps values by codes of its own worker",
        lambda flow: Collection(pairs(flow).map(lambda pair: (pair, 1))).distinct().stream.capture("out"),
    ),
}


@pytest.mark.parametrize("name", MAY)
def test_what_may_move(name: str) -> None:
    assert reasons(MAY[name]) == []


@pytest.mark.parametrize("name", MAY_NOT)
def test_what_may_not_is_named_with_its_line(name: str) -> None:
    text, make = MAY_NOT[name]
    found = reasons(make)
    assert any(text in each and "test_refusals.py:" in each for each in found), found


def test_an_error_has_the_first_reasons_and_says_how_many_more_there_are() -> None:
    text = str(CannotMove(2, 3, [f"reason {number}" for number in range(11)]))
    assert "the store is of 2 worker(s), and the job cannot go on with 3:\n  reason 0\n" in text
    assert "reason 7\n  and 3 more\nRun it with 2 worker(s) (-w 2)" in text
