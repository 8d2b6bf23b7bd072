"""One bound an operator where its state changes workers: the solver agrees with the literal fixed point and brute force."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from recovery.fixed_point.solve import AnyFrontier, CheckpointChain, PhysicalEdge, solution, solve
from recovery.metadata import Bound
from tests.recovery.fixed_point import literal
from tests.recovery.fixed_point.systems import (
    Graph,
    as_bounds,
    changing_owners,
    graph,
    lexicographic,
    literal_system,
    restorable,
    satisfied,
    with_sets,
)
from timely.time import Frontier, Summary

SAME = Summary.identity(1)
seeds = st.integers(0, 2**40)


def unequal(g: Graph, bounds: Sequence[Bound | None]) -> list[PhysicalEdge]:
    return [edge for edge in g.edges if edge.same and bounds[edge.source] != bounds[edge.target]]


@given(seeds)
def test_equals_the_literal_fixed_point_and_all_of_an_operator_is_at_one_bound(seed: int) -> None:
    random = Random(seed)
    for _ in range(5):
        g = changing_owners(random, graph(random, random.randrange(2, 7)))
        processors = [restorable(random, g, p, live=False) for p in range(len(g.depths))]
        system = literal_system(g, processors)
        found, expected = solution(g.edges, processors), literal.greatest(system)
        assert found.frontiers == as_bounds(expected)
        assert satisfied(found.frontiers, found.notifications, system) == []
        assert unequal(g, found.frontiers) == []


@given(seeds)
def test_sets_of_times_too(seed: int) -> None:
    random = Random(seed)
    for _ in range(3):
        g = changing_owners(random, graph(random, random.randrange(2, 5), inner=True))
        processors = with_sets(random, g, live=False)
        found = solution(g.edges, processors)
        assert satisfied(found.frontiers, found.notifications, literal_system(g, processors, sets=True)) == []
        assert unequal(g, found.frontiers) == []


@given(seeds)
def test_no_consistent_choice_keeps_more(seed: int) -> None:
    random = Random(seed)
    g = changing_owners(random, graph(random, random.randrange(2, 5), epochs_only=True))
    processors = [restorable(random, g, p, live=False) for p in range(len(g.depths))]
    system = literal_system(g, processors)
    found = solve(g.edges, processors)
    for choice in itertools.product(*([option.frontier for option in each.options] for each in system.processors)):
        frontiers = [f for f in choice if isinstance(f, Frontier)]
        if not literal.violations(system, literal.Choice([*frontiers], [*frontiers])):
            for f, best in zip(frontiers, found):
                assert best is not None
                assert lexicographic(f) <= best


def both_ways(first: int, second: int) -> list[PhysicalEdge]:
    return [PhysicalEdge(a, b, SAME, same=True) for a, b in ((first, second), (second, first))]


def test_a_worker_that_is_ahead_waits_for_the_other() -> None:
    ahead, behind = CheckpointChain([((3,), ()), ((5,), ())], 1), CheckpointChain([((3,), ()), ((4,), ())], 1)
    assert solve([], [ahead, behind]) == [(5,), (4,)]
    assert solve(both_ways(0, 1), [ahead, behind]) == [(3,), (3,)]
    assert solve(both_ways(0, 1), [AnyFrontier((5,)), AnyFrontier((4,))]) == [(4,), (4,)]
