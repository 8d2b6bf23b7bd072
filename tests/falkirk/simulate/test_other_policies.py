"""A drawn program under other policies: the graph made for the question is that of the program built with them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from recovery.layout import Layout, lay_out
from recovery.policy import Policy
from recovery.policy.chosen import as_policy
from tests.falkirk.simulate.drawn import POLICIES, Region, built, draw
from timely.dataflow.graph import Graph
from timely.dataflow.other_policies import with_policies
from timely.dataflow.plan import compile_plan
from timely.errors import GraphError


def outcome(graph: Graph, workers: int) -> Layout | str:
    """Layout of a program, or what it is refused for."""
    try:
        return lay_out(compile_plan(graph, workers))
    except GraphError as error:
        return str(error)


def shares_otherwise(before: Policy, after: Policy, region: Region) -> bool:
    """True if a program arranges for itself under one of two policies, and shares under the other: docs/limits.md."""
    return "components" in dict(region.steps) and before.shares_state != after.shares_state


@pytest.mark.sampled(3)
@pytest.mark.parametrize("part", range(6))
def test_groups_logs_and_errors_are_those_of_the_program_built_so(part: int) -> None:
    refused = compared = 0
    for seed in range(part * 20, part * 20 + 20):
        random, regions = Random(seed), draw(seed)
        at = random.randrange(len(regions))
        before, policy = regions[at].policy, random.choice(POLICIES)(random)
        if shares_otherwise(before, policy, regions[at]):
            continue
        other = [*regions[:at], replace(regions[at], policy=policy), *regions[at + 1 :]]
        workers = 1 + seed % 3
        found = outcome(with_policies(built(regions).graph, {f"r{at}": policy}), workers)
        assert found == outcome(built(other).graph, workers), (seed, before, policy)
        compared += 1
        refused += isinstance(found, str)
    assert 0 < refused < compared


@pytest.mark.parametrize("seed", range(12))
def test_with_its_own_policies_a_program_stays_as_it_is(seed: int) -> None:
    graph = built(draw(seed)).graph
    same = with_policies(graph, {region.name: region.policy for region in graph.regions})
    assert outcome(same, 2) == outcome(graph, 2)
    assert [node.name for node in same.nodes] == [node.name for node in graph.nodes]
    assert all(as_policy(node.policy) == as_policy(other.policy) for node, other in zip(same.nodes, graph.nodes))
