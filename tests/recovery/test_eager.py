"""Eager regions in a layout: which groups each worker cuts by itself, and what may not be in one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falkirk.simulate.simulation import Simulation
from libraries.columns.verbs.dataflow import Dataflow
from libraries.connect import FileSink
from recovery.layout import Layout
from recovery.policy import Batch, Eager, Ephemeral, Lazy
from tests.recovery.test_layout import Remembers, groups, laid_out, logged
from timely.errors import GraphError
from timely.io import Callback, Iterable


def of_group(layout: Layout, name: str) -> tuple[bool, bool]:
    """Of the group of an operator: eager, alone."""
    info = next(info for info in layout.processors if info.name == name)
    group = layout.groups[info.group]
    return group.eager, group.independent


def mixed() -> Dataflow:
    flow = Dataflow()
    with flow.region("first", policy=Eager()):
        first = flow.source("in", Iterable([1])).map(abs, name="first")
    with flow.region("lazy", policy=Lazy()):
        lazy = first.map(abs, name="lazy")
    with flow.region("second", policy=Eager()):
        lazy.key_by(abs, name="second").sum(name="sum").records().capture("out")
    return flow


def test_what_enters_or_leaves_an_eager_region_is_logged_and_so_is_what_is_exchanged_in_it() -> None:
    layout = laid_out(mixed())
    assert logged(layout) == {("first", "gate-1"), ("lazy", "second"), ("second", "gate-2"), ("gate-2", "sum")}
    assert groups(layout) == {
        frozenset(each) for each in (("in", "first"), ("gate-1", "lazy"), ("second",), ("gate-2",), ("sum", "out"))
    }


def test_where_nothing_is_exchanged_a_region_is_one_group_whatever_gates_it_has() -> None:
    layout = laid_out(mixed(), 1)
    assert logged(layout) == {("first", "gate-1"), ("lazy", "second")}
    assert groups(layout) == {
        frozenset(each) for each in (("in", "first"), ("gate-1", "lazy"), ("second", "gate-2", "sum", "out"))
    }
    flow = Dataflow()
    with flow.region("now", policy=Eager()):
        flow.source("in", Iterable([1])).key_by(abs).sum().records().capture("out")
    assert of_group(laid_out(flow, 1), "out") == (True, True)
    assert of_group(laid_out(flow, 2), "out") == (True, False)


def test_what_nothing_comes_to_from_outside_is_alone() -> None:
    layout = laid_out(mixed())
    found = {name: of_group(layout, name) for name in ("in", "lazy", "second", "gate-2", "out")}
    fed = (True, False)
    assert found == {"in": (True, True), "lazy": (False, False), "second": fed, "gate-2": fed, "out": fed}


def test_all_that_is_eager_persists_what_it_can_be_restored_to() -> None:
    layout = laid_out(mixed())
    assert {info.name for info in layout.processors if not info.chain} == {"gate-1"}


def test_a_commit_has_no_interval() -> None:
    eager = [group for group in laid_out(mixed()).groups if group.eager]
    assert {(group.epochs, group.seconds) for group in eager} == {(None, None)}


def of_its_own(flow: Dataflow) -> None:
    flow.source("in", Iterable([1])).map(abs).policy(Eager()).capture()


def of_its_own_in_a_region(flow: Dataflow) -> None:
    with flow.region("lazy", policy=Lazy()):
        flow.source("in", Iterable([1])).map(abs).policy(Eager()).capture()


def other_inside(flow: Dataflow) -> None:
    with flow.region("now", policy=Eager()):
        flow.source("in", Iterable([1])).unary("lazy", Remembers).policy(Lazy()).capture()


def in_a_loop(flow: Dataflow) -> None:
    with flow.region("now", policy=Eager()):
        flow.source("in", Iterable([1])).iterate(lambda inner: inner.filter(bool)).capture()


def capabilities(flow: Dataflow) -> None:
    with flow.region("now", policy=Eager()):
        flow.source("in", Iterable([1])).unary("holds", Remembers, holds=True).capture()


def told_at_least_once(flow: Dataflow) -> None:
    with flow.region("now", policy=Eager()):
        flow.source("in", Iterable([1])).to(Callback(print))


def ephemeral_front(flow: Dataflow) -> None:
    with flow.region("front", policy=Ephemeral()):
        front = flow.source("in", Iterable([1])).map(abs)
    with flow.region("now", policy=Eager()):
        front.map(abs).capture()


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (of_its_own, "the map 'map-1' (HERE) has a policy Eager() of its own: what is eager is a region"),
        (of_its_own_in_a_region, "the map 'map-1' (HERE) has a policy Eager() of its own: what is eager is a region"),
        (other_inside, "the unary 'lazy' (HERE) has the policy Lazy in the eager region 'now'"),
        (in_a_loop, "in the eager region 'now': loops and nested scopes cannot be in one"),
        (capabilities, "the unary 'holds' (HERE) may keep capabilities or start jobs"),
        (told_at_least_once, "the sink 'sink-1' (HERE) is told at least once"),
        (ephemeral_front, "the map 'map-1' (HERE) is Ephemeral, and sends to the map 'map-2'"),
    ],
)
def test_what_cannot_be_in_an_eager_region_is_refused_with_its_line(
    build: Callable[[Dataflow], Any], says: str
) -> None:
    flow = Dataflow()
    build(flow)
    with pytest.raises(GraphError) as refused:
        laid_out(flow)
    here = f"{Path(inspect.getfile(build)).name}:"
    assert all(part in str(refused.value) for part in says.replace("HERE", here).split(here)), str(refused.value)


def test_a_sink_in_an_eager_region_must_say_that_it_is_exactly_once(tmp_path: Path) -> None:
    class Silent:
        """Says nothing of it."""

        def open(self, worker: int, workers: int) -> None:
            """Nothing."""

    def check(sink: Any) -> None:
        flow = Dataflow()
        with flow.region("now", policy=Eager()):
            flow.source("in", Iterable([1])).to(sink)
        laid_out(flow)

    check(FileSink(tmp_path))
    with pytest.raises(GraphError, match="is told at least once"):
        check(Silent())


def test_batch_in_front_of_an_eager_region_logs_for_it() -> None:
    flow = Dataflow()
    with flow.region("front", policy=Batch()):
        front = flow.source("in", Iterable([1])).map(abs, name="front")
    with flow.region("now", policy=Eager()):
        front.exchange(by=abs, name="now").capture("out")
    assert logged(laid_out(flow)) == {("front", "now")}


ITSELF = -1
"""Of a stream that is joined with none."""


def beside_itself(steps: list[tuple[int, int, str]]) -> Dataflow:
    """An eager region of streams of numbers: each step takes one or two of those before it, by their positions."""
    flow = Dataflow("beside itself")
    with flow.region("now", policy=Eager()):
        streams = [flow.source("in", Iterable(range(6), epoch_every=2))]
        for number, (first, second, how) in enumerate(steps):
            stream = streams[first % len(streams)]
            if second != ITSELF:
                stream = stream.concat(streams[second % len(streams)])
            if how == "exchange":
                stream = stream.exchange(by=abs)
            elif how == "outside":
                with flow.region(f"r{number}", policy=Lazy(1)):
                    stream = stream.map(abs)
            streams.append(stream.map(abs))
        streams[-1].capture("out")
    return flow


STEP = st.tuples(st.integers(0, 5), st.integers(ITSELF, 5), st.sampled_from(["map", "exchange", "outside"]))


@given(st.lists(STEP, min_size=1, max_size=8), st.integers(1, 2))
def test_no_group_waits_for_itself(steps: list[tuple[int, int, str]], workers: int) -> None:
    """Nothing that comes past a gate is persisted with what is in front of that gate, which would wait for it for ever."""
    layout = laid_out(beside_itself(steps), workers)
    group = [info.group for info in layout.processors]
    waits: nx.DiGraph[int] = nx.DiGraph((group[e.source], group[e.target]) for e in layout.edges if e.logged)
    assert nx.is_directed_acyclic_graph(waits)


@pytest.mark.parametrize("how", ["exchange", "outside"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_stream_meets_what_became_of_it_behind_a_gate(how: str, order: tuple[int, int], workers: int) -> None:
    """The job ends: each way is committed by itself."""
    simulation = Simulation(lambda: beside_itself([(0, ITSELF, how), (*order, "map")]), workers)
    assert [simulation.run(seed) for seed in range(3)] == [None] * 3
