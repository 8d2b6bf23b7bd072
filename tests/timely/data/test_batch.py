"""Batches: sizes, views, and putting together what arrives in different shapes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.data.batch import (
    Batch,
    as_arrow,
    as_polars,
    concat,
    divide,
    head,
    is_columns,
    joined,
    length,
    nbytes,
    same_types,
    slice_,
    take,
)
from timely.io.column_types import polars_schema

KINDS: list[Batch] = [[1, 2, 3], pa.table({"a": [1, 2, 3]}), pl.DataFrame({"a": [1, 2, 3]})]


def values(batch: Batch) -> list[Any]:
    if isinstance(batch, list):
        return batch
    return as_arrow(batch)["a"].to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("batch", KINDS, ids=lambda batch: type(batch).__name__)
def test_every_kind_has_length_slices_and_rows(batch: Batch) -> None:
    assert is_columns(batch) != isinstance(batch, list)
    assert length(batch) == 3
    assert values(head(batch, 2)) == [1, 2]
    assert values(head(batch, 9)) == [1, 2, 3]
    assert values(slice_(batch, 1, 1)) == [2]
    assert values(take(batch, np.array([2, 0]))) == [3, 1]
    assert type(slice_(batch, 0, 0)) is type(batch)
    assert concat([batch]) is batch
    assert values(concat([batch, slice_(batch, 1, 1)])) == [1, 2, 3, 2]


@given(st.lists(st.tuples(st.integers(-9, 9), st.none() | st.text(max_size=2), st.booleans())), st.booleans())
def test_columns_are_divided_by_a_mask_and_stay_what_they_are(
    rows: list[tuple[int, str | None, bool]], arrow: bool
) -> None:
    frame = pl.DataFrame(rows, {"n": pl.Int64, "t": pl.String, "m": pl.Boolean}, orient="row")
    batch: Batch = frame.to_arrow() if arrow else frame
    yes, no = divide(batch, frame["m"])
    assert type(yes) is type(no) is type(batch)
    assert as_polars(yes).rows() == [row for row in frame.rows() if row[2]]
    assert as_polars(no).rows() == [row for row in frame.rows() if not row[2]]
    assert as_arrow(yes).schema.equals(as_arrow(batch).schema)
    if frame["m"].all() and len(frame):
        assert yes is batch


@given(st.lists(st.lists(st.integers(), max_size=4), min_size=1))
def test_concat_of_records_is_the_sum_and_leaves_its_parts_alone(parts: list[list[int]]) -> None:
    before = [list(part) for part in parts]
    assert concat(list(parts)) == [item for part in before for item in part]
    assert parts == before


@given(st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from(["a", "b", "ccc", None]), max_size=4)), min_size=1))
def test_concat_of_coded_text_keeps_values_and_coding(parts: list[tuple[bool, list[str | None]]]) -> None:
    tables = []
    for coded, words in parts:
        column = pa.array(words, pa.string())
        tables.append(pa.table({"w": column.dictionary_encode() if coded else column}))
    whole = concat(tables)
    assert whole["w"].to_pylist() == [word for _, words in parts for word in words]  # type: ignore[call-overload]
    if all(coded for coded, _ in parts):
        assert pa.types.is_dictionary(as_arrow(whole).schema.field("w").type)


TEXTS = {
    "string": pa.array(["x"]),
    "large": pa.array(["x"], pa.large_string()),
    "view": pa.array(["x"], pa.string_view()),
    "coded": pa.array(["x"]).dictionary_encode(),
    "coded_large": pa.DictionaryArray.from_arrays(pa.array([0], pa.uint8()), pa.array(["x"], pa.large_string())),
    "null": pa.nulls(1),
}


@pytest.mark.parametrize("left", TEXTS)
@pytest.mark.parametrize("right", [*TEXTS, "polars", "categorical"])
def test_any_two_layouts_of_text_go_together(left: str, right: str) -> None:
    one = pa.table({"w": TEXTS[left]})
    two: Batch
    if right in TEXTS:
        two = pa.table({"w": TEXTS[right]})
    else:
        two = pl.DataFrame({"w": pl.Series(["x"], dtype=pl.Categorical if right == "categorical" else pl.String)})
    expected = [None if left == "null" else "x", None if right == "null" else "x"]
    assert as_polars(concat([one, two]))["w"].cast(pl.String).to_list() == expected
    assert as_polars(concat([two, one]))["w"].cast(pl.String).to_list() == expected[::-1]
    assert type(concat([one, two])) is type(concat([two, one]))


def test_columns_are_matched_by_name_and_numbers_widened() -> None:
    one = pa.table({"a": pa.array([1], pa.int32()), "b": [1.5]})
    two = pa.table({"b": pa.array([2], pa.int32()), "a": [2**40]})
    assert as_arrow(concat([one, two])).to_pydict() == {"a": [1, 2**40], "b": [1.5, 2.0]}
    frames: list[Batch] = [as_polars(one), as_polars(two)]
    assert as_polars(concat(frames)).to_dict(as_series=False) == {"a": [1, 2**40], "b": [1.5, 2.0]}


@pytest.mark.parametrize("make", [pa.table, pl.DataFrame])
def test_what_does_not_go_together_is_an_error_that_says_why(make: Any) -> None:
    with pytest.raises(TypeError, match=r"\['b', 'c'\]"):
        concat([make({"a": [1], "b": [1]}), make({"a": [1], "c": [1]})])
    with pytest.raises(TypeError, match="do not go together"):
        concat([make({"a": [1]}), make({"a": [[1]]})])
    for mixed in ([make({"a": [1]}), [1]], [[1], make({"a": [1]})]):
        with pytest.raises(TypeError, match="records and columns"):
            concat(mixed)
    with pytest.raises(ValueError, match="at least one"):
        concat([])


def test_conversions_share_numbers() -> None:
    table = pa.table({"a": np.arange(1000)})
    address = table["a"].chunk(0).buffers()[1].address
    assert as_arrow(as_polars(table))["a"].chunk(0).buffers()[1].address == address
    assert slice_(table, 10, 5)["a"].chunk(0).buffers()[1].address == address  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="to_columns"):
        as_arrow([1])
    with pytest.raises(TypeError, match="to_columns"):
        as_polars([1])


def test_concat_of_tables_copies_nothing() -> None:
    table = pa.table({"a": np.arange(1000)})
    whole = as_arrow(concat([table, table]))
    assert {chunk.buffers()[1].address for chunk in whole["a"].chunks} == {table["a"].chunk(0).buffers()[1].address}


@pytest.mark.parametrize(
    "record",
    [
        1,
        "word",
        ("a", 1),
        {"a": 1, "b": "x" * 100},
        list(range(1000)),
        np.zeros(1000),
        pa.table({"a": np.arange(1000)}),
    ],
    ids=lambda record: type(record).__name__,
)
@pytest.mark.parametrize("count", [1, 5, 1000])
def test_size_of_records_is_of_the_right_order(record: Any, count: int) -> None:
    def deep(value: Any) -> int:
        if isinstance(value, dict):
            return sys.getsizeof(value) + sum(deep(item) for pair in value.items() for item in pair)
        if isinstance(value, list | tuple):
            return sys.getsizeof(value) + sum(map(deep, value))
        return max(sys.getsizeof(value), getattr(value, "nbytes", 0))

    true = count * (8 + deep(record))
    assert true / 2 <= nbytes([record] * count) <= 2 * true


def test_size_of_a_slice_is_what_is_in_view() -> None:
    for batch in (pa.table({"a": np.arange(1000)}), pl.DataFrame({"a": np.arange(1000)})):
        assert nbytes(batch) == 8000
        assert nbytes(slice_(batch, 0, 10)) == 80
    assert nbytes([]) == 0


@pytest.mark.parametrize(
    "kind",
    [
        pa.run_end_encoded(pa.int32(), pa.int8()),
        pa.list_view(pa.int8()),
        pa.month_day_nano_interval(),
        pa.dense_union([pa.field("a", pa.int8())]),
        pa.decimal256(5, 2),
        pa.dictionary(pa.int8(), pa.decimal256(50, 2)),
        pa.list_(pa.list_view(pa.int8())),
        pa.struct({"in": pa.large_list_view(pa.int8())}),
        pa.map_(pa.string(), pa.list_view(pa.int8())),
    ],
    ids=str,
)
def test_types_that_polars_does_not_have_are_refused_with_the_name_of_the_column(kind: pa.DataType) -> None:
    schema = pa.schema([("a", pa.int64()), ("odd", kind)])
    table = pa.Table.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)
    with pytest.raises(TypeError, match=r"column 'odd' is of type .*, which Polars does not have"):
        as_polars(table)
    assert polars_schema(schema) is None


def test_addresses_of_objects_are_not_taken_for_values() -> None:
    frame = pl.DataFrame({"n": [1], "o": pl.Series([object()], dtype=pl.Object)})
    with pytest.raises(TypeError, match="column 'o' holds Python objects"):
        as_arrow(frame)


KINDS = [
    *(
        pl.Int64(),
        pl.Int32(),
        pl.UInt8(),
        pl.Float32(),
        pl.String(),
        pl.Binary(),
        pl.Boolean(),
        pl.Date(),
        pl.Time(),
        pl.Null(),
    ),
    *(pl.Datetime("us"), pl.Datetime("ns"), pl.Datetime("us", "UTC"), pl.Duration("ms"), pl.Duration("us")),
    *(pl.Decimal(10, 2), pl.Decimal(10, 3), pl.Enum(["a"]), pl.Enum(["b"]), pl.Categorical()),
    *(
        pl.List(pl.Int64),
        pl.List(pl.Int32),
        pl.Array(pl.Int64, 2),
        pl.Struct({"a": pl.Int64}),
        pl.Struct({"b": pl.Int64}),
    ),
]


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS), st.booleans()), max_size=4))
def test_types_are_the_same_as_polars_has_it(pairs: list[tuple[Any, Any, bool]]) -> None:
    ones, others = [one for one, _, _ in pairs], [one if same else other for one, other, same in pairs]
    assert same_types(ones, others) == (ones == others)
    assert not same_types(ones, [*others, pl.Int64()])


def test_only_batches_that_are_alike_become_one() -> None:
    """No type, and no refusal, depends on what happens to wait together."""
    ints, floats, coded = (pl.DataFrame({"a": pl.Series([1], dtype=kind)}) for kind in (pl.Int64, pl.Float64, pl.Int8))
    table, text = pa.table({"a": [1]}), pa.table({"a": ["x"]})
    batches: list[Batch] = [ints, ints, floats, ints, coded, table, table, text, [1], ["x"], table]
    found = joined(batches)
    assert [length(each) for each in found] == [2, 1, 1, 1, 2, 1, 2, 1]
    assert [type(each) for each in found[:5]] == [*[pl.DataFrame] * 4, pa.Table]
    assert [each["a"].to_list() for each in found[:4]] == [[1, 1], [1.0], [1], [1]]  # type: ignore[call-overload,index,union-attr]
    assert found[6] == [1, "x"]
    assert joined([]) == []
