"""Quantiles by sketches, against the exact ones of Polars."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.columns import agg
from libraries.columns.kernels import sketches
from libraries.columns.operators.aggregate import ColumnAggregate, PreAggregate
from libraries.columns.verbs.dataflow import Dataflow
from tests.timely.operators.fake_context import feed
from timely.data.batch import as_polars
from timely.data.kernels.columns import TINY
from timely.errors import CodecError, GraphError, OperatorError
from timely.time import Frontier

VALUES: dict[str, tuple[Any, Any]] = {
    "int": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)),
    "byte": (pa.int8(), st.integers(-128, 127)),
    "unsigned": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float": (
        pa.float64(),
        st.floats(-1e300, 1e300, allow_subnormal=False) | st.sampled_from([0.0, -0.0, 1.0, -1.0, inf, -inf, nan]),
    ),
    "single": (pa.float32(), st.floats(width=32, allow_subnormal=False)),
    "decimal": (pa.decimal128(20, 3), st.decimals(-(10**9), 10**9, places=3)),
    "none": (pa.null(), st.none()),
}
INTERPOLATIONS = ["nearest", "lower", "higher", "midpoint", "linear"]


def exact(values: list[Any], quantile: float, interpolation: Any) -> tuple[float | None, float]:
    """Polars' quantile, and its size; between two values the greater of their sizes."""
    held = pl.Series([None if v is None else float(v) for v in values], dtype=pl.Float64).drop_nulls()
    found = held.quantile(quantile, interpolation)
    if found is None or interpolation in ("nearest", "lower", "higher"):
        return found, abs(found or 0.0)
    ends = [held.quantile(quantile, end) for end in ("lower", "higher")]  # type: ignore[arg-type]
    return found, max(abs(end or 0.0) for end in ends)


def check(found: float | None, values: list[Any], aggregate: agg.Aggregate) -> None:
    assert aggregate.sketch is not None
    wanted, size = exact(values, aggregate.sketch.quantile, aggregate.sketch.interpolation)
    if wanted is None or not np.isfinite(wanted) or not np.isfinite(size):
        assert str(found) == str(wanted)
    else:
        assert found is not None
        assert abs(found - wanted) <= aggregate.sketch.error * size * (1 + 1e-9)


quantiles = st.builds(
    agg.quantile,
    st.just("v"),
    st.floats(0, 1) | st.sampled_from([0, 0.25, 0.5, 0.75, 1]),
    st.sampled_from(INTERPOLATIONS),
    st.sampled_from([0.0001, 0.01, 0.5]),
)


