"""Exchanges that move nothing: where they are, and that answers are the same with and without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import falkirk
from falkirk import AtLeastOnce, Batches, Csv, Dataflow, Parquet, agg
from runtime.session.cluster import Cluster
from timely.data.batch import as_polars
from timely.dataflow.local_exchanges import staying
from timely.dataflow.plan import Way, compile_plan
from timely.io import Chunk, Partition, Source, Wait
from timely.io.interface import deals_epochs
from timely.operators.base import Operator


class Keeps(Operator):
    """Something of the user's that keeps something by key."""


@dataclass(frozen=True)
class Hidden:
    """`source`, of which nobody knows that it deals out whole epochs."""

    source: Source

    def partitions(self, worker: int, workers: int) -> Sequence[Partition]:
        """Those of the source."""
        return self.source.partitions(worker, workers)


@pytest.fixture
def dealt(tmp_path: Path) -> Parquet:
    rng = np.random.default_rng(7)
    table = pa.table({"k": rng.integers(0, 9, 60), "v": rng.integers(0, 100, 60)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=5)
    return Parquet(tmp_path / "a.parquet", epoch=10, split="epochs")


def exchanges(flow: Dataflow, workers: int = 2) -> list[str]:
    """The operators in front of which something is sent to other workers."""
    plan = compile_plan(flow.graph, workers)
    sent = [route for p in plan.processors for routes in p.routes for route in routes if route.way == Way.EXCHANGE]
    assert [plan.spreads(route.edge) for route in sent] == [True] * len(sent)
    assert sorted(name for name in plan.place_names if name.startswith("exchange")) == sorted(
        f"exchange to {plan.processors[route.processor].node}" for route in sent
    )
    return sorted(plan.processors[route.processor].node.name for route in sent)


def test_what_is_grouped_by_time_stays_where_its_epoch_is_read(dealt: Parquet) -> None:
    flow = Dataflow()
    rows = flow.columns("rows", dealt).filter(pl.col("v") > 3)
    each = rows.group_by("k").agg(over="time", n=agg.count(), name="each")
    each.group_by("n").agg(over="time", keys=agg.count(), name="again").capture("out")
    rows.group_by("k").agg(over="scope", n=agg.count(), name="running").capture("totals")
    rows.exchange("k", name="exchanged").group_by("k").agg(over="time", n=agg.count(), name="behind").capture("last")
    assert exchanges(flow) == ["behind", "exchanged", "running"]
    assert exchanges(flow, 1) == [] == sorted(staying(flow.graph, 1))


def test_all_is_exchanged_for_who_keeps_something_by_key_behind_it(dealt: Parquet) -> None:
    flow = Dataflow()
    rows = flow.columns("rows", dealt)
    first = rows.group_by("k").agg(over="time", n=agg.count(), name="first")
    second = first.group_by("k").agg(over="time", n=agg.sum("n"), name="second")
    second.filter(pl.col("n") > 1).unary("keeps", Keeps).capture("kept")
    third = second.group_by("k").agg(over="time", n=agg.sum("n"), name="third")
    third.exchange("k", name="exchanged").unary("too", Keeps).capture("out")
    # What is behind `second` does not have all of an epoch at one worker any more.
    assert exchanges(flow) == ["exchanged", "second", "third"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda s: Parquet(s.path, epoch=10, split="row_groups"), "each epoch is read by all workers"),
        (lambda s: Parquet(s.path, epoch="batch", split="files"), "epochs of several files have equal numbers"),
        (lambda s: Hidden(s), "it does not say so"),
        (lambda s: Batches([pl.DataFrame({"k": [1], "v": [2]})]), "all is read by one worker"),
    ],
)
def test_sources_that_do_not_deal_out_epochs(change: Callable[[Any], Source], why: str, dealt: Parquet) -> None:
    flow = Dataflow()
    flow.columns("rows", change(dealt)).group_by("k").agg(over="time", n=agg.count(), name="each").capture("out")
    assert exchanges(flow) == ["each"], why


