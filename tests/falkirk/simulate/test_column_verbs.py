"""Verbs over columns in simulated jobs with faults: windows, distinct, totals of all rows, semi and anti joins."""

from __future__ import annotations

import polars as pl
import pytest

from falkirk.simulate.simulation import Simulation
from libraries.columns import agg
from libraries.columns.verbs.dataflow import Dataflow
from recovery.policy import Batch, Lazy, LogHistory
from timely.io import Batches
from timely.operators.window_shapes import Epochs, Session, Sliding, Tumbling


def frames(epochs: int, keys: int, name: str) -> list[pl.DataFrame]:
    return [
        pl.DataFrame(
            {
                "k": [f"k{(epoch * epoch + row) % keys}" for row in range(9)],
                name: [epoch * 10 + row * 7 % 23 for row in range(9)],
                "at": [epoch * 5 - row * row * 3 % 17 for row in range(9)],
            }
        )
        for epoch in range(epochs)
    ]


def build() -> Dataflow:
    flow = Dataflow("column verbs")
    with flow.region("windows", policy=Lazy(every=3)):
        left = flow.columns("left", Batches(frames(20, 7, "v"), per_epoch=2))
        right = flow.columns("right", Batches(frames(6, 9, "r"), per_epoch=1))
        windows = left.window(Sliding(12, 4), time="at", lateness=2)
        totals = windows.group_by("k").agg(n=agg.count(), total=agg.sum("v"), low=agg.min("v"))
    totals.capture("windows")
    windows.late().capture("late")
    with flow.region("totals", policy=Lazy(every=2)):
        left.window(Tumbling(10), time="at").agg(n=agg.count(), mean=agg.mean("v")).capture("whole")
        left.select("k", q=pl.col("v") % 5).distinct("k", "q").capture("seen")
        left.filter(pl.col("v") > 3).agg(n=agg.count(), total=agg.sum("v")).capture("all")
    with flow.region("history", policy=LogHistory(every=3)):
        left.join(right, on="k", how="semi").capture("semi")
    with flow.region("times", policy=Batch(log_outputs=True)):
        without = left.join(right, on="k", how="anti", over="time")
        third = (pl.col("v") % 3).alias("third")
        without.group_by("k", third).agg(n=agg.count(), over="time").capture("anti")
    return flow


def small() -> Dataflow:
    flow = Dataflow("fewer column verbs")
    with flow.region("sessions", policy=Lazy(every=2)):
        rows = flow.columns("rows", Batches(frames(6, 5, "v"), per_epoch=1))
        windows = rows.window(Session(5), time="at", lateness=4)
        totals = {"n": agg.count(), "total": agg.sum("v"), "middle": agg.median("v"), "kinds": agg.n_unique("v")}
        windows.group_by("k").agg(**totals).capture("sessions")
        rows.group_by("k").agg(
            low=agg.min("v"), high=agg.quantile("v", 0.9), kinds=agg.n_unique("v"), ttl=Epochs(1)
        ).capture("alive")
        other = flow.columns("other", Batches(frames(4, 6, "r"), per_epoch=1))
        rows.group_by("k").agg(n=agg.count(), kinds=agg.n_unique("v"), ttl=6, time="at").capture("alive by event time")
        near = other.select("k", "r")
        for how in ("inner", "semi", "lookup"):
            rows.select("k", "v").join(near, on="k", how=how, ttl=Epochs(1)).capture(f"{how} for a time")
        joined = rows.join(other.select("k", "r"), on="k", how="full", changes=True)
        joined.group_by("k").agg(low=agg.min("r"), top=agg.max("v"), n=agg.count()).capture("extremes")
        of_changes = joined.group_by("k").agg(
            kinds=agg.n_unique("r"), last=agg.last("v", order_by="r"), high=agg.quantile("r", 0.9, error=0.1)
        )
        of_changes.capture("values of changes")
        joined.group_by("k").top_k(2, by=["r", "v"]).capture("first of changes")
        rows.group_by("k").top_k(1, by="v", reverse=True).group_by("k").agg(low=agg.sum("v")).capture("first")
        rows.window(Epochs(2)).group_by("k").agg(n=agg.count(), kinds=agg.n_unique("v")).capture("epochs")
        rows.group_by("k").agg(spread=agg.var("v"), middle=agg.median("v")).capture("spread")
        rows.group_by("k").agg(kinds=agg.n_unique("v"), last=agg.last("v", order_by="at")).capture("values")
        rows.group_by("k").agg(top=agg.max("v"), changes=True).agg(total=agg.sum("top"), spread=agg.var("top")).capture(
            "of totals"
        )
        nearest = rows.join_asof(other.select("k", "at", r=pl.col("at") % 5), on="at", by="k", changes=True)
        nearest.group_by("k").agg(n=agg.count(), total=agg.sum("r")).capture("nearest so far")
    windows.late().capture("late")
    with flow.region("history", policy=LogHistory(every=3)):
        on_time, _, _ = rows.split_late("at", lateness=9)
        on_time.distinct("k", ttl=Epochs(1)).capture("again")
        even, _ = rows.branch(pl.col("v") % 2 == 0)
        even.select("v").capture("even")
    return flow


@pytest.mark.parametrize("seeds", [pytest.param(2, marks=pytest.mark.check), pytest.param(60, marks=pytest.mark.soak)])
def test_keys_that_are_given_up_stay_so_after_faults(seeds: int) -> None:
    runs = Simulation(small, 2)
    assert all(rows for rows in runs.expected.values())
    for seed in range(seeds):
        assert runs.run(seed) is None


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 3])
def test_column_verbs_give_after_faults_what_they_give_without(workers: int) -> None:
    runs = Simulation(build, workers)
    assert all(rows for rows in runs.expected.values())
    for seed in range(40):
        assert runs.run(seed) is None
