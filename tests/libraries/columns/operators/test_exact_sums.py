"""Sums of integers and decimals are exact, or an error that names the key: against Python's integers, on every path."""

from __future__ import annotations

import re
from collections import defaultdict
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns import agg
from libraries.columns.operators.aggregate import ColumnAggregate, PreAggregate, column_aggregate
from libraries.columns.verbs.dataflow import Dataflow
from runtime.session.cluster import Cluster
from tests.timely.operators.fake_context import feed
from timely.data.batch import as_polars
from timely.errors import OperatorError
from timely.time import Frontier

LEAST, MOST = -(2**63), 2**63 - 1
numbers = st.sampled_from([LEAST, LEAST + 1, -(2**62), -(2**53) - 1, -1, 0, 1, 2**53 + 1, 2**62, MOST - 1, MOST])
rows = st.lists(st.tuples(st.integers(0, 2), numbers), min_size=1, max_size=6)
PATHS = ["dict", "numpy", "compiled"]
TOTAL = {"s": agg.sum("v"), "m": agg.mean("v")}


def batch_of(pairs: list[tuple[int, int]], path: str, text: bool) -> pa.Table:
    """The pairs, with rows of zero added until the path is the one that is meant."""
    fill = {"dict": 0, "numpy": 600, "compiled": 9000}[path]
    keys = [key for key, _ in pairs] + [i % 3 for i in range(fill)]
    values = [value for _, value in pairs] + [0] * fill
    return pa.table({"k": pa.array([f"k{key}" for key in keys] if text else keys), "v": pa.array(values, pa.int64())})


def totals(batches: list[pa.Table]) -> dict[Any, int]:
    found: dict[Any, int] = defaultdict(int)
    for batch in batches:
        for key, value in zip(batch["k"].to_pylist(), batch["v"].to_pylist(), strict=True):
            found[key] += value
    return dict(found)


def check(run: Any, expected: dict[Any, int]) -> dict[Any, int] | None:
    """The result of `run`, unless it rightly refuses."""
    wrong = {key: total for key, total in expected.items() if not LEAST <= total <= MOST}
    if not wrong:
        frame = as_polars(run())
        keys = frame["k"] if frame["k"].dtype.is_integer() else frame["k"].cast(pl.String)
        return dict(zip(keys, frame["s"], strict=True))
    with pytest.raises(OperatorError, match=r"under test.*here\.py:1") as caught:
        run()
    match = re.search(r"the sum of column 'v' for k=(\S+) is (-?\d+), which is beyond 64-bit", str(caught.value))
    assert match, caught.value
    assert (match[1], int(match[2])) in {(repr(key), total) for key, total in wrong.items()}
    return None


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("combined", [False, True])
@given(st.lists(rows, min_size=1, max_size=3), st.booleans())
@settings(max_examples=20)
def test_sums_of_a_time_are_exact_or_refused(path: str, combined: bool, parts: list[Any], text: bool) -> None:
    batches = [batch_of(part, path, text) for part in parts]
    expected = totals(batches)
    operator = ColumnAggregate(["k"], TOTAL, "time", combined)
    before = PreAggregate(["k"], TOTAL)
    events = [(0, (0,), before.apply(batch) if combined else batch) for batch in batches]
    found = check(lambda: feed(operator, events, workers=2 if combined else 1)[0][1], expected)
    assert found is None or found == expected


@pytest.mark.parametrize("path", PATHS)
@given(st.lists(rows, min_size=2, max_size=5), st.booleans(), st.integers(0, 5))
@settings(max_examples=20)
def test_running_sums_are_exact_or_refused_also_after_a_rollback(
    path: str, parts: list[Any], text: bool, cut: int
) -> None:
    batches = [batch_of(part, path, text) for part in parts]
    operator = ColumnAggregate(["k"], TOTAL)
    for time, batch in enumerate(batches):
        expected = totals(batches[: time + 1])
        told = {key: total for key, total in expected.items() if totals(batches[:time]).get(key) != total}

        def run(operator: ColumnAggregate = operator, time: int = time, batch: pa.Table = batch) -> Any:
            sent = feed(operator, [(0, (time,), batch)], compact=False)
            return sent[0][1] if sent else pl.DataFrame({"k": [], "s": []})

        found = check(run, told)
        if found is None:
            break  # the job is over
        assert told.items() <= found.items() <= expected.items()  # a mean may have changed where a sum has not
        if time == cut:  # into another operator, and back to before this time and on again
            again = ColumnAggregate(["k"], TOTAL)
            assert operator.state is not None
            assert again.state is not None
            again.state.restore(operator.state.snapshot(Frontier.before([(time,)]), Frontier.empty(1)))
            operator.state.keep(Frontier.before([(time,)]))
            for one in (again, operator):
                assert check(lambda one=one: run(one), told) == found


