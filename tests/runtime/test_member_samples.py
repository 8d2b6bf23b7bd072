"""Samples of a chain's members: near the truth, of chains that are wanted only, and a tenth of the time at most."""

from __future__ import annotations

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from runtime.recovery.member_samples import MemberSamples
from runtime.session.cluster import Cluster
from tests.runtime.test_who_is_busy import Clock
from timely.io import Iterable
from timely.operators.stateless import Measured, Stateless

BATCHES, RECORDS = 2000, 5
QUICK, SLOW = 0.0001, 0.0009


def test_samples_stand_for_all_that_the_members_did() -> None:
    clock = Clock()
    flow = Dataflow()
    first = flow.source("in", Iterable([1])).map(clock.spend(lambda x: x, QUICK), name="quick")
    first.map(clock.spend(lambda x: x, SLOW), name="slow").filter(bool, name="all").capture("out")
    worker = Cluster(flow, 1, 3).sessions[0].worker
    (chain,) = (p for p, each in enumerate(worker.runtimes) if len(each.processor.nodes) > 1)
    runtime = worker.runtimes[chain]
    operator = runtime.operator
    assert isinstance(operator, Stateless)
    before, samples = operator._steps, MemberSamples(worker, clock)
    measured = 0

    def work() -> None:
        nonlocal measured
        for _ in range(BATCHES):
            measured += isinstance(operator._steps[0][1], Measured)
            operator.on_batch(runtime.ctx, 0, (0,), [1] * RECORDS)
            runtime.ctx.out.clear()
            samples.turn()

    work()
    assert measured == 0
    assert samples.members(chain) == ()
    samples.want((chain, 99))
    work()
    quick, slow, last = samples.members(chain)
    assert (quick.name, slow.name, last.name) == ("quick", "slow", "all")
    assert 0 < measured <= BATCHES / 8
    assert quick.taken == slow.taken == pytest.approx(BATCHES * RECORDS, rel=0.06)
    assert slow.busy == pytest.approx(BATCHES * RECORDS * SLOW * 1e6, rel=0.06)
    assert slow.busy == pytest.approx(quick.busy * SLOW / QUICK, rel=1e-6, abs=20)
    assert last.busy == 0
    samples.want(())
    assert operator._steps == before
    assert samples.members(chain) == ()
