"""Several epochs in one pass: each gets the rows, in the order, that it gets when epochs are read one by one."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import falkirk
from falkirk import Columns, Limits, Sliding, Tumbling, agg
from libraries.columns.kernels import rows as rows_module
from runtime.session.cluster import Cluster
from tests.recovery.agent.driven import DrivenAgents
from tests.timely.worker.oracle import Oracle
from timely.errors import OperatorError
from timely.operators.ends import CaptureEnd
from timely.time import Time
from timely.worker.processor import Runtime
from timely.worker.worker import Worker

SCHEMA = {"k": pl.Int64, "n": pl.Int64, "text": pl.String, "at": pl.Int64}
rows = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.sampled_from("ab"), st.integers(0, 4)), max_size=5)
inputs = st.lists(rows, min_size=2, max_size=20)
few = settings(max_examples=settings.default.max_examples // 10)


def as_they_are(left: Columns, right: Columns) -> Columns:
    return left


def a_few(left: Columns, right: Columns) -> Columns:
    return right.filter(pl.col("n") > 3).with_columns(m=pl.col("n") + pl.col("at"))


def joined(left: Columns, right: Columns) -> Columns:
    return left.join(right, on="k")


def filtered(left: Columns, right: Columns) -> Columns:
    some = left.filter(pl.col("n") > 3).with_columns(m=pl.col("n") * 2).filter(pl.col("m") < 15)
    return some.join(right.select("k", other="n"), on="k").filter(pl.col("other") != 5).select("k", "m", "text")


def met_twice(left: Columns, right: Columns) -> Columns:
    once = right.distinct("k", "text")
    return left.join(once, on="k").join(left.distinct("n"), on="n")


def with_itself(left: Columns, right: Columns) -> Columns:
    return left.join(left.with_columns(n=pl.col("n") + 1), on=["k", "n"]).distinct("k")


def totals_between(left: Columns, right: Columns) -> Columns:
    """A verb that takes one time after the other, between two that take several."""
    totals = left.join(right, on="k").group_by("k").agg(n=agg.sum("n"))
    return totals.join(right.distinct("n"), on="n")


def any_function(left: Columns, right: Columns) -> Columns:
    """A function of batches that is told of batches of one time alone."""
    return (
        left.filter(pl.col("n") > 2)
        .map_batches(lambda batch: pl.DataFrame(batch).sort("n").head(2))
        .join(right, on="k")
    )


def round_a_loop(left: Columns, right: Columns) -> Columns:
    return left.iterate(lambda rows: rows.with_columns(n=pl.col("n") + 4).filter(pl.col("n") < 12)).join(right, on="k")


def windowed(left: Columns, right: Columns) -> Columns:
    sums = left.window(Tumbling(3), time="at").group_by("k").agg(most=agg.max("n"), n=agg.count())
    return sums.join(right.select("k", "n"), on=["k", "n"])


def windowed_where_none_is_late(left: Columns, right: Columns) -> Columns:
    most = left.window(Tumbling(2), time="at", lateness=4).agg(n=agg.max("n")).select("start", "n")
    return left.with_columns(start=pl.col("at") // 2 * 2).join(most, on=["start", "n"])


def windowed_twice(left: Columns, right: Columns) -> Columns:
    return left.window(Sliding(4, every=2), time="at").agg(n=agg.sum("n")).join(right.distinct("n"), on="n")


def late(left: Columns, right: Columns) -> Columns:
    return left.window(Tumbling(2), time="at").late().join(right.select("k", other="n"), on="k")


def computed(left: Columns, right: Columns) -> Columns:
    """Columns in the place of others, beside them, and in another order: what is not looked at is not copied."""
    doubled = left.with_columns(n=pl.col("n") * 2, m=pl.col("at") + 1).with_columns(at=pl.col("m") - pl.col("n"))
    return doubled.select("m", "text", "at", k=pl.col("k") + 1).map_batches(pl.DataFrame)


def computed_and_joined(left: Columns, right: Columns) -> Columns:
    started = left.with_columns(start=pl.col("at") // 2 * 2)
    return started.join(right.with_columns(n=pl.col("n") * 2).select("n", "text", start="at"), on=["start", "n"])


PROGRAMS = [
    as_they_are,
    a_few,
    computed,
    computed_and_joined,
    joined,
    filtered,
    met_twice,
    with_itself,
    totals_between,
    any_function,
    round_a_loop,
    windowed,
    windowed_where_none_is_late,
    windowed_twice,
    late,
]


def frames(epochs: list[list[Any]]) -> list[pl.DataFrame]:
    of_epochs = [[(*row[:3], epoch + row[3]) for row in each] for epoch, each in enumerate(epochs)]
    return [pl.DataFrame(each, SCHEMA, orient="row") for each in of_epochs]


def flow_of(program: Any, left: list[list[Any]], right: list[list[Any]]) -> falkirk.Dataflow:
    flow = falkirk.Dataflow()
    sides = [flow.columns(name, falkirk.Batches(frames(each))) for name, each in (("left", left), ("right", right))]
    program(*sides).capture("out")
    return flow


def by_time(captured: list[tuple[Time, Any]]) -> dict[Time, list[Any]]:
    found: dict[Time, list[Any]] = {}
    for time, batch in captured:
        found.setdefault(time, []).extend(pl.DataFrame(batch).rows())
    return found


@pytest.mark.parametrize("program", PROGRAMS)
@given(left=inputs, right=inputs)
@few
def test_epochs_come_out_as_they_do_one_by_one(program: Any, left: list[list[Any]], right: list[list[Any]]) -> None:
    together = falkirk.run(flow_of(program, left, right)).captured("out")
    alone = falkirk.run(flow_of(program, left, right), limits=Limits(epochs=1)).captured("out")
    assert by_time(together) == by_time(alone)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("program", PROGRAMS)
@given(left=inputs, right=inputs, seed=st.integers(0, 1 << 16))
@few
def test_so_they_do_on_several_workers(
    workers: int, program: Any, left: list[list[Any]], right: list[list[Any]], seed: int
) -> None:
    if program is any_function and workers > 1:
        return  # what a function of batches makes depends on what batches there are
    cluster = Cluster(flow_of(program, left, right), workers, seed)
    with Oracle(cluster).watching():
        cluster.run()
    alone = falkirk.run(flow_of(program, left, right), limits=Limits(epochs=1)).captured("out")
    found, right_ones = by_time(cluster.captured("out")), by_time(alone)
    assert {time: Counter(rows) for time, rows in found.items()} == {
        time: Counter(rows) for time, rows in right_ones.items()
    }


def test_a_time_that_others_may_still_add_to_is_not_taken() -> None:
    """A program in which rows that one verb sends at several times at once come back from another worker."""
    chance = Random(7)
    sides = [
        [[(chance.randrange(6), chance.randrange(10), "ab"[chance.randrange(2)], 0)] for _ in range(24)]
        for _ in range(2)
    ]
    alone = by_time(falkirk.run(flow_of(met_twice, *sides), limits=Limits(epochs=1)).captured("out"))
    for seed in range(40):
        cluster = Cluster(flow_of(met_twice, *sides), 2, seed)
        with Oracle(cluster).watching():
            cluster.run()
        found = by_time(cluster.captured("out"))
        assert {time: Counter(rows) for time, rows in found.items()} == {
            time: Counter(rows) for time, rows in alone.items()
        }


def several(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of times that notifications are delivered together."""
    seen: list[int] = []
    deliver = Worker._notify_several

    def counting(self: Worker, runtime: Runtime, times: list[Time]) -> None:
        seen.append(len(times))
        deliver(self, runtime, times)

    monkeypatch.setattr(Worker, "_notify_several", counting)
    return seen