@given(rows)
@settings(max_examples=30)
def test_sums_beside_polars_expressions_are_exact_or_refused(pairs: list[tuple[int, int]]) -> None:
    batch = batch_of(pairs, "dict", False)
    operator = column_aggregate(["k"], {"s": agg.sum("v"), "all": pl.col("v")}, "time")
    found = check(lambda: feed(operator, [(0, (0,), batch)])[0][1], totals([batch]))
    assert found is None or found == totals([batch])


@pytest.mark.parametrize("path", PATHS)
def test_means_of_integers_whose_sum_is_beyond_64_bits_are_right(path: str) -> None:
    batch = batch_of([(0, MOST)] * 5, path, False)
    [(_, found)] = feed(ColumnAggregate(["k"], {"m": agg.mean("v")}), [(0, (0,), batch)])
    mean = dict(zip(found["k"].to_pylist(), found["m"].to_pylist(), strict=True))[0]
    assert mean == pytest.approx(5 * MOST / batch["k"].to_pylist().count(0), rel=1e-12)


@given(st.lists(rows, min_size=1, max_size=4), st.sampled_from([1, 2, 3]), st.integers(0, 99))
@settings(max_examples=30)
def test_no_number_of_workers_makes_a_sum_wrap(epochs: list[Any], workers: int, seed: int) -> None:
    flow = Dataflow()
    rows = flow.input("in")
    columns = rows.to_columns({"k": pl.Int64, "v": pl.Int64})
    running = columns.group_by("k").agg(s=agg.sum("v"), over="scope").capture()
    by_record = rows.keyed().sum().capture()
    cluster = Cluster(flow, workers, seed=seed)
    so_far: dict[int, int] = defaultdict(int)
    fits = True
    for epoch, pairs in enumerate(epochs):
        for i, pair in enumerate(pairs):
            cluster.sessions[i % workers].input("in").send([pair])
        for key, value in pairs:
            so_far[key] += value
        fits = fits and all(LEAST <= total <= MOST for total in so_far.values())
        for session in cluster.sessions:
            session.input("in").advance_to(epoch + 1)
    for session in cluster.sessions:
        session.input("in").close()
    if not fits:
        with pytest.raises(OperatorError, match=r"aggregate '.*' \(.*test_exact_sums.py:\d+\)(.|\n)*beyond 64-bit"):
            cluster.run()
        return
    cluster.run()
    assert {k: v for _, batch in cluster.captured(running) for k, v in as_polars(batch).rows()} == dict(so_far)
    assert {k: v for _, batch in cluster.captured(by_record) for k, v in batch} == dict(so_far)


# Decimals and text ----------------------------------------------------------------------------------------------------

CENTS = pa.decimal128(12, 2)


@pytest.mark.parametrize("over", ["time", "scope"])
@pytest.mark.parametrize("size", [5, 700, 9000])
def test_decimals_add_up_and_compare_exactly(over: Any, size: int) -> None:
    rng = np.random.default_rng(size)
    frames = []
    for _ in range(3):
        cents = [None if n % 7 == 0 else Decimal(int(n)).scaleb(-2) for n in rng.integers(-(10**11), 10**11, size)]
        frames.append(pa.table({"k": rng.integers(0, 40, size), "v": pa.array(cents, CENTS)}))
    verbs = {"s": agg.sum("v"), "low": agg.min("v"), "top": agg.max("v"), "mean": agg.mean("v")}
    sent = feed(ColumnAggregate(["k"], verbs, over), [(0, (t,), frame) for t, frame in enumerate(frames)])
    held: dict[int, list[Decimal]] = defaultdict(list)
    for (_, result), frame in zip(sent, frames, strict=True):
        held = held if over == "scope" else defaultdict(list)
        for key, value in zip(frame["k"].to_pylist(), frame["v"].to_pylist(), strict=True):
            held[key] += [] if value is None else [value]
        assert result.schema.field("s").type == pa.decimal128(38, 2)
        assert result.schema.field("low").type == CENTS
        for row in result.to_pylist():
            values = held[row["k"]]
            assert row["s"] == sum(values)
            assert (row["low"], row["top"]) == ((min(values), max(values)) if values else (None, None))
            assert row["mean"] == (pytest.approx(float(sum(values)) / len(values)) if values else None)


