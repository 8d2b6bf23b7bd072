"""Loops whose feedback adds more than one to the iteration, against a plain fixed point."""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import falkirk
from runtime.session.cluster import Cluster
from tests.falkirk.simulate.programs import ROADS, Roads, delayed_loops, distances
from tests.timely.feeding import feed_in_turn
from timely.dataflow.fingerprint import differences, fingerprint, outline
from timely.errors import GraphError

roads = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(1, 4)), min_size=1, max_size=14)


def shortest(start: list[int], roads: Roads) -> Counter[tuple[int, int]]:
    found: dict[int, int] = {}
    todo = [(0, place) for place in start]
    while todo:
        at, place = heappop(todo)
        if place not in found:
            found[place] = at
            for begin, to, length in roads:
                if begin == place:
                    heappush(todo, (at + length, to))
    return Counter(found.items())


@given(st.lists(st.lists(st.integers(0, 6), max_size=3), min_size=1, max_size=3), roads, st.integers(1, 3))
@settings(max_examples=60)
def test_with_delays_that_are_lengths_iterations_are_distances(
    epochs: list[list[int]], roads: Roads, workers: int
) -> None:
    flow = falkirk.Dataflow()
    out = distances(flow.input("in"), roads).capture()
    cluster = Cluster(flow, workers, seed=len(roads))
    feed_in_turn(cluster, epochs)
    found: dict[Any, Counter[Any]] = {}
    for (epoch,), batch in cluster.captured(out):
        found.setdefault(epoch, Counter()).update(batch)
    assert found == {epoch: shortest(start, roads) for epoch, start in enumerate(epochs) if start}


def test_the_simulated_job_is_about_distances_too() -> None:
    found = falkirk.run(delayed_loops()).captured("distances")
    starts = [[a, b] for a, b in zip([0, 9, 30, 4], [17, 23, 8, 12])]
    at: dict[Any, Counter[Any]] = {}
    for (epoch,), batch in found:
        at.setdefault(epoch, Counter()).update(batch)
    assert at == {epoch: shortest(start, ROADS) for epoch, start in enumerate(starts)}


@pytest.mark.parametrize("limit", [1, 5, 6, 7, 8])
def test_a_limit_counts_iterations(limit: int) -> None:
    flow = falkirk.Dataflow()
    scope = flow.scope("s")
    loop, again = flow.feedback(scope, limit, delay=3)
    numbers = flow.source("in", falkirk.Iterable([0])).enter(scope).concat(again)
    numbers.map(lambda n: n + 3).connect_loop(loop)
    numbers.leave().capture("out")
    assert [n for _, batch in falkirk.run(flow).captured("out") for n in batch] == list(range(0, limit, 3))


@pytest.mark.parametrize("delay", [0, -1, 1.0, "2", True, None, 1 << 63])
def test_a_delay_is_a_number_of_iterations(delay: Any) -> None:
    flow = falkirk.Dataflow()
    with pytest.raises(GraphError, match=r"test_delays\.py:\d+: a loop's delay is a number of iterations from 1 up"):
        flow.feedback(flow.scope("s"), delay=delay)


def test_a_changed_delay_is_a_changed_program() -> None:
    def build(**delay: int) -> Any:
        flow = falkirk.Dataflow()
        scope = flow.scope("s")
        loop, again = flow.feedback(scope, name="back", **delay)
        flow.source("in", falkirk.Iterable([0])).enter(scope).concat(again).connect_loop(loop)
        return flow.graph

    assert fingerprint(build()) == fingerprint(build(delay=1)) != fingerprint(build(delay=2))
    one, two, three = outline(build()), outline(build(delay=2)), outline(build(delay=3))
    assert differences(one, two) == ["operator 'back': its delay was 1 and is 2"]
    assert differences(two, one) == ["operator 'back': its delay was 2 and is 1"]
    assert differences(three, two) == ["operator 'back': its delay was 3 and is 2"]