def test_streams_of_which_not_all_is_dealt_out(dealt: Parquet) -> None:
    flow = Dataflow()
    one, other = flow.columns("one", dealt), flow.columns("other", Hidden(dealt))
    one.concat(other).group_by("k").agg(over="time", n=agg.count(), name="mixed").capture("a")
    one.concat(flow.columns("three", dealt)).group_by("k").agg(over="time", n=agg.count(), name="both").capture("b")
    inside = one.enter(flow.scope("s")).group_by("k").agg(over="time", n=agg.count(), name="inside")
    inside.leave().capture("c")
    assert exchanges(flow) == ["inside", "mixed", "mixed"]  # of the latter one for each of its streams


def test_what_is_read_again_in_another_epoch_is_exchanged(dealt: Parquet) -> None:
    flow = Dataflow()
    with flow.region("again", policy=AtLeastOnce()):
        rows = flow.columns("rows", dealt)
    rows.group_by("k").agg(over="time", n=agg.count(), name="each").capture("out")
    assert exchanges(flow) == ["each"]


@given(
    sizes=st.lists(st.lists(st.integers(0, 3), max_size=6), min_size=1, max_size=4),
    groups=st.integers(1, 3),
    workers=st.integers(1, 4),
    kind=st.sampled_from(["epochs", "parquet files", "csv files"]),
)
def test_who_says_so_reads_epoch_e_at_worker_e_mod_w(
    sizes: list[list[int]], groups: int, workers: int, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("dealt")
    for number, each in enumerate(sizes):
        rows = 2 * groups * len(each) + sum(each[:1])
        table = pa.table({"n": np.arange(rows)})
        if kind == "csv files":
            pl.DataFrame({"n": np.arange(rows)}).write_csv(folder / f"{number}.csv")
        else:
            pq.write_table(table, folder / f"{number}.parquet", row_group_size=2)
    source: Source = {
        "epochs": lambda: Parquet(folder, epoch=2 * groups, split="epochs"),
        "parquet files": lambda: Parquet(folder, epoch="file"),
        "csv files": lambda: Csv(folder, epoch="file"),
    }[kind]()
    assert deals_epochs(source)
    for worker in range(workers):
        for partition in source.partitions(worker, workers):
            while isinstance(chunk := partition.read(), Chunk | Wait):
                if isinstance(chunk, Chunk) and chunk.data is not None and len(chunk.data):
                    assert chunk.epoch % workers == worker
            partition.close()


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_answers_are_those_of_one_worker_and_of_polars(dealt: Parquet, workers: int, seed: int) -> None:
    def build(source: Source) -> Dataflow:
        flow = Dataflow()
        rows = flow.columns("rows", source).with_columns(pl.col("v") * 2)
        each = rows.group_by("k").agg(over="time", n=agg.count(), t=agg.sum("v"), kinds=agg.n_unique("v"))
        each.capture("each")
        each.group_by("n").agg(over="time", top=agg.max("t"), k=pl.col("k").sum()).capture("again")
        each.group_by("k").agg(over="scope", n=agg.sum("n")).capture("running")
        return flow

    def found(source: Source, count: int) -> tuple[dict[str, list[Any]], int]:
        cluster = Cluster(build(source), count, seed)
        cluster.run()
        taken = {}
        for name in ("each", "again", "running"):
            entries = [(at, row) for at, batch in cluster.captured(name) for row in as_polars(batch).rows()]
            taken[name] = sorted(entries)
        return taken, cluster.traffic.messages

    here, few = found(dealt, workers)
    there, many = found(Hidden(dealt), workers)
    alone, _ = found(dealt, 1)
    assert here == there == alone
    assert 0 < few < many  # running totals are still exchanged
    frame = pl.read_parquet(dealt.path).with_row_index("row").with_columns(pl.col("v") * 2, e=pl.col("row") // 10)
    expected = frame.group_by("e", "k").agg(n=pl.len(), t=pl.col("v").sum(), kinds=pl.col("v").n_unique())
    assert here["each"] == sorted(((e,), row) for e, *row_ in expected.rows() for row in [tuple(row_)])


def test_two_processes_send_each_other_no_rows(dealt: Parquet) -> None:
    flow = Dataflow()
    flow.columns("rows", dealt).group_by("k").agg(over="time", n=agg.count()).capture("out")
    both = falkirk.run(flow, workers=2).captured("out")
    alone = falkirk.run(flow).captured("out")
    assert [(at, sorted(as_polars(b).rows())) for at, b in both] == [
        (at, sorted(as_polars(b).rows())) for at, b in alone
    ]