@pytest.mark.parametrize("over", ["time", "scope"])
@pytest.mark.parametrize("kind", VALUES)
@settings(max_examples=settings.default.max_examples // 3)
@given(
    data=st.data(),
    wanted=st.lists(quantiles, min_size=1, max_size=3),
    sizes=st.lists(st.lists(st.sampled_from([1, 3, TINY - 1, TINY, 700]), max_size=3), min_size=1, max_size=3),
    ahead=st.booleans(),
    coded=st.booleans(),
)
def test_a_quantile_is_that_of_polars_but_for_the_error(
    kind: str, over: Any, data: Any, wanted: list[agg.Aggregate], sizes: list[list[int]], ahead: bool, coded: bool
) -> None:
    type_, value = VALUES[kind]
    pool = [*data.draw(st.lists(value, min_size=1, max_size=9)), None]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    aggregates = {f"q{n}": each for n, each in enumerate(wanted)} | {"n": agg.count(), "kinds": agg.n_unique("k")}
    operator = ColumnAggregate(["k"], aggregates, over=over, combined=ahead)
    combine = PreAggregate(["k"], aggregates)
    met: dict[Any, list[Any]] = {}
    for t, each in enumerate(sizes):
        batches = []
        met = {} if over == "time" else met
        for size in each:
            keys = rng.choice(["a", "b", "c"], size).tolist()
            values = [pool[n] for n in rng.integers(0, len(pool), size)]
            table = pa.table([pa.array(keys), pa.array(values, type_)], ["k", "v"])
            if coded:
                table = table.set_column(0, "k", table["k"].dictionary_encode())
            batches.append(combine.apply(table) if ahead else table)
            for key, v in zip(keys, values, strict=True):
                met.setdefault(key, []).append(v)
        for _, result in feed(operator, [(0, (t,), batch) for batch in batches], workers=2 if ahead else 1):
            for row in as_polars(result).iter_rows(named=True):
                assert row["n"] == len(met[row["k"]])
                for name, aggregate in zip(aggregates, wanted, strict=False):
                    check(row[name], met[row["k"]], aggregate)


@given(
    values=st.lists(st.tuples(st.integers(0, 2), st.floats(allow_subnormal=False)), max_size=30),
    cut=st.integers(0, 30),
    error=st.sampled_from([0.001, 0.1]),
)
def test_parts_add_up_to_the_whole_and_what_is_taken_back_is_gone(
    values: list[tuple[int, float]], cut: int, error: float
) -> None:
    def made(part: list[tuple[int, float]], sign: int) -> Any:
        groups = np.array([group for group, _ in part], np.intp)
        of = pa.array([v for _, v in part], pa.float64(), from_pandas=False)
        seen = sketches.observations(of, error, pa.array([sign] * len(part), pa.int8())).to_numpy()
        one_by_one = sketches.merged(groups, 3, sketches.of_rows(seen))
        together = sketches.of_groups(groups, 3, seen)
        assert one_by_one.tolist() == together.tolist()
        return together

    several = [made(values[:cut], 1), made(values[cut:], 1)]
    groups = np.tile(np.arange(3), 2)
    assert sketches.merged(groups, 3, np.concatenate(several)).tolist() == made(values, 1).tolist()
    without = sketches.merged(groups, 3, np.concatenate([made(values, 1), made(values[cut:], -1)]))
    assert without.tolist() == several[0].tolist()


def test_a_total_with_a_quantile_comes_when_its_value_changes_and_goes_back_when_asked() -> None:
    operator = ColumnAggregate(["k"], {"q": agg.quantile("v", 1)}, over="scope")
    batches = [[5.0], [3.0], [50.0], [4.0]]
    sent = feed(
        operator,
        [(0, (t,), pl.DataFrame({"k": 1, "v": values})) for t, values in enumerate(batches)],
        compact=False,
    )
    assert [time for time, _ in sent] == [(0,), (2,)]
    assert operator.state is not None
    operator.state.keep(Frontier([(2,)], 1))
    [(_, result)] = feed(operator, [(0, (2,), pl.DataFrame({"k": 1, "v": [6.0]}))])
    check(as_polars(result)["q"][0], [5.0, 3.0, 6.0], agg.quantile("v", 1))


def test_what_has_no_quantile_is_refused() -> None:
    for build, why in (
        (lambda: agg.quantile("v", 1.5), "takes a share from 0 to 1, not 1.5"),
        (lambda: agg.quantile("v", "half"), "takes a share from 0 to 1, not 'half'"),  # type: ignore[arg-type]
        (lambda: agg.quantile("v", 0.5, "middle"), "is one of 'nearest', .*, not 'middle'"),  # type: ignore[arg-type]
        (lambda: agg.quantile("v", 0.5, error=0), "from 0.0001 to 0.5, not 0"),
        (lambda: agg.median("v", error=float("nan")), "from 0.0001 to 0.5, not nan"),
        (lambda: Dataflow().input("in").to_columns({"v": pl.String}).agg(m=agg.median("v")), "has no quantiles"),
    ):
        with pytest.raises(GraphError, match=rf"test_quantiles\.py:\d+: .*{why}"):
            build()
    operator = ColumnAggregate(["k"], {"q": agg.median("v")}, over="scope")
    with pytest.raises(OperatorError, match="of type bool has no quantiles"):
        feed(operator, [(0, (0,), pl.DataFrame({"k": [1], "v": [True]}))])
    assert agg.median("v").result_kind(pa.decimal128(9, 2)) == pa.float64()


@pytest.mark.parametrize(
    "values", [[0.0, -inf], [-inf, 5.0], [0.0, inf], [-inf, inf], [-inf, nan], [-inf, -inf]], ids=str
)
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_between_infinities_a_quantile_is_what_it_is_in_polars(values: list[float], interpolation: Any) -> None:
    observed = sketches.observations(pa.array(values), 0.01).to_numpy()
    [found] = sketches.quantiles(sketches.of_groups(np.zeros(2, np.intp), 1, observed), 0.5, interpolation, 0.01)
    check(found.as_py(), values, agg.quantile("v", 0.5, interpolation, 0.01))


@pytest.mark.parametrize("damaged", [b"x", bytes(15), bytes(32), b"\xff" * 7 + b"\x7f" + bytes(8)], ids=repr)
def test_bytes_that_are_no_sketch_are_refused(damaged: bytes) -> None:
    with pytest.raises(CodecError, match="a damaged sketch"):
        sketches.quantiles(np.array([damaged, None], object), 0.5, "nearest", 0.01)
