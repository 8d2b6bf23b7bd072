"""Spans of random rows: cut, divided and filtered as each time by itself would be."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.data.batch import Batch, as_polars
from timely.data.span import FEW_ROWS, Span, in_few_batches
from timely.state import TimedBatches
from timely.time import Time

values = st.lists(st.integers(0, 9), min_size=1, max_size=4)
lengths = st.lists(values, min_size=1, max_size=5)
Rows = list[tuple[Time, list[int]]]


def frame(rows: list[int]) -> pl.DataFrame:
    return pl.DataFrame({"n": rows, "text": [f"n{each}" for each in rows]})


def span_of(batches: list[list[int]], step: int = 2) -> Span:
    return Span.of([((step * number,), frame(rows)) for number, rows in enumerate(batches)])


def rows_of(span: Span | None) -> Rows:
    if span is None:
        return []
    parts = [(time, part["n"].to_list()) for time, part in span.parts()]
    assert [(time, part["text"].to_list()) for time, part in span.parts()] == [
        (time, [f"n{each}" for each in rows]) for time, rows in parts
    ]
    return parts


def given_rows(batches: list[list[int]], step: int = 2) -> Rows:
    return [((step * number,), rows) for number, rows in enumerate(batches)]


@given(lengths)
def test_parts_are_what_came_before_and_after_it_is_one_frame(batches: list[list[int]]) -> None:
    span = span_of(batches)
    assert rows_of(span) == given_rows(batches)
    assert span.frame["n"].to_list() == [each for rows in batches for each in rows]
    assert span.frame.get_column("n").n_chunks() == 1
    assert rows_of(Span(span.frame, span.times, span.ends)) == given_rows(batches)
    assert len(span) == sum(map(len, batches))


@given(lengths, st.lists(st.sampled_from(["double", "put", "beside", "swap", "drop", "look", "whole"]), max_size=5))
def test_columns_are_put_in_and_left_out(batches: list[list[int]], steps: list[str]) -> None:
    span = span_of(batches)
    alike, given = span.frame, [(time, frame(rows)) for time, rows in given_rows(batches)]
    untouched = [part.clone() for _, part in given]
    span = Span.of(given)
    for number, step in enumerate(steps):
        names = span.columns
        if step in ("double", "put"):
            alike = alike.with_columns(n=pl.col("n") * 2)
            span = span.having({name: alike["n"] if name == "n" else None for name in names})
        elif step == "beside":
            alike = alike.with_columns(pl.col("n").alias(f"n{number}"))
            span = span.beside(alike[f"n{number}"])
        elif step == "swap":
            alike = alike.select(reversed(names))
            span = span.having(dict.fromkeys(reversed(names)))
        elif step == "drop" and len(names) > 2:
            names = [name for name in names if name in ("n", "text")]
            alike, span = alike.select(names), span.having(dict.fromkeys(names))
        elif step == "look":
            assert span.get_column("text").equals(alike["text"])
        elif step == "whole":
            assert span.frame.equals(alike)
    assert span.columns == alike.columns
    parts = list(span.parts())
    assert [time for time, _ in parts] == [time for time, _ in given]
    assert pl.concat([part for _, part in parts]).equals(alike)
    assert span.frame.equals(alike)
    assert all(part.equals(before) for (_, part), before in zip(given, untouched, strict=True))


@given(lengths, st.integers(0, 12))
def test_times_are_divided(batches: list[list[int]], at: int) -> None:
    before, after = span_of(batches).divided((at,))
    rows = given_rows(batches)
    assert rows_of(before) == [(time, some) for time, some in rows if time <= (at,)]
    assert rows_of(after) == [(time, some) for time, some in rows if time > (at,)]


@given(lengths, st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_what_filters_leave_is_of_its_time(batches: list[list[int]], first: set[int], second: set[int]) -> None:
    span = span_of(batches)
    masks, left = [], span.frame
    for wanted in (first, second):
        masks.append(np.array([each in wanted for each in left["n"]], bool))
        left = left.filter(pl.Series(masks[-1], dtype=pl.Boolean))
    kept = [(time, [each for each in rows if each in first & second]) for time, rows in given_rows(batches)]
    found = span.kept(left, masks)
    assert [part for each in found for part in rows_of(each)] == [(time, rows) for time, rows in kept if rows]


@given(lengths, st.data())
def test_rows_by_number_are_cut(batches: list[list[int]], data: st.DataObject) -> None:
    span = span_of(batches)
    times: list[Time] = [(number,) for number in range(2 * len(batches))]
    numbers = span.numbers(times)
    assert numbers.tolist() == [2 * number for number, rows in enumerate(batches) for _ in rows]
    chosen = sorted(data.draw(st.sets(st.integers(0, len(span) - 1), min_size=1)))
    cut = Span.cut(span.frame[chosen], times, numbers[chosen])
    assert [time for time, rows in rows_of(cut) for _ in rows] == [times[numbers[each]] for each in chosen]


def test_batches_of_one_time_are_its_rows() -> None:
    span = Span.of([((0,), frame([1])), ((0,), frame([2])), ((1,), frame([3]))])
    assert rows_of(span) == [((0,), [1, 2]), ((1,), [3])]


def test_batches_of_other_columns_or_types_are_no_span() -> None:
    one, other = pl.DataFrame({"a": [1]}), pl.DataFrame({"b": [1]})
    with pytest.raises(TypeError, match="columns of batches differ"):
        Span.of([((0,), one), ((0,), other)])
    asking: list[Callable[[Span], object]] = [
        lambda span: span.columns,
        lambda span: span.frame,
        lambda span: span.get_column("a"),
        lambda span: span.having({"a": None}),
        lambda span: span.check_types(),
        lambda span: span.divided((0,)),
    ]
    for ask in asking:
        span = Span.of([((0,), one), ((1,), other)])
        assert [part for _, part in span.parts()] == [one, other]  # who only hands them on need not compare them
        with pytest.raises(TypeError, match="columns of batches differ"):
            ask(span)
    with pytest.raises(TypeError, match="types of columns differ"):
        Span.of([((0,), one), ((0,), pl.DataFrame({"a": ["x"]}))])
    span = Span.of([((0,), pl.DataFrame({"a": [1]})), ((1,), pl.DataFrame({"a": ["x"]}))])
    with pytest.raises(TypeError, match="'a' is not of one type"):
        span.get_column("a")
    with pytest.raises(TypeError, match="types of columns differ"):
        span.check_types()
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        span.get_column("b")
    assert [part.rows() for _, part in span.parts()] == [[(1,)], [("x",)]]


@given(lengths, st.lists(st.booleans(), min_size=5, max_size=5), st.data())
def test_batches_held_by_time_are_the_same_with_and_without_spans(
    batches: list[list[int]], together: list[bool], data: st.DataObject
) -> None:
    held, plain = TimedBatches(), TimedBatches()
    some: list[list[int]] = []
    for number, (rows, join) in enumerate(zip(batches, together, strict=False)):
        plain.add((number,), frame(rows))
        some.append(rows)
        if not join or number == len(batches) - 1:
            first = number + 1 - len(some)
            held.add_span(Span.of([((first + each,), frame(part)) for each, part in enumerate(some)]))
            some = []
    upto = data.draw(st.integers(0, len(batches) - 1))
    times: list[Time] = [(number,) for number in range(upto + 1)]
    assert rows_of(held.span(times)) == [(time, batches[time[0]]) for time in times]
    held.drop(times)
    for time in times:
        plain.pop(time)
    if data.draw(st.booleans()):
        assert held.size() == plain.size()
        assert sorted(held.times()) == sorted(plain.times())
    for number in range(len(batches)):
        mine, theirs = held.pop((number,)), plain.pop((number,))
        assert [part["n"].to_list() for part in mine] == [part["n"].to_list() for part in theirs]


@pytest.mark.parametrize("within", [lambda kind: kind, pl.List, lambda kind: pl.Struct({"x": kind})])
def test_decimals_of_several_scales_are_not_of_one_type(within: Callable[[pl.DataType], Any]) -> None:
    def of(text: str, scale: int) -> pl.DataFrame:
        number: Any = Decimal(text)
        value = {pl.List: [number], pl.Struct: {"x": number}}.get(type(kind := within(pl.Decimal(12, scale))), number)
        return pl.DataFrame({"a": pl.Series([value], dtype=kind)})

    span = Span.of([((0,), of("1.00", 2)), ((1,), of("1.005", 3))])
    with pytest.raises(TypeError, match="'a' is not of one type"):
        span.get_column("a")  # Polars would make 1.00 of 1.005
    same = Span.of([((0,), of("1.000", 3)), ((1,), of("1.005", 3))])
    assert same.get_column("a").to_list() == [*of("1.000", 3)["a"].to_list(), *of("1.005", 3)["a"].to_list()]


@given(st.lists(st.tuples(st.sampled_from("abcrt"), st.integers(0, 3)), max_size=8))
def test_few_batches_have_the_same_rows_in_the_same_order(kinds: list[tuple[str, int]]) -> None:
    """Small frames of the same columns that follow each other are one; all else is left as it is."""
    make: dict[str, Callable[[int], Batch]] = {
        "a": lambda rows: pl.DataFrame({"n": range(rows)}, schema={"n": pl.Int64}),
        "b": lambda rows: pl.DataFrame({"n": range(rows)}, schema={"n": pl.Int32}),
        "c": lambda rows: pl.DataFrame({"n": range(FEW_ROWS + rows)}, schema={"n": pl.Int64}),
        "r": lambda rows: list(range(rows)),
        "t": lambda rows: pa.table({"n": pa.array(range(rows), pa.int64())}),
    }
    batches = [make[kind](rows) for kind, rows in kinds]
    found = in_few_batches(batches)

    def told(batch: Batch) -> list[tuple[str, Any]]:
        if isinstance(batch, list):
            return [("list", each) for each in batch]
        kind = str(batch.dtypes[0]) if isinstance(batch, pl.DataFrame) else "table"
        return [(kind, each) for each in as_polars(batch)["n"]]

    assert [row for batch in found for row in told(batch)] == [row for batch in batches for row in told(batch)]
    small = [isinstance(each, pl.DataFrame) and len(each) < FEW_ROWS for each in batches]
    apart = sum(
        not (kind == after and few and kind in "ab") for (kind, _), (after, _), few in zip(kinds, kinds[1:], small)
    )
    assert len(found) == apart + bool(batches)
