"""Rows that travel as they are, beside others that are combined first, through kills and cuts."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import falkirk
from falkirk import agg
from libraries.columns.operators.aggregate import PreAggregate

pytest_plugins = ["falkirk.simulate.fixtures"]


def program() -> falkirk.Dataflow:
    rng = np.random.default_rng(5)
    spans = [3000, 3000, 40, 3000, 40, 3000, 3000, 40]
    frames = [pl.DataFrame({"k": rng.integers(0, n, 1500), "v": rng.integers(0, 99, 1500)}) for n in spans]
    flow = falkirk.Dataflow("alone")
    rows = flow.columns("rows", falkirk.Batches(frames, per_epoch=2))
    with flow.region("kept", policy=falkirk.Lazy(every=2)):
        rows.group_by("k").agg(n=agg.count(), total=agg.sum("v")).capture("running")
        rows.group_by("k").agg(over="time", n=agg.count(), top=agg.max("v")).capture("each")
    return flow


@pytest.mark.check
@pytest.mark.parametrize("workers", [2, 3])
def test_rows_that_are_spared_survive_faults(simulate: Any, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = set()
    apply = PreAggregate.apply

    def seen(self: PreAggregate, batch: Any) -> Any:
        made = apply(self, batch)
        kinds.add(made.column_names == ["k", "v"])
        return made

    monkeypatch.setattr(PreAggregate, "apply", seen)
    tally = simulate(program, seeds=6, workers=workers)
    assert tally.faults
    assert kinds == {True, False}
