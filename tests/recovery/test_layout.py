"""Recovery's view of a plan: kinds of processors, logged edges, groups; and what it refuses, naming the user's line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from libraries.connect import FileSink
from recovery.layout import Layout, lay_out
from recovery.policy import Batch, Ephemeral, Lazy, LogHistory
from timely.dataflow.plan import compile_plan
from timely.errors import GraphError
from timely.io import Callback, Iterable, Memory
from timely.operators.base import Operator
from timely.operators.window_shapes import Tumbling
from timely.time import Summary


def words(flow: Dataflow) -> Stream:
    return flow.source("in", Iterable(["a", "b"]))


def laid_out(flow: Dataflow, workers: int = 2) -> Layout:
    return lay_out(compile_plan(flow.graph, workers))


def chains(layout: Layout) -> dict[str, bool]:
    return {info.name: info.chain for info in layout.processors}


def logged(layout: Layout) -> set[tuple[str, str]]:
    names = [info.name for info in layout.processors]
    return {(names[edge.source], names[edge.target]) for edge in layout.edges if edge.logged}


def groups(layout: Layout) -> set[frozenset[str]]:
    return {frozenset(layout.processors[p].name for p in layout.members(group)) for group in range(len(layout.groups))}


class Remembers(Operator):
    """Without state that it tells of."""


# Kinds


def test_what_keeps_state_persists_it_and_what_keeps_none_does_not() -> None:
    flow = Dataflow()
    stream = words(flow).map(str, name="map")
    keyed = stream.key_by(len, name="by")
    keyed.count(name="running").records().capture("out")
    keyed.sum(over="time", name="each").records().to(Callback(print), name="told")
    stream.distinct(over="time", name="once").to(Memory(), name="kept")
    stream.unary("custom", Remembers).probe()
    stream.unary("pure", Remembers, stateful=False).probe()
    stream.unary("free", Remembers).policy(Ephemeral()).probe()
    assert chains(laid_out(flow)) == {
        "in": True,
        "map": False,
        "by": False,
        "ones-1": False,
        "running": True,
        "out": True,
        "each": False,
        "told": False,
        "once": False,
        "kept": True,
        "custom": True,
        "pure": False,
        "free": False,
    }


def test_roles_say_where_records_come_from_and_whether_outputs_can_wait(tmp_path: Path) -> None:
    flow = Dataflow()
    stream = words(flow)
    stream.to(FileSink(tmp_path), name="files")
    stream.to(Callback(print), name="told")
    stream.capture("captured")
    stream.map(str, name="map").probe()
    roles = {info.name: info.role for info in laid_out(flow).processors}
    assert roles == {"in": "source", "files": "sink", "told": "output", "captured": "capture", "map": "operator"}


def test_full_history_is_kept_of_what_may_remember_and_of_nothing_else() -> None:
    flow = Dataflow()
    with flow.region("r", policy=LogHistory()):
        stream = words(flow).map(str, name="map").iterate(lambda inner: inner.filter(bool, name="some"), name="loop")
        stream.unary("custom", Remembers).key_by(len, name="by").sum(name="sum").records().to(Memory(), name="sink")
    layout = laid_out(flow)
    assert {info.name for info in layout.processors if info.history} == {"custom", "sum"}
    assert {name for name, chain in chains(layout).items() if chain} == {"in", "custom", "sum", "sink"}


# Logged edges and groups


def test_region_logs_what_leaves_it_and_nothing_inside() -> None:
    flow = Dataflow()
    with flow.region("front", policy=Batch(log_outputs=True)):
        once = words(flow).distinct(over="time", name="once")
        short = once.map(str, name="short")
    short.capture("a")
    once.map(str, name="behind").capture("b")
    layout = laid_out(flow)
    assert logged(layout) == {("short", "a"), ("once", "behind")}
    assert chains(layout) == {"in": True, "once": True, "short": True, "a": True, "behind": False, "b": True}
    assert groups(layout) == {frozenset({"in", "once", "short"}), frozenset({"a"}), frozenset({"behind", "b"})}


def test_operator_with_a_policy_of_its_own_logs_all_that_it_sends() -> None:
    flow = Dataflow()
    once = words(flow).distinct(over="time", name="once").policy(Batch(log_outputs=True))
    again = once.distinct(over="time", name="again").policy(Batch(log_outputs=True))
    again.capture("a")
    once.capture("b")
    layout = laid_out(flow)
    assert logged(layout) == {("once", "again"), ("again", "a"), ("once", "b")}
    assert groups(layout) == {frozenset({"in", "once"}), frozenset({"again"}), frozenset({"a"}), frozenset({"b"})}


def test_loop_with_a_policy_of_its_own_logs_what_leaves_the_loop() -> None:
    flow = Dataflow()
    loop = words(flow).iterate(lambda inner: inner.distinct(name="once").filter(bool, name="some"), name="loop")
    loop.policy(Lazy(log_outputs=True)).capture("a")
    assert logged(laid_out(flow)) == {("loop-leave", "a")}


def test_nested_region_is_outside_of_the_one_around_it() -> None:
    flow = Dataflow()
    with flow.region("outer", policy=Lazy(log_outputs=True)):
        stream = words(flow).map(str, name="before")
        with flow.region("inner", policy=Lazy()):
            stream = stream.map(str, name="within")
        stream.map(str, name="after").probe()
    assert logged(laid_out(flow)) == {("before", "within")}


def test_ephemeral_logs_nothing() -> None:
    flow = Dataflow()
    with flow.region("front", policy=Ephemeral()):
        stream = words(flow).map(str, name="map")
    stream.capture("a")
    layout = laid_out(flow)
    assert logged(layout) == set()
    assert len(layout.groups) == 1


def test_exchanges_are_spread_and_what_stays_on_its_worker_is_not() -> None:
    flow = Dataflow()
    words(flow).key_by(len, name="by").sum(name="sum").records().broadcast(name="all").capture("out")
    layout = laid_out(flow)
    names = [info.name for info in layout.processors]
    assert {(names[e.source], names[e.target]): e.spread for e in layout.edges} == {
        ("in", "by"): False,
        ("by", "sum"): True,
        ("sum", "all"): True,
        ("all", "out"): False,
    }


def test_edges_do_to_times_what_their_source_does() -> None:
    flow = Dataflow()
    words(flow).iterate(lambda inner: inner.map(str, name="map"), name="loop").capture("out")
    layout = laid_out(flow, workers=1)
    of = {(layout.processors[e.source].name, layout.processors[e.target].name): e.summary for e in layout.edges}
    assert of["in", "loop-enter"] == Summary.identity(1)
    assert of["loop-enter", "map"] == Summary.ingress(1)
    assert of["loop-feedback", "map"] == Summary.feedback(2)
    assert of["loop-leave", "out"] == Summary.egress(2)
    inside = {info.name for info in layout.processors if info.depth == 2}
    assert inside == {"loop-feedback", "map", "loop-leave"}, "by the times that come in"


def test_indexes_of_edges_are_in_the_order_of_the_layout() -> None:
    flow = Dataflow()
    stream = words(flow)
    stream.map(str, name="a").concat(stream.map(str, name="b")).distinct(name="once").capture("out")
    layout = laid_out(flow)
    for p, (out, into) in enumerate(zip(layout.outgoing(), layout.incoming(), strict=True)):
        assert out == [index for index, edge in enumerate(layout.edges) if edge.source == p]
        assert into == [index for index, edge in enumerate(layout.edges) if edge.target == p]


# Intervals


def intervals(flow: Dataflow) -> dict[str, tuple[int | None, float | None]]:
    layout = laid_out(flow)
    return {info.name: (g.epochs, g.seconds) for info in layout.processors if (g := layout.groups[info.group])}


def test_most_impatient_policy_sets_the_interval_of_a_group() -> None:
    flow = Dataflow()
    keyed = words(flow).key_by(len, name="by")
    keyed.sum(name="a").policy(Lazy("5s")).sum(name="b").policy(Lazy("2s")).sum(name="c").policy(LogHistory(100))
    assert set(intervals(flow).values()) == {(100, 2.0)}


def test_default_policy_makes_nothing_more_frequent_than_was_said() -> None:
    flow = Dataflow()
    words(flow).key_by(len, name="by").sum(name="a").policy(Lazy("1h")).records().capture("out")
    assert set(intervals(flow).values()) == {(None, 3600.0)}
    plain = Dataflow()
    words(plain).key_by(len, name="by").sum(name="a").records().capture("out")
    assert set(intervals(plain).values()) == {(None, 1.0)}


def test_groups_behind_a_log_have_intervals_of_their_own() -> None:
    flow = Dataflow()
    with flow.region("front", policy=Batch(log_outputs=True)):
        once = words(flow).distinct(over="time", name="once")
    once.key_by(len, name="by").sum(name="sum").policy(Lazy(3)).records().capture("out")
    found = intervals(flow)
    assert found["in"] == found["once"] == (None, 1.0)
    assert found["by"] == found["sum"] == found["out"] == (3, None)


# What is refused


def here() -> int:
    """The line of the caller."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def refused(flow: Dataflow, line: int, *words: str) -> None:
    with pytest.raises(GraphError) as caught:
        laid_out(flow)
    for word in (f"{Path(__file__).name}:{line}", *words):
        assert word in str(caught.value)


