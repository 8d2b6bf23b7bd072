"""Rules of the layout: who is a chain, who finds its capabilities again, what is logged, who repeats, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from libraries import differential
from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from recovery.layout import EdgeInfo, Layout, ProcessorInfo
from recovery.policy import POLICIES, Amnesia, AtLeastOnce, Batch, Eager, Ephemeral, Lazy, LogHistory, Snapshot
from tests.recovery.test_layout import Remembers, chains, groups, laid_out, logged, repeating, words
from timely.errors import GraphError
from timely.io import Callback, Iterable, Memory
from timely.operators.base import Capability, Context
from timely.state import KeyedState
from timely.time import Summary, Time


def info(layout: Layout, name: str) -> ProcessorInfo:
    return next(each for each in layout.processors if each.name == name)


def edge(layout: Layout, source: str, target: str) -> EdgeInfo:
    names = [each.name for each in layout.processors]
    return next(each for each in layout.edges if (names[each.source], names[each.target]) == (source, target))


# Processors


def test_a_processor_says_where_it_is_and_under_which_policy() -> None:
    flow = Dataflow()
    with flow.region("front", policy=Lazy(every=2)):
        stream = words(flow).map(str, name="shout")
    stream.iterate(lambda inner: inner.filter(bool, name="inside"), name="loop").capture("out")
    layout = laid_out(flow)
    assert (info(layout, "shout").region, info(layout, "inside").region) == ("front", None)
    assert (info(layout, "shout").scope, info(layout, "inside").scope) == ((), ("loop",))
    assert (info(layout, "shout").depth, info(layout, "inside").depth) == (1, 2)
    assert info(layout, "shout").policy == "Lazy"


def test_three_policies_persist_nothing_of_an_operator() -> None:
    found = set()
    for policy in POLICIES:
        flow = Dataflow()
        with flow.region("front", policy=policy()):
            words(flow).map(str, name="map").capture("out")
        if info(laid_out(flow), "map").bare:
            found.add(policy)
    assert found == {Amnesia, Ephemeral, AtLeastOnce}


def test_in_an_eager_region_everything_is_a_chain() -> None:
    """Completion by others is known to the monitor alone, and a new one may know less of it than was made durable."""

    def built(policy: object) -> dict[str, bool]:
        flow = Dataflow()
        with flow.region("front", policy=policy):
            words(flow).map(str, name="map").capture("out")
        return chains(laid_out(flow))

    assert built(Eager())["map"]
    assert not built(Lazy())["map"]


def test_what_keeps_nothing_and_logs_what_it_sends_is_a_chain() -> None:
    flow = Dataflow()
    with flow.region("front", policy=Batch(log_outputs=True)):
        inside = words(flow).exchange(by=len, name="first").exchange(by=str, name="last")
    inside.capture("out")
    assert chains(laid_out(flow)) == {"in": True, "first": False, "last": True, "out": True}


class Holds(Remembers):
    """Keeps capabilities, and hears after a rollback which."""

    def on_restore(self, ctx: Context, capabilities: list[Capability]) -> None:
        """Take them."""


class Stateful(Remembers):
    """Tells of its state."""

    def __init__(self) -> None:
        self.state = KeyedState()


class StatefulHolds(Holds):
    """Both."""

    def __init__(self) -> None:
        self.state = KeyedState()


@pytest.mark.parametrize(
    ("operator", "policy", "finds"),
    [
        (Holds, Lazy(), True),
        (Holds, LogHistory(), True),
        (Remembers, Lazy(), False),
        (Remembers, LogHistory(), True),
        (Stateful, LogHistory(), False),
        (StatefulHolds, LogHistory(), True),
        (Stateful, Lazy(), False),
    ],
)
def test_who_finds_its_capabilities_again_says_so_or_is_replayed(operator: Any, policy: object, finds: bool) -> None:
    flow = Dataflow()
    words(flow).unary("it", operator, holds=True).policy(policy).probe()
    layout = laid_out(flow)
    assert info(layout, "it").finds_capabilities == finds
    assert not info(layout, "in").finds_capabilities


def test_a_full_history_is_kept_of_what_tells_of_its_state_though_it_is_not_said_to_keep_any() -> None:
    flow = Dataflow()
    stream = words(flow)
    stream.unary("tells", Stateful, stateful=False).policy(LogHistory()).probe()
    stream.unary("pure", Remembers, stateful=False).policy(LogHistory()).probe()
    layout = laid_out(flow)
    assert info(layout, "tells").history
    assert info(layout, "tells").chain
    assert not info(layout, "pure").history


class Once:
    """A source that cannot be read again."""

    rereadable = False

    def partitions(self, worker: int, workers: int) -> list[Any]:
        return []


def test_a_source_that_cannot_be_read_again_must_be_ephemeral() -> None:
    flow = Dataflow()
    flow.source("in", Once()).capture("out")
    with pytest.raises(GraphError, match=r"'in' .*cannot be read again.*policy\(Ephemeral\(\)\)"):
        laid_out(flow)
    flow = Dataflow()
    flow.source("in", Once()).policy(Ephemeral()).capture("out")
    assert info(laid_out(flow), "in").role == "source"
    flow = Dataflow()
    words(flow).capture("out")
    laid_out(flow)


# Edges


def looped(policy: object) -> Layout:
    flow = Dataflow()
    with flow.region("loop", policy=policy):
        source = flow.source("in", Iterable(range(10)))
        out = source.iterate(lambda inner: inner.distinct(name="new"), name="round")
    out.to(Memory(), name="out")
    return laid_out(flow)


def test_of_what_goes_round_a_loop_that_is_cut_within_epochs_what_crosses_a_cut_is_logged() -> None:
    within, between = looped(Lazy(log_outputs=True)), looped(Lazy())
    (back,) = (each for each in within.edges if each.feedback)
    assert back.ahead
    assert back.resends
    assert not back.logged
    assert (back.logs((3, 1), (3, 2)), back.logs((3, 1), (3, 1))) == (True, False)
    assert back.discarding == Summary.identity(2)
    (plain,) = (each for each in between.edges if each.feedback)
    assert not plain.ahead
    assert not plain.resends
    assert not plain.logs((3, 1), (3, 2))
    assert plain.discarding == plain.summary == Summary.feedback(2)
    assert not any(each.feedback for each in within.edges if each is not back)


def test_all_in_a_loop_that_is_cut_within_epochs_is_a_chain() -> None:
    """Then no two sets that matter are such that neither holds the other."""
    flow = Dataflow()
    with flow.region("loop", policy=Lazy(log_outputs=True)):
        source = flow.source("in", Iterable(range(10))).map(abs, name="before")
        out = source.iterate(lambda inner: inner.map(abs, name="inside").distinct(name="new"), name="round")
    out.to(Memory(), name="out")
    found = chains(laid_out(flow))
    assert (found["inside"], found["before"]) == (True, False)


class Ahead(Remembers):
    """Sends into the future."""

    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        ctx.send_at((time[0] + 1,), batch)


@pytest.mark.parametrize(("policy", "logs"), [(Lazy(), True), (Ephemeral(), False)])
def test_what_is_sent_into_later_epochs_is_logged_unless_nothing_is_saved(policy: object, logs: bool) -> None:
    flow = Dataflow()
    words(flow).unary("sends", Ahead).policy(policy).capture("out")
    layout = laid_out(flow)
    assert edge(layout, "sends", "out").ahead == logs
    assert info(layout, "sends").chain == logs
    assert not edge(layout, "in", "sends").ahead


def test_within_a_region_only_what_has_a_policy_of_its_own_logs_what_it_sends_there() -> None:
    flow = Dataflow()
    with flow.region("front", policy=Lazy(log_outputs=True)):
        first = words(flow).map(str, name="first")
        own = first.map(str, name="own").policy(Lazy(log_outputs=True, every=2))
        own.map(str, name="last").capture("out")
    assert logged(laid_out(flow)) == {("own", "last")}


# Groups


def test_groups_are_numbered_in_the_order_of_the_program() -> None:
    flow = Dataflow()
    with flow.region("front", policy=Lazy(log_outputs=True)):
        stream = words(flow)
    stream.map(str, name="last").capture("out")
    flow.source("other", Iterable([1])).capture("seen")
    assert [each.group for each in laid_out(flow).processors] == [0, 1, 1, 2, 2]


def test_snapshots_without_a_region_join_nothing() -> None:
    flow = Dataflow()
    stream = words(flow)
    stream.map(str, name="one").capture("a")
    layout = laid_out(flow)
    assert len(groups(layout)) == 1
    with flow.region("stock", policy=Snapshot(every=2)):
        stream.key_by(len, name="by").sum(name="sum").records().capture("b")
    assert groups(laid_out(flow)) == {frozenset({"in", "one", "a"}), frozenset({"by", "sum", "b"})}


def test_an_eager_operator_makes_its_group_eager_and_a_group_that_is_fed_is_not_alone() -> None:
    flow = Dataflow()
    with flow.region("first", policy=Eager()):
        stream = words(flow).map(str, name="first")
        stream.capture("seen")
    with flow.region("second", policy=Eager()):
        stream.map(str, name="second").capture("out")
    layout = laid_out(flow)
    first, second = (layout.groups[info(layout, name).group] for name in ("first", "second"))
    assert (first.eager, first.independent) == (True, True)
    assert (second.eager, second.independent) == (True, False)
    assert (first.epochs, first.seconds) == (None, None)


def test_intervals_of_those_that_save_nothing_do_not_count() -> None:
    """A map has the interval of its region, and would make the others save as often."""
    flow = Dataflow()
    words(flow).key_by(len, name="by").sum(name="sum").policy(Lazy(7)).records().map(str, name="m").policy(
        Lazy(2)
    ).capture()
    layout = laid_out(flow)
    group = layout.groups[info(layout, "sum").group]
    assert (group.epochs, group.seconds) == (7, None)


# Who repeats


def test_only_the_way_to_what_was_declared_to_differ_goes_elsewhere() -> None:
    """A declaration of an operator holds for the function by which its records find their worker, for nothing else."""
    flow = Dataflow()
    stream = words(flow)
    stream.map(str, name="sender").exchange(by=id, name="anywhere").nondeterministic("ids differ").probe()
    stream.map(str, name="steady").exchange(by=len, name="where").probe()
    stream.map(str, name="one").unary("differs", Remembers).nondeterministic("it rolls dice").probe()
    found = repeating(laid_out(flow))
    assert [found[name] for name in ("sender", "anywhere")] == [False, False]
    assert [found[name] for name in ("steady", "where", "one")] == [True, True, True]
    assert not found["differs"]


def test_of_a_chain_of_verbs_one_that_differs_is_enough() -> None:
    flow = Dataflow()
    words(flow).exchange(by=len, name="first").map(str, name="second").nondeterministic("chance").map(
        str, name="third"
    ).probe()
    layout = laid_out(flow)
    (fused,) = (each for each in layout.processors if each.role == "operator")
    assert not fused.repeats
    assert not info(layout, "in").repeats  # nor does the way there: it may find another worker


# What is refused


def reading(flow: Dataflow) -> tuple[Stream, Stream]:
    """An arrangement, and its reader, in a region of the default policy."""
    pairs = differential.from_records(flow.source("pairs", Iterable([(1, "a"), (1, "b")])))
    arranged = pairs.arrange(name="trace")
    counted = arranged.max(name="counted")
    return arranged.stream, counted.stream


def test_who_reads_the_state_of_another_is_in_one_region_with_it() -> None:
    flow = Dataflow()
    with flow.region("one", policy=Lazy(every=3)):
        _, counted = reading(flow)
    counted.capture("out")
    laid_out(flow)


@pytest.mark.parametrize("both", [False, True])
def test_who_reads_the_state_of_another_cannot_have_a_policy_of_its_own(both: bool) -> None:
    """It would be saved and brought back in another way than what it reads, even by a policy that is alike."""
    flow = Dataflow()
    arranged, counted = reading(flow)
    if both:
        arranged.policy(Lazy(every=3))
    counted.policy(Lazy(every=3)).capture("out")
    with pytest.raises(GraphError, match=r"reads the state of .*'trace'.*cannot have another policy"):
        laid_out(flow)


def test_an_output_that_promises_less_than_is_required_is_refused() -> None:
    flow = Dataflow()
    words(flow).to(Callback(print), name="told", require="precise")
    with pytest.raises(GraphError, match="requires precise"):
        laid_out(flow)


def test_a_source_of_at_least_once_gives_what_it_sends_to_epochs_anew() -> None:
    flow = Dataflow()
    with flow.region("front", policy=AtLeastOnce()):
        stream = words(flow).map(str, name="map")
    stream.distinct(name="behind").capture("out")
    layout = laid_out(flow)
    assert info(layout, "in").anew
    assert not info(layout, "behind").repeats
    assert not info(layout, "behind").anew
