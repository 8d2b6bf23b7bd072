"""From graph to plan: what is fused, what is queued, which places progress is tracked at, and the order of it all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from tests.timely.worker.oracle import paths_of
from timely.dataflow.plan import Plan, Way, compile_plan
from timely.io import Iterable, Memory
from timely.operators.base import Operator
from timely.progress.tracker import order_key
from timely.time import Summary, minimal_summaries


def chains(plan: Plan) -> list[list[str]]:
    return [[node.name for node in processor.nodes] for processor in plan.processors]


def test_a_chain_of_stateless_operators_is_one_processor() -> None:
    flow = Dataflow()
    flow.input("in").map(abs, name="a").filter(bool, name="b").key_by(abs, name="c").capture("out")
    plan = compile_plan(flow.graph)
    assert chains(plan) == [["in"], ["a", "b", "c"], ["out"]]
    assert [stage.name for stage in plan.processors[1].stages] == ["a", "b", "c"]
    assert plan.processors[1].node.name == "c"
    assert {plan.of_node[index] for index in (1, 2, 3)} == {1}


def test_fusion_ends_at_forks_joins_exchanges_state_scopes_regions_and_policies() -> None:
    flow = Dataflow()
    start = flow.input("in").map(abs, name="forked")
    left, right = start.map(abs, name="left"), start.map(abs, name="right")
    joined = left.concat(right).map(abs, name="joined").exchange(abs, name="exchanged").map(abs, name="after")
    inside = joined.distinct(name="distinct").map(abs, name="m").enter(flow.scope("s"), name="enter").map(abs, name="i")
    last = inside.leave(name="leave").map(abs, name="plain")
    with flow.region("r", policy=object()):
        last.map(abs, name="regional").map(abs, name="regional too").capture("out")
    expected = [
        ["in"],
        ["forked"],
        ["left"],
        ["right"],
        ["joined"],
        ["exchanged", "after"],
        ["distinct"],
        ["m"],
        ["enter"],
        ["i"],
        ["leave"],
        ["plain"],
        ["regional", "regional too"],
        ["out"],
    ]
    for workers in (1, 3):
        assert chains(compile_plan(flow.graph, workers)) == expected


def test_a_probe_is_no_processor_and_splits_no_chain_apart_from_its_fork() -> None:
    flow = Dataflow()
    stream = flow.input("in").map(abs, name="a")
    probe = stream.probe("p")
    plan = compile_plan(flow.graph)
    assert chains(plan) == [["in"], ["a"]]
    assert plan.processors[1].routes == ((),)
    assert set(plan.probes) == {probe.node}


def test_exchanges_are_pushed_by_one_worker_and_travel_between_several() -> None:
    flow = Dataflow()
    stream = flow.input("in").exchange(abs, name="x").broadcast(name="b")
    stream.iterate(lambda inner: inner.filter(bool, name="f"), name="l").capture("out")

    def ways(workers: int) -> dict[str, Way]:
        plan = compile_plan(flow.graph, workers)
        routes = [r for p in plan.processors for port in p.routes for r in port]
        return {plan.processors[r.processor].nodes[0].name: r.way for r in routes}

    alone, several = ways(1), ways(2)
    assert alone["l-feedback"] is several["l-feedback"] is Way.QUEUE
    assert alone["x"] is alone["b"] is Way.PUSH
    assert (several["x"], several["b"]) == (Way.EXCHANGE, Way.BROADCAST)
    assert several["f"] is several["out"] is Way.PUSH


def test_only_what_can_hold_something_is_a_place_of_progress() -> None:
    flow = Dataflow()
    stream = flow.source("in", Iterable([1])).map(abs)
    for _ in range(20):
        stream = stream.key_by(abs).count(over="time").records().map(str)
    stream.to(Memory(), name="out")
    stream.unary("holder", Operator, holds=True).probe()
    alone, several = compile_plan(flow.graph), compile_plan(flow.graph, 2)
    assert len(alone.place_names) == 2
    assert len(several.place_names) == 1 + 20 * 2 + 1
    assert len(alone.topology.watches) < len(flow.graph.nodes)


def test_the_ends_of_a_source_are_where_its_records_stop() -> None:
    flow = Dataflow()
    first, second = flow.input("first"), flow.input("second")
    first.map(abs).to(Memory(), name="out")
    first.concat(second).probe("p")
    plan = compile_plan(flow.graph)
    nodes = {node.name: node.index for node in flow.graph.nodes}
    assert len(plan.ends[nodes["first"]]) == 2
    assert plan.ends[nodes["second"]] == (plan.probes[nodes["p"]],)


def loops(draw: Any, stream: Stream, depth: int) -> Stream:
    for _ in range(draw(st.integers(1, 3))):
        step = draw(st.sampled_from(["map", "exchange", "count", "branch", "loop", "diamond"]))
        if step == "map":
            stream = stream.map(abs)
        elif step == "exchange":
            stream = stream.exchange(abs)
        elif step == "count":
            stream = stream.distinct(over="time")
        elif step == "branch":
            yes, no = stream.branch(bool)
            stream = yes.concat(no.map(abs))
        elif step == "diamond":
            stream = stream.keyed().join(stream.map(abs).keyed()).records()
        elif depth < 3:
            stream = stream.iterate(lambda inner: loops(draw, inner, depth + 1))
    return stream


@given(st.data(), st.sampled_from([1, 2]))
@settings(max_examples=40)
def test_the_order_of_processors_agrees_with_could_result_in(data: st.DataObject, workers: int) -> None:
    flow = Dataflow()
    loops(data.draw, flow.input("in"), 1).probe()
    plan = compile_plan(flow.graph, workers)
    rank_of = {node.index: p.rank for p in plan.processors for node in p.nodes}
    for (begin, end), summaries in paths_of(flow.graph).items():
        if begin not in rank_of or end not in rank_of or plan.of_node[begin] == plan.of_node[end]:
            continue
        for summary in summaries:
            time = tuple(data.draw(st.integers(0, 3)) for _ in range(summary.depth))
            assert order_key(time, rank_of[begin]) < order_key(summary(time), rank_of[end])


@given(st.data(), st.sampled_from([1, 2]))
@settings(max_examples=40)
def test_contracted_arrivals_equal_the_paths_of_the_whole_graph(data: st.DataObject, workers: int) -> None:
    flow = Dataflow()
    loops(data.draw, flow.input("in"), 1).probe("end")
    compare_with_all_paths(flow, workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_paths_that_do_not_compare_are_all_kept(workers: int) -> None:
    """From beside the inner loop back to its head: one iteration later inside, or one outside and none inside."""
    flow = Dataflow()

    def detour(stream: Stream) -> Stream:
        beside = stream.unary("beside", Operator, holds=True).exchange(abs)
        return stream.map(abs, name="head").concat(beside)

    flow.input("in").iterate(lambda outer: outer.iterate(detour)).probe()
    compare_with_all_paths(flow, workers)
    paths = paths_of(flow.graph)
    assert len(paths[flow.graph.node_named("beside").index, flow.graph.node_named("head").index]) == 2


def compare_with_all_paths(flow: Dataflow, workers: int) -> None:
    """From every place to every node: the arcs and arrivals of the plan say what relaxation on the full graph says."""
    plan = compile_plan(flow.graph, workers)
    paths = paths_of(flow.graph)
    place_of = {p.node.index: p.place for p in plan.processors if p.place is not None}
    reached: dict[tuple[int, int], list[Any]] = {}
    frontier = [
        ((place, place), Summary.identity(plan.topology.depths[place])) for place in range(len(plan.place_names))
    ]
    while frontier:
        pair, summary = frontier.pop()
        known = reached.setdefault(pair, [])
        if set(minimal_summaries([*known, summary])) == set(known):
            continue
        known[:] = minimal_summaries([*known, summary])
        for arc in plan.topology.arcs:
            if arc.source == pair[1]:
                frontier.append(((pair[0], arc.target), summary.then(arc.summary)))
    for origin, place in place_of.items():
        for node in flow.graph.nodes:
            through = [
                first.then(last)
                for middle, lasts in plan.arrivals[node.index].items()
                for first in reached.get((place, middle), [])
                for last in lasts
            ]
            assert set(minimal_summaries(through)) == set(paths.get((origin, node.index), ())), node.name


@pytest.mark.parametrize("workers", [1, 2])
def test_plans_of_equal_programs_are_equal(workers: int) -> None:
    def plan() -> Plan:
        flow = Dataflow()
        stream = flow.input("in").key_by(abs).count().records()
        stream.iterate(lambda i: i.distinct().map(abs).iterate(lambda j: j.exchange(abs))).to(Memory())
        return compile_plan(flow.graph, workers)

    one, two = plan(), plan()
    assert one.topology == two.topology
    assert [(p.rank, p.watch, p.place) for p in one.processors] == [(p.rank, p.watch, p.place) for p in two.processors]
    assert one.place_names == two.place_names
