"""What is computed of floats follows from what came at each time: bit for bit, whatever the order, batches and workers."""

from __future__ import annotations

import math
import operator
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries import lindi
from libraries.columns import agg
from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from libraries.sql.query import sql
from runtime.run import run
from runtime.session.cluster import Cluster
from timely.data.batch import as_polars
from timely.data.sums import split as split_sums
from timely.data.sums import terms
from timely.data.sums.records import add_up, lowered, plus, total_of
from timely.errors import CodecError
from timely.io import Batches
from timely.io.memory import rows_of
from timely.operators.window_shapes import Epochs, Session, Sliding, Tumbling

COLUMNS = {"k": int, "v": float, "at": int}
ALL = {
    "n": agg.count(),
    "total": agg.sum("v"),
    "low": agg.min("v"),
    "top": agg.max("v"),
    "mean": agg.mean("v"),
    "var": agg.var("v"),
    "std": agg.std("v", ddof=0),
    "first": agg.first("v", order_by="at"),
}
near = st.floats(-1000, 1000, width=64).map(lambda value: round(value, 2))
wide = st.floats(allow_nan=True, allow_infinity=True, width=64)
values = st.one_of(near, near, st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 1.0, 0.0, -0.0, 1e-30, 1e30, -1e30]), wide)
epochs = st.lists(
    st.lists(st.tuples(st.integers(0, 2), values, st.integers(0, 12)), max_size=14), min_size=1, max_size=3
)
few = settings(max_examples=max(10, settings.default.max_examples // 5), deadline=None)


def pairs(records: Stream) -> Any:
    return records.map(lambda record: (record[0], record[1])).keyed()


def rows(records: Stream) -> Any:
    return records.map(lambda record: dict(zip(COLUMNS, record, strict=True))).to_columns(COLUMNS)


def column_windows(shape: Any) -> Callable[[Stream], Any]:
    return lambda records: rows(records).window(shape, time="at", lateness=100).group_by("k").agg(**WINDOWED)


WINDOWED = {name: each for name, each in ALL.items() if name != "first"}

PROGRAMS: dict[str, Callable[[Stream], Any]] = {
    "keyed sum of a time": lambda r: pairs(r).sum(over="time").records(),
    "keyed sum": lambda r: pairs(r).sum().records(),
    "keyed reduce": lambda r: pairs(r).reduce(operator.add).records(),
    "keyed least and greatest": lambda r: pairs(r).min().records().concat(pairs(r).max().records()),
    "epoch windows": lambda r: pairs(r).window(Epochs(2)).sum().records(),
    "records in windows": lambda r: _sums(r, Tumbling(5)),
    "records in sliding windows": lambda r: _sums(r, Sliding(6, 2)),
    "records in sessions": lambda r: _sums(r, Session(3)),
    "Lindi sum": lambda r: lindi.Query(r).select(lambda record: record[1]).sum().stream,
    "Lindi sums": lambda r: lindi.Query(r).group_by(lambda record: record[0]).sum(lambda record: record[1]).stream,
    "Lindi top": lambda r: lindi.Query(r).top(2, lambda record: record[0]).stream,
    "Lindi columns": lambda r: lindi.Table(rows(r)).aggregate("k", v=pl.col("v").sum(), s=pl.col("v").std()).stream,
    "Lindi top of columns": lambda r: lindi.Table(rows(r)).top(2, "k").stream,
    "aggregates of a time": lambda r: rows(r).group_by("k").agg(over="time", **ALL),
    "aggregates": lambda r: rows(r).group_by("k").agg(**ALL),
    "aggregates of all": lambda r: rows(r).agg(**ALL),
    "aggregates by changes": lambda r: rows(r).group_by("k").agg(changes=True, total=agg.sum("v"), mean=agg.mean("v")),
    "changes": lambda r: (
        rows(r)
        .group_by("k", "at")
        .agg(changes=True, v=agg.sum("v"))
        .group_by("k")
        .agg(total=agg.sum("v"), mean=agg.mean("v"), low=agg.min("v"))
    ),
    "expressions": lambda r: rows(r).group_by("k").agg(over="time", total=pl.col("v").sum(), mean=pl.col("v").mean()),
    "windows": column_windows(Tumbling(5)),
    "sliding windows": column_windows(Sliding(6, 2)),
    "sessions": column_windows(Session(3)),
    "SQL": lambda r: sql("select k, sum(v) as s, avg(v) as m from t group by k", t=rows(r)),
}


def _sums(records: Stream, shape: Any) -> Any:
    return pairs(records).window(shape, time=moment, lateness=100).sum().records()


def moment(value: float) -> int:
    """An event time that follows from a value."""
    return int(100 * value) % 13 if abs(value) < 1e9 else 0


def bits(record: Any) -> str:
    """Text that tells floats apart to the last digit."""
    if isinstance(record, dict):
        return f"{{{', '.join(f'{key}: {bits(value)}' for key, value in record.items())}}}"
    if isinstance(record, list | tuple):
        return f"({', '.join(map(bits, record))})"
    return float(record).hex() if isinstance(record, float) else repr(record)


def results(program: Callable[[Stream], Any], fed: list[list[Any]], workers: int, seed: int) -> dict[Any, list[str]]:
    """What comes at each time, of records that are shuffled, divided into batches and dealt out by `seed`."""
    flow = Dataflow()
    program(flow.input("in")).capture("out")
    cluster, random = Cluster(flow, workers, seed), Random(seed)
    for epoch, records in enumerate(fed):
        left = random.sample(records, len(records)) if seed else list(records)
        while left:
            size = random.randint(1, len(left)) if seed else len(left)
            random.choice(cluster.sessions).input("in").send(left[:size])
            del left[:size]
        for session in cluster.sessions:
            session.input("in").advance_to(epoch + 1)
        for _ in range(random.randint(0, 20)):
            cluster.step()
    for session in cluster.sessions:
        session.input("in").close()
    cluster.run()
    found: defaultdict[Any, list[str]] = defaultdict(list)
    for time, batch in cluster.captured("out"):
        found[time] += map(bits, rows_of(batch))
    return {time: sorted(each) for time, each in found.items()}


@pytest.mark.parametrize("name", PROGRAMS)
@few
@given(fed=epochs, workers=st.integers(1, 3), seed=st.integers(1, 1 << 30))
def test_results_follow_from_what_came_at_each_time(name: str, fed: list[Any], workers: int, seed: int) -> None:
    assert results(PROGRAMS[name], fed, workers, seed) == results(PROGRAMS[name], fed, 1, 0)


@pytest.mark.parametrize("rows_an_epoch", [700, 9000])
@pytest.mark.parametrize("name", ["aggregates of a time", "aggregates", "windows", "sessions", "changes"])
def test_so_do_those_of_many_rows(name: str, rows_an_epoch: int) -> None:
    """Enough of them for NumPy and for compiled loops."""
    random = Random(rows_an_epoch)
    fed = [
        [(random.randrange(40), random.choice([random.gauss(0, 1), random.gauss(1e9, 1e-9)]), at % 13)]
        for at in range(2 * rows_an_epoch)
    ]
    records = [record for each in fed for record in each]
    divided = [records[:rows_an_epoch], records[rows_an_epoch:]]
    assert results(PROGRAMS[name], divided, 3, 5) == results(PROGRAMS[name], divided, 1, 0)


# Sums by themselves, against Python's exact ones ------------------------------------------------------------------------


def exact(added: list[float]) -> float:
    """The sum, rounded once."""
    odd = [value for value in added if not math.isfinite(value)]
    if odd:
        return sum(odd)
    try:
        return float(sum(map(Fraction, added)))
    except OverflowError:
        return math.inf if sum(map(Fraction, added)) > 0 else -math.inf


huge = st.sampled_from([1.7e308, -1.7e308, 2.0**960, -(2.0**961), 1e300, 5e-324, math.inf, -math.inf, math.nan])
numbers = st.lists(st.one_of(values, huge), max_size=40)


@given(numbers, st.randoms(use_true_random=False), st.integers(1, 4))
def test_columns_of_sums_are_rounded_once(added: list[float], random: Random, pieces: int) -> None:
    groups = [random.randrange(3) for _ in added]
    whole = terms.blank(3)
    for piece in range(pieces):
        ids, given = np.array(groups[piece::pieces], np.intp), np.array(added[piece::pieces], np.float64)
        partial = terms.terms_of(terms.column_of_terms(terms.sums([ids], 3, [given])))
        whole = terms.added(whole, np.arange(3), partial, unique=True)
    expected = [
        exact([value for value, group in zip(added, groups, strict=True) if group == each]) for each in range(3)
    ]
    assert bits(terms.rounded(whole).tolist()) == bits([value + 0.0 for value in expected])


@given(numbers.filter(bool), st.integers(1, 4))
def test_so_are_sums_of_records(added: list[float], pieces: int) -> None:
    parts = [total_of(added[piece::pieces]) for piece in range(pieces) if added[piece::pieces]]
    assert bits(lowered(total_of(parts))) == bits(exact(added) + 0.0)
    assert bits(lowered(reduce(plus, added, 0))) == bits(exact(added) + 0.0)


@given(numbers, st.integers(1, 60), st.booleans(), st.booleans(), st.randoms(use_true_random=False))
def test_so_they_are_by_numpy_and_by_loops(
    added: list[float], times: int, loops: bool, several: bool, random: Random
) -> None:
    """What is cut in two, and what is too small or too large for it, of few values and of many."""
    many = [value for value in added for _ in range(times)]
    random.shuffle(many)
    groups = [random.randrange(3) for _ in many]
    ids, given = np.array(groups, np.intp), np.array(many, np.float64)
    with patch.object(terms, "are_loaded", lambda: loops), patch.object(split_sums, "are_loaded", lambda: loops):
        cut = len(many) // 3 if several else len(many)
        whole = terms.sums([ids[:cut], ids[cut:]], 3, [given[:cut], given[cut:]])
        whole = terms.added(terms.added(whole, ids, given), ids, -given)  # infinities go for good
    expected = [exact([value for value, group in zip(many, groups, strict=True) if group == each]) for each in range(3)]
    taken = [
        value if math.isfinite(value) or not odd_in(many, groups, each) else math.nan
        for each, value in enumerate(expected)
    ]
    assert bits(terms.rounded(whole).tolist()) == bits([value + 0.0 for value in taken])


def odd_in(added: list[float], groups: list[int], group: int) -> bool:
    """True if a group has infinities or NaN."""
    return any(not math.isfinite(value) for value, of in zip(added, groups, strict=True) if of == group)


@few
@given(
    st.lists(st.one_of(values, st.integers(-(2**70), 2**70), st.just(True)), max_size=40),
    st.sampled_from([1, 100, 3000]),
    st.sampled_from([1, 2, 50, 5000]),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_records_are_added_up_by_key(added: list[Any], times: int, keys: int, pieces: int, random: Random) -> None:
    """Few keys and many, with values of one type and of several, in batches of all sizes."""
    pairs_ = [(random.randrange(keys), value) for value in added for _ in range(max(1, times // len(added)))]
    random.shuffle(pairs_)
    totals: dict[Any, Any] = {}
    for piece in range(pieces):
        add_up(totals, pairs_[piece::pieces])
    by_key: defaultdict[int, list[Any]] = defaultdict(list)
    for key, value in pairs_:
        by_key[key].append(value)
    assert totals.keys() == by_key.keys()
    for key, values_ in by_key.items():
        found = lowered(totals[key])
        if any(type(value) is float for value in values_):
            assert bits(found) == bits(exact(values_) + 0.0)
        else:
            assert (type(found) is bool) == (len(values_) == 1 and values_[0] is True)
            assert found == sum(values_)


@given(st.lists(st.one_of(values, st.integers(-(2**70), 2**70), st.booleans(), st.fractions()), min_size=1, max_size=9))
def test_floats_meet_other_numbers(added: list[Any]) -> None:
    found = lowered(total_of(added))
    if any(isinstance(value, Fraction) for value in added):
        expected = sum(added)
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True) or not math.isfinite(expected)
    elif any(isinstance(value, float) for value in added):
        assert bits(found) == bits(exact(added) + 0.0)
    else:
        assert found == sum(added)


@given(st.lists(st.floats(-1e15, 1e15, width=64), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_squares_of_distances_are_exact(added: list[float], random: Random) -> None:
    """To the last digit but one, however far from 0 the values are."""
    added = [value if abs(value) > 1e-140 else 0.0 for value in added]
    ids, many = np.zeros(len(added), np.intp), np.array(added)
    total, square = terms.sums([ids], 1, [many]), terms.sums([ids], 1, [terms.squares(many)])
    mean = sum(map(Fraction, added)) / len(added)
    expected = float(sum((Fraction(value) - mean) ** 2 for value in added))
    found = float(terms.spreads(np.array([len(added)]), total, square)[0])
    assert found == pytest.approx(expected, rel=1e-15)
    mixed = random.sample(added, len(added))
    pieces = [np.array(mixed[::2]), np.array(mixed[1::2])]
    totals, squares = (
        terms.sums([np.zeros(len(each), np.intp) for each in pieces], 1, [make(each) for each in pieces])
        for make in (lambda each: each, terms.squares)
    )
    assert bits(float(terms.spreads(np.array([len(added)]), totals, squares)[0])) == bits(found)


def test_squares_of_large_integers_are_exact() -> None:
    many = np.array([2**62 + 1, 2**62 - 5, 2**62 + 12345, -3])
    ids = np.zeros(len(many), np.intp)
    square = terms.sums([ids], 1, [terms.squares(many)])
    mean = Fraction(int(many.astype(object).sum()), len(many))
    found = terms.spreads(np.array([len(many)]), np.array([int(many.astype(object).sum())], object), square)
    assert found[0] == float(sum((Fraction(int(value)) - mean) ** 2 for value in many))


def test_sums_of_different_widths_go_together() -> None:
    narrow = terms.sums([np.array([0, 1])], 2, [np.array([0.1, 0.2])])
    broad = terms.sums([np.array([0, 0, 0])], 1, [np.array([1e30, 1.0, 1e-30])])
    far = terms.sums([np.array([0, 0])], 1, [np.array([1.7e308, 0.5])])
    whole = terms.stacked([narrow, broad, far, np.array([7])])
    assert terms.rounded(whole).tolist() == [0.1, 0.2, 1e30 + 1.0, 1.7e308, 7.0]
    column = pa.concat_arrays(list(map(terms.column_of_terms, (narrow, broad, far, np.array([0.5, math.nan])))))
    assert bits(terms.rounded(terms.terms_of(column)).tolist()) == bits([0.1, 0.2, 1e30, 1.7e308, 0.5, math.nan])


def test_add_up_leaves_other_values_alone() -> None:
    totals: dict[Any, Any] = {"words": "a"}
    add_up(totals, [("words", "b"), ("n", 2), ("n", 3), ("both", 1), ("both", 0.5)])
    assert {key: lowered(value) for key, value in totals.items()} == {"words": "ab", "n": 5, "both": 1.5}


@pytest.mark.parametrize(
    "damaged", [[[]], [[1.0, None]], [[0.0] * 65], [[1.0, 0.0], []]], ids=["none", "null", "many", "one"]
)
def test_columns_that_are_no_sums_are_refused(damaged: list[list[float | None]]) -> None:
    with pytest.raises(CodecError, match="a damaged sum of floats"):
        terms.terms_of(pa.array(damaged, terms.TERMS))
    with pytest.raises(CodecError, match="its terms are int64"):
        terms.terms_of(pa.array([[1]]))


def test_sums_have_fewer_terms_than_what_is_refused() -> None:
    """Floats of all sizes, added in any order, with what they are taken back by."""
    chance = np.random.default_rng(1)
    found = terms.blank(20)
    for step in range(40):
        ids, exponents = chance.integers(0, 20, 400), chance.integers(-1074, 1000, 400)
        given = np.ldexp((chance.random(400) + 1) * chance.choice([-1, 1], 400), exponents)
        if step % 2:
            ids, given = np.concatenate([ids, ids[::-1]]), np.concatenate([given, -given[::-1]])
        found = terms.added(found, ids, given)
    assert 30 < found.shape[1] < 50
    assert bits(terms.rounded(terms.terms_of(terms.column_of_terms(found))).tolist()) == bits(
        terms.rounded(found).tolist()
    )


@pytest.mark.parametrize("over", ["time", "scope"])
@pytest.mark.parametrize("rows", [1, 700])
def test_a_mean_of_which_the_sum_is_beyond_floats_is_one(over: Any, rows: int) -> None:
    """In a few rows, which are handled by Python, as in many."""
    values = [1e308, 1e308, -0.5, 1.7e308] * rows
    for given_ in (values, [-each for each in values], [*values, float("inf")]):
        flow = Dataflow("means")
        batch = pl.DataFrame({"k": [1] * len(given_), "v": given_})
        flow.columns("in", Batches([batch])).group_by("k").agg(x=agg.mean("v"), over=over).capture("out")
        [(_, found)] = run(flow).captured("out")
        exact = float(sum(map(Fraction, given_)) / len(given_)) if float("inf") not in given_ else float("inf")
        assert as_polars(found)["x"].to_list() == [exact]
