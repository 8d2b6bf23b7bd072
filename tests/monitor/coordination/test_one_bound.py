"""One W an operator on all workers in jobs that may move, and one a worker in others."""

from __future__ import annotations

import pytest

import falkirk
from monitor.coordination.topology import Topology
from recovery.layout import lay_out
from recovery.policy.traits import Policy
from timely.dataflow.plan import compile_plan


def topology(policy: Policy) -> Topology:
    flow = falkirk.Dataflow()
    source = flow.source("s", falkirk.Iterable([1]))
    with flow.region("r", policy=policy):
        inner = source.map(str)
    inner.capture("out")
    return Topology(lay_out(compile_plan(flow.graph, 2)))


def test_a_job_that_may_move_has_one_bound_an_operator() -> None:
    assert all(topology(falkirk.Lazy()).same)


@pytest.mark.parametrize("policy", [falkirk.Eager(), falkirk.Ephemeral(), falkirk.Amnesia()])
def test_a_job_that_may_not_move_rises_by_worker(policy: Policy) -> None:
    """Its sources and gates too: what is eager would wait for them."""
    assert not any(topology(policy).same)