def running_sum(stream: Any) -> Any:
    return stream.key_by(len).sum(name="totals")


def running_window(stream: Any) -> Any:
    return stream.key_by(len).window(Tumbling(3), time=len, name="totals").sum()


@pytest.mark.parametrize("policy", [Ephemeral(), Batch(), Batch(log_outputs=True)])
@pytest.mark.parametrize("verb", [running_sum, running_window])
def test_state_that_a_policy_would_lose_is_refused(policy: object, verb: Callable[[Any], Any]) -> None:
    flow = Dataflow()
    with flow.region("front", policy=policy):
        verb(words(flow))
    line = inspect.getsourcelines(verb)[1] + 1
    refused(
        flow, line, "'totals", "keeps state from one time to the next", f"{type(policy).__name__} would lose", "Lazy("
    )


def test_state_that_the_policy_of_one_operator_would_lose_is_refused() -> None:
    flow = Dataflow()
    words(flow).key_by(len).sum(name="totals").policy(Ephemeral()); line = here()  # noqa: E702  # fmt: skip
    refused(flow, line, "sum 'totals'", "Ephemeral")


def test_state_of_one_time_is_no_reason_to_refuse() -> None:
    flow = Dataflow()
    with flow.region("front", policy=Ephemeral()):
        words(flow).key_by(len).sum(over="time", name="totals").records().capture("out")
    assert not chains(laid_out(flow))["totals"]


