"""Epochs taken together in simulated jobs with faults: what survives, and what comes back, is of each epoch by itself."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
import pytest

from falkirk.simulate.simulation import Simulation
from libraries.columns import agg
from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import Batch, Ephemeral, Lazy, Policy
from tests.support.profile import effort
from timely.io import Batches
from timely.worker.worker import Worker


def frames(epochs: int, name: str) -> list[pl.DataFrame]:
    return [
        pl.DataFrame({"k": [(epoch + 3 * row) % 11 for row in range(4)], name: [epoch * 10 + row for row in range(4)]})
        for epoch in range(epochs)
    ]


def build(policy: Policy | None = None) -> Dataflow:
    """Joins in groups that are cut at other epochs, and between them a total that takes one epoch after the other."""
    flow = Dataflow("spans")
    with flow.region("rows", policy=policy or Lazy(every=4)):
        left = flow.columns("left", Batches(frames(60, "v"))).with_columns(w=pl.col("v") * 2)
        right = flow.columns("right", Batches(frames(40, "r"))).filter(pl.col("r") % 3 > 0)
        few = left.filter(pl.col("v") % 2 > 0)
    with flow.region("joins", policy=Lazy(every=3)):
        pairs = few.join(right, on="k").filter(pl.col("v") > pl.col("r"))
        pairs.select("k", "w", "r").capture("pairs")
    with flow.region("more", policy=Lazy(every=5)):
        most = pairs.group_by("k").agg(most=agg.max("r"))
        most.select("k", r="most").join(right, on=["k", "r"]).select("k", "r").capture("met")
    return flow


def build_one_region() -> Dataflow:
    """Joins and totals of one region, which go back together to a time in the midst of what a join has done at once."""
    flow = Dataflow("midst")
    with flow.region("all", policy=Lazy(every=0.05)):
        left = flow.columns("left", Batches(frames(60, "v"))).with_columns(w=pl.col("v") * 2)
        right = flow.columns("right", Batches(frames(60, "r"))).filter(pl.col("r") % 3 > 0)
        pairs = left.join(right, on="k").filter(pl.col("v") > pl.col("r"))
        most = pairs.group_by("w").agg(most=agg.max("r"))
        met = most.select("w", r="most").join(pairs, on=["w", "r"])
        met.group_by("k").agg(n=agg.count(), s=agg.sum("r")).capture("out")
        pairs.select("k", "w", "r").capture("pairs")
    return flow


@pytest.mark.parametrize(
    "seeds",
    [pytest.param((0, 3, 7, 10), marks=pytest.mark.check), pytest.param(range(300), marks=pytest.mark.soak)],
    ids=["few", "many"],
)
def test_workers_go_back_to_a_time_in_the_midst_of_those_taken_together(seeds: Iterable[int]) -> None:
    """Rows noted at the last of these times only are found at seeds 3 and 10."""
    runs = Simulation(build_one_region, 2)
    for seed in seeds:
        assert runs.run(seed) is None


@pytest.mark.parametrize(
    "policy",
    [
        None,
        pytest.param(Batch(log_outputs=True), marks=pytest.mark.check),
        pytest.param(Ephemeral(), marks=pytest.mark.check),
    ],
    ids=["lazy", "batch", "ephemeral"],
)
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.check), 2])
@pytest.mark.parametrize("seeds", [effort(1, 3, 3), pytest.param(300, marks=pytest.mark.soak)])
def test_epochs_taken_together_give_after_faults_what_they_give_without(
    policy: Policy | None, workers: int, seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    deliver = Worker.feed_span

    def counting(self: Worker, node: int, span: object) -> None:
        taken.append(len(span.times))  # type: ignore[attr-defined]
        deliver(self, node, span)  # type: ignore[arg-type]

    monkeypatch.setattr(Worker, "feed_span", counting)
    runs = Simulation(lambda: build(policy), workers)
    assert all(rows for rows in runs.expected.values())
    for seed in range(seeds):
        assert runs.run(seed) is None
    assert taken