words = st.sampled_from(["", "a", "B", "é", "z" * 20, "\U0001f600", "\uffff"]) | st.none()


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
@pytest.mark.parametrize("fill", [0, 600, 9000])
@given(st.lists(st.lists(st.tuples(st.integers(0, 2), words), min_size=1, max_size=6), min_size=1, max_size=4))
@settings(max_examples=8)
def test_the_least_and_greatest_text_runs_on_and_equals_polars(kind: pa.DataType, fill: int, times: list[Any]) -> None:
    plain = pa.string() if pa.types.is_string_view(kind) else kind
    operator = ColumnAggregate(["k"], {"low": agg.min("v"), "top": agg.max("v")})
    frames: list[pl.DataFrame] = []
    found: dict[int, tuple[Any, Any]] = {}
    for t, pairs in enumerate(times):
        keys = [key for key, _ in pairs] + [i % 3 for i in range(fill)]
        values = pa.array([word for _, word in pairs] + [None] * fill, pa.string()).cast(plain).cast(kind)
        batch = pa.table({"k": keys, "v": values})
        frames.append(pl.DataFrame({"k": keys, "v": values.to_pylist()}, schema={"k": pl.Int64, "v": pl.String}))
        for _, result in feed(operator, [(0, (t,), batch)]):
            for row in result.to_pylist():
                assert found.get(row["k"]) != (row["low"], row["top"])
                found[row["k"]] = (row["low"], row["top"])
        wanted = pl.concat(frames).group_by("k").agg(low=pl.min("v"), top=pl.max("v"))
        assert found == {k: (low, top) for k, low, top in wanted.rows()}


unsigned = st.sampled_from([0, 1, MOST, MOST + 1, 2**64 - 1]) | st.none()


@given(st.lists(st.lists(st.tuples(st.integers(0, 2), unsigned), min_size=1, max_size=6), min_size=2, max_size=5))
@settings(max_examples=20)
def test_the_least_and_greatest_unsigned_integers_run_on_after_a_restore(times: list[Any]) -> None:
    operator = ColumnAggregate(["k"], {"low": agg.min("v"), "top": agg.max("v")})
    found: dict[int, tuple[Any, Any]] = {}
    rows: list[Any] = []
    for t, pairs in enumerate(times):
        rows += pairs
        keys, values = zip(*pairs, strict=True)
        for _, result in feed(operator, [(0, (t,), pa.table({"k": keys, "v": pa.array(values, pa.uint64())}))]):
            found |= {k: (low, top) for k, low, top in as_polars(result).rows()}
        frame = pl.DataFrame(rows, {"k": pl.Int64, "v": pl.UInt64}, orient="row")
        wanted = frame.group_by("k").agg(low=pl.min("v"), top=pl.max("v"))
        assert found == {k: (low, top) for k, low, top in wanted.rows()}
        again = ColumnAggregate(["k"], {"low": agg.min("v"), "top": agg.max("v")})
        assert operator.state is not None
        assert again.state is not None
        again.state.restore(operator.state.snapshot(Frontier.before([(t + 1,)]), Frontier.empty(1)))
        operator = again


def test_what_cannot_be_added_or_compared_says_so_once() -> None:
    lists = pa.table({"k": [1], "v": pa.array([[1]])})
    text = pa.table({"k": [1], "v": ["x"]})
    for over in ("time", "scope"):
        for verb, batch, why in (
            (agg.sum("v"), text, "cannot be added up: agg.sum and agg.mean take numbers and decimals"),
            (agg.mean("v"), lists, "cannot be added up"),
            (agg.min("v"), lists, "cannot be compared: agg.min, max, first and last take numbers, decimals, text"),
            (agg.last("k", order_by="v"), lists, "column 'v' of type .* cannot be compared"),
        ):
            with pytest.raises(OperatorError, match=why):
                feed(ColumnAggregate(["k"], {"x": verb}, over), [(0, (0,), batch)])  # type: ignore[arg-type]


def test_a_column_of_nulls_takes_any_type_later() -> None:
    for later in (pa.array(["a"]), pa.array([2.5]), pa.array([7]), pa.array([Decimal("1.5")])):
        operator = ColumnAggregate(["k"], {"low": agg.min("v")})
        [(_, first)] = feed(operator, [(0, (0,), pa.table({"k": [1], "v": pa.nulls(1)}))])
        assert as_polars(first)["low"].to_list() == [None]
        [(_, second)] = feed(operator, [(0, (1,), pa.table({"k": [1], "v": later}))])
        assert as_polars(second)["low"].to_list() == later.to_pylist()
        assert feed(operator, [(0, (2,), pa.table({"k": [1], "v": pa.nulls(1)}))]) == []