@pytest.mark.parametrize("policy", [42, "lazy", Lazy, {"every": 1}])
def test_policy_that_is_none_is_refused_at_the_line_of_what_has_it(policy: object) -> None:
    expected = repr(policy), "Ephemeral, Batch, Lazy, LogHistory"
    flow = Dataflow()
    words(flow).map(str, name="shout").policy(policy).capture(); line = here()  # noqa: E702  # fmt: skip
    refused(flow, line, "map 'shout'", *expected)


def test_input_that_is_fed_by_hand_is_refused() -> None:
    flow = Dataflow()
    flow.input("typed").capture(); line = here()  # noqa: E702  # fmt: skip
    refused(flow, line, "input 'typed'", "fed by hand", "flow.source(")


# Kept messages


def kept(layout: Layout) -> set[tuple[str, str]]:
    names = [info.name for info in layout.processors]
    return {(names[edge.source], names[edge.target]) for edge in layout.edges if edge.kept}


def two_ways() -> Dataflow:
    flow = Dataflow()
    with flow.region("front", policy=Ephemeral()):
        front = words(flow).exchange(by=len, name="free")
    front.key_by(len, name="by").count(name="count").records().capture("out")
    return flow


def test_what_goes_to_other_workers_is_kept_whatever_is_persisted_of_its_sender() -> None:
    assert kept(laid_out(two_ways())) == {("in", "free"), ("ones-1", "count")}
    assert kept(laid_out(two_ways(), workers=1)) == set()


def repeating(layout: Layout) -> dict[str, bool]:
    return {info.name: info.repeats for info in layout.processors}


class Unsure:
    """A source that does not say how its epochs are cut."""

    def partitions(self, worker: int, workers: int) -> list[Any]:
        return []


class Repeats(Remembers):
    """Its jobs give the same again."""

    repeats = True
    repeats_over = "time"


class ByTime(Remembers):
    """It says that it gives the same in whatever batches the records of a time come."""

    repeats_over = "time"


def test_what_nobody_vouches_for_does_not_repeat() -> None:
    flow = Dataflow()
    stream = words(flow)
    stream.unary("plain", ByTime).probe()
    stream.unary("undeclared", Remembers).probe()
    stream.unary("declared", Remembers).nondeterministic("it rolls dice").probe()
    stream.unary("jobs", Remembers, holds=True).probe()
    stream.unary("same jobs", Repeats, holds=True).probe()
    chain = stream.map(str, name="first").nondeterministic("it asks a service").map(str, name="second")
    chain.capture("chain")
    routed = stream.map(str, name="sender").exchange(by=id, name="anywhere").nondeterministic("ids differ")
    routed.capture("routed out")
    with flow.region("region", nondeterministic="order matters"):
        stream.unary("inside", Remembers).probe()
    flow.source("unsure", Unsure()).capture("unsure out")
    assert repeating(laid_out(flow)) == {
        "in": True,
        "plain": True,
        "undeclared": False,
        "declared": False,
        "jobs": False,
        "same jobs": True,
        "second": False,
        "chain": True,
        "sender": False,
        "anywhere": False,
        "routed out": True,
        "inside": False,
        "unsure": False,
        "unsure out": True,
    }