EPOCHS: list[list[Any]] = [[(epoch % 3, epoch, "a", 0)] for epoch in range(32)]


def test_epochs_that_are_there_are_taken_together(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = several(monkeypatch)
    Cluster(flow_of(met_twice, EPOCHS, EPOCHS), 1).run()  # for whose sessions time stands still while they read
    assert max(seen) == Limits().epochs


def test_a_capture_takes_the_epochs_that_are_there_together(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    take = CaptureEnd.on_span

    def counting(self: CaptureEnd, ctx: Any, port: int, span: Any) -> None:
        seen.append(len(span.times))
        take(self, ctx, port, span)

    monkeypatch.setattr(CaptureEnd, "on_span", counting)
    found = Cluster(flow_of(as_they_are, EPOCHS, EPOCHS), 1)
    found.run()
    assert seen == [len(EPOCHS)]  # no more than `Limits.epochs`
    assert [(time, pl.DataFrame(batch).rows()) for time, batch in found.captured("out")] == [
        ((epoch,), [(*row[:3], epoch)]) for epoch, (row,) in enumerate(EPOCHS)
    ]


def test_a_verb_that_takes_one_time_after_the_other_keeps_others_behind_it_from_being_notified_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = several(monkeypatch)
    found = by_time(falkirk.run(flow_of(totals_between, EPOCHS, EPOCHS)).captured("out"))
    assert seen
    assert found == by_time(
        falkirk.run(flow_of(totals_between, EPOCHS, EPOCHS), limits=Limits(epochs=1)).captured("out")
    )


class ByTime:
    """A recorder that writes down, by processor and time, what it hears."""

    logged = shipping = keeping = frozenset[int]()

    def __init__(self) -> None:
        self.has_receivers: dict[tuple[int, Time], list[Any]] = {}

    def _note(self, processor: int, time: Time, what: str, *more: Any) -> None:
        self.has_receivers.setdefault((processor, time), []).append((what, *more))

    def delivered(self, processor: int, port: int, time: Time, batch: Any) -> None:
        self._note(processor, time, "delivered", port, rows_of(batch))

    def sent(self, processor: int, port: int, event: Time, time: Time, batch: Any) -> None:
        self._note(processor, event, "sent", port, time, rows_of(batch))

    def requested(self, processor: int, event: Time, time: Time) -> None:
        self._note(processor, event, "requested", time)

    def notified(self, processor: int, time: Time) -> None:
        self._note(processor, time, "notified")

    def completed(self, processor: int) -> None:
        """That state may have changed is said once for several times."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name}: nothing of these programs")


def rows_of(batch: Any) -> Any:
    return list(batch) if isinstance(batch, list) else pl.DataFrame(batch).rows()


@pytest.mark.parametrize("program", [joined, filtered, met_twice, computed_and_joined, any_function, windowed])
@given(left=inputs, right=inputs)
@few
def test_a_recorder_hears_of_each_time_what_it_hears_of_it_by_itself(
    program: Any, left: list[list[Any]], right: list[list[Any]]
) -> None:
    has_receivers = []
    for epochs in (32, 1):
        cluster = Cluster(flow_of(program, left, right), 1, limits=Limits(epochs=epochs))
        recorder = ByTime()
        worker = cluster.sessions[0].worker
        worker._recorder = recorder  # type: ignore[assignment]
        for runtime in worker.runtimes:
            runtime.take_spans_back()
        cluster.run()
        has_receivers.append(recorder.has_receivers)
    assert has_receivers[0] == has_receivers[1]


POLICIES: list[tuple[falkirk.Policy, bool]] = [
    (falkirk.Lazy(every=2), True),
    (falkirk.LogHistory(), False),
    (falkirk.Eager(), False),
    (falkirk.Snapshot(every=2), False),
]


@pytest.mark.parametrize(("policy", "taken"), POLICIES)
def test_with_a_store_the_policy_says_whether_epochs_are_taken_together(policy: falkirk.Policy, taken: bool) -> None:
    assert takes_spans(policy, joined) == taken


@pytest.mark.parametrize(("program", "taken"), [(filtered, True), (met_twice, True), (windowed, False)])
def test_with_a_store_they_are_if_what_was_done_of_each_can_be_undone(program: Any, taken: bool) -> None:
    assert takes_spans(falkirk.Lazy(every=2), program) == taken


def takes_spans(policy: falkirk.Policy, program: Any) -> bool:
    """True if what the sources of a job with a store bring is gathered."""

    def build() -> falkirk.Dataflow:
        flow = falkirk.Dataflow()
        with flow.region("all", policy=policy):
            found = program(*(flow.columns(name, falkirk.Batches(frames(EPOCHS))) for name in ("left", "right")))
        found.capture("out")
        return flow

    worker = DrivenAgents(build, 1).of[0].worker
    return all(worker.takes_spans(node.index) for node in worker.plan.graph.of_kind("source"))


@pytest.mark.parametrize("program", [joined, computed_and_joined, windowed_where_none_is_late])
@given(left=inputs, right=inputs)
@few
def test_rows_of_large_epochs_are_kept_as_they_came(
    program: Any, left: list[list[Any]], right: list[list[Any]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "SMALL", 1)
        found = by_time(falkirk.run(flow_of(program, left, right)).captured("out"))
    assert found == by_time(falkirk.run(flow_of(program, left, right), limits=Limits(epochs=1)).captured("out"))


@pytest.mark.parametrize("program", [joined, computed, windowed])
@pytest.mark.parametrize("column", ["n", "text"])
def test_a_column_of_another_type_gives_what_it_gives_one_by_one(program: Any, column: str) -> None:
    def outcome(epochs: int) -> Any:
        flow = falkirk.Dataflow()
        of_left = frames(EPOCHS)
        of_left[20] = of_left[20].with_columns(pl.col(column).cast(pl.Int32 if column == "n" else pl.Categorical))
        left = flow.columns("left", falkirk.Batches(of_left))
        right = flow.columns("right", falkirk.Batches(frames(EPOCHS)))
        program(left, right).capture("out")
        return by_time(falkirk.run(flow, limits=Limits(epochs=epochs)).captured("out"))

    assert outcome(32) == outcome(1)


@pytest.mark.parametrize("side", ["left", "right"])
def test_columns_of_another_type_are_an_error_at_their_time(side: str) -> None:
    flow = falkirk.Dataflow()
    batches = {name: frames(EPOCHS) for name in ("left", "right")}
    batches[side][20] = batches[side][20].with_columns(pl.col("k").cast(pl.String))
    sides = [flow.columns(name, falkirk.Batches(each)) for name, each in batches.items()]
    joined(*sides).capture("out")
    with pytest.raises(OperatorError, match=r"join.* failed at time \(20,\): "):
        falkirk.run(flow)
