"""Survivors keep what came of float sums: done again, it is the same to the last digit, and goes to the same workers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import polars as pl
import pytest

from falkirk.simulate.simulation import Simulation, report
from libraries.columns import agg
from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from recovery.layout import lay_out
from tests.support.profile import effort, tries
from timely.dataflow.plan import compile_plan
from timely.io import Iterable

EPOCHS = 12
DIGITS = [0.1, 0.2, 0.3, 1.1, 1.2, 1e16, -1e16, 0.7]


def numbers(flow: Dataflow) -> Stream:
    """Floats of a few keys, from three partitions: those of each key are from all of them."""
    parts = [[(i % 2, DIGITS[(5 * i + 3 * part) % 8]) for i in range(2 * EPOCHS)] for part in range(3)]
    return flow.source("in", Iterable(partitioned=parts, batch=1, epoch_every=2))


def of_records() -> Dataflow:
    """Sums that are keys behind them."""
    flow = Dataflow("sums of records")
    numbers(flow).keyed().sum(over="time").records().key_by(lambda pair: pair[1]).count().records().capture("out")
    return flow


def of_columns() -> Dataflow:
    """Means, sums and variances of columns, which are keys behind them."""
    flow = Dataflow("sums of columns")
    rows = numbers(flow).map(lambda pair: {"k": pair[0], "v": pair[1]}).to_columns({"k": int, "v": float})
    totals = rows.group_by("k").agg(total=agg.sum("v"), mean=agg.mean("v"), spread=agg.var("v"))
    totals.group_by("total", "mean", "spread").agg(n=agg.count()).capture("out")
    return flow


@pytest.mark.sampled(2)
@pytest.mark.parametrize("build", [of_records, of_columns])
def test_results_that_are_keys_are_neither_lost_nor_doubled(build: Callable[[], Dataflow]) -> None:
    simulation = Simulation(build, 3)
    for seed in range(effort(4, 12, 240)):
        failure = simulation.run(seed)
        assert failure is None, report(failure, f"seed {seed}")


def repeats(build: Callable[[Dataflow], Any]) -> dict[str, bool]:
    """Whether each processor of a program repeats, by the kinds of its operators."""
    flow = Dataflow()
    build(flow)
    plan = compile_plan(flow.graph, 2)
    made = lay_out(plan)
    return {" ".join(node.kind for node in p.nodes): made.processors[p.index].repeats for p in plan.processors}


def rows(flow: Dataflow) -> Any:
    return flow.source("in", Iterable([{"k": 1, "v": 0.5}], epoch_every=1)).to_columns({"k": int, "v": float})


@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        (lambda r: r.map_batches(lambda batch: batch), False),
        (lambda r: r.with_columns(pl.col("v") * 2, day=pl.col("k").cast(pl.String).str.slice(0, 3)), True),
        (lambda r: r.select(pl.when(pl.col("v") > 1).then(0).otherwise(pl.col("k")).alias("x")), True),
        (lambda r: r.filter(pl.col("k").is_in([1, 2]) & pl.col("v").is_not_null(), k=1), True),
    ],
)
def test_what_looks_at_whole_batches_repeats_only_where_batches_do(verb: Callable[[Any], Any], expected: bool) -> None:
    behind = repeats(lambda flow: verb(rows(flow).exchange("k")).capture("out"))
    assert all(behind[kinds] for kinds in behind if "exchange" not in kinds)
    assert [behind[kinds] for kinds in behind if "exchange" in kinds] == [expected]
    assert all(repeats(lambda flow: verb(rows(flow)).capture("out")).values())


TURNS = count()


def uneven() -> Dataflow:
    """Records go to one worker after the other, and nobody says so."""
    flow = Dataflow("uneven")
    numbers(flow).exchange(by=lambda _: next(TURNS)).map(lambda pair: pair[0]).capture("out")
    return flow


def test_an_undeclared_change_of_the_receiver_is_named() -> None:
    simulation = Simulation(uneven, 3)
    failures = (simulation.run(seed) for seed in range(tries(120)))
    found = (str(failure.error) for failure in failures if failure is not None)
    assert any("to worker" in error and "when it did this again" in error for error in found)