@pytest.mark.parametrize("reason", ["", None, 3])
def test_a_reason_is_a_text(reason: Any) -> None:
    stream = words(Dataflow())
    with pytest.raises(GraphError, match=r"test_layout.py:\d+: a reason is a text"):
        stream.map(str).nondeterministic(reason)


def test_what_comes_from_several_operators_is_declared_one_by_one() -> None:
    stream = words(Dataflow())
    with pytest.raises(GraphError, match=r"nondeterministic\(\) of Stream\(.*several operators"):
        stream.map(str).concat(stream).nondeterministic("chance")


def test_what_looks_at_batches_repeats_only_where_nothing_divides_them_otherwise() -> None:
    flow = Dataflow()
    whole = flow.source("whole", Iterable(["a", "bc"], epoch_every=1))
    pieces = flow.source("pieces", Iterable(["a", "bc"]))
    logged = Batch(log_outputs=True)
    whole.map(str, name="chained").map_batches(list, name="beside").capture("beside out")
    whole.policy(logged).map_batches(list, name="behind a log").policy(Lazy()).capture("log out")
    whole.branch(bool, name="parted")[0].unary("behind a branch", Remembers).capture("branch out")
    whole.exchange(by=len, name="spread").map_batches(list, name="behind an exchange").capture("far")
    whole.exchange(by=len).distinct().map(str).unary("far behind an exchange", Remembers).capture("farther")
    whole.concat(whole.map(str)).unary("behind two", Remembers).capture("two out")
    whole.map_batches(list, name="says so", repeats_over="record").exchange(by=len).capture("sure")
    pieces.map_batches(list, name="behind pieces").capture("pieces out")
    pieces.map_batches(list, name="says so of pieces", repeats_over="record").capture("sure of pieces")
    assert {name: found for name, found in repeating(laid_out(flow)).items() if " out" not in name} == {
        "whole": True,
        "pieces": True,
        "beside": True,
        "behind a log": True,
        "parted": True,
        "behind a branch": True,
        "behind an exchange": False,
        "distinct-1": True,
        "exchange-1": True,
        "map-1": True,
        "far behind an exchange": False,
        "map-2": True,
        "behind two": False,
        "says so": True,
        "exchange-2": True,
        "behind pieces": False,
        "says so of pieces": True,
        "far": True,
        "farther": True,
        "sure": True,
        "sure of pieces": True,
    }


def test_an_obligation_that_there_is_none_of_is_refused() -> None:
    class Wrong(Operator):
        repeats_over = ("time", "any")  # type: ignore[assignment]

    flow = Dataflow()
    words(flow).unary("wrong", Wrong).capture("out")
    with pytest.raises(
        GraphError, match=r"unary 'wrong' \(.*test_layout.py:\d+\) declares repeats_over = \('time', 'any'\)"
    ):
        laid_out(flow)
    with pytest.raises(GraphError, match=r"map_batches \(.*test_layout.py:\d+\) declares repeats_over = 'never'"):
        words(Dataflow()).map_batches(list, repeats_over="never")  # type: ignore[arg-type]


def test_what_looks_at_batches_does_not_repeat_however_far_behind_an_exchange() -> None:
    """Operators between that send a batch for each keep those that they are given: none brings the former ones back."""
    flow = Dataflow()
    stream = flow.source("whole", Iterable(["a", "bc"], epoch_every=1))
    for name, begins in (("far", stream.exchange(by=len)), ("near", stream)):
        between = begins.branch(bool, name=f"{name} 1")[0].branch(bool, name=f"{name} 2")[0]
        between.map_batches(list, name=name).branch(bool, name=f"{name} 3")[0].probe()
    layout = laid_out(flow)
    ends = {layout.processors[edge.target].name for edge in layout.edges if edge.spread}
    assert ends.isdisjoint({"near", "far", "far 2"})
    repeats = repeating(layout)
    assert (repeats["far"], repeats["near"]) == (False, True)
