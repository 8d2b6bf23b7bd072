"""Columns through the codec: the kind and the types stay, nothing is copied that can be viewed."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from timely.data.batch import Batch
from timely.data.codec import decode_batch, encode_batch
from timely.errors import CodecError


def through(batch: Batch) -> Any:
    header, [payload] = encode_batch(batch)
    return decode_batch(header, memoryview(payload))


TABLE = pa.table(
    {
        "int": pa.array([1, None, 3], pa.int16()),
        "float": [1.5, float("inf"), None],
        "text": pa.array(["a", None, "c"]),
        "large": pa.array(["a", None, "c"], pa.large_string()),
        "view": pa.array(["a", None, "a text longer than twelve"], pa.string_view()),
        "coded": pa.array(["x", None, "x"]).dictionary_encode(),
        "time": pa.array([dt.datetime(2024, 1, 1), None, None], pa.timestamp("us", "Europe/Rome")),
        "money": pa.array([Decimal("1.10"), None, None]),
        "list": pa.array([[1], None, []]),
        "struct": pa.array([{"a": 1}, None, {"a": None}]),
        "nulls": pa.nulls(3),
    }
)


@pytest.mark.parametrize(
    "table", [TABLE, TABLE.slice(1, 1), TABLE.slice(0, 0), pa.concat_tables([TABLE, TABLE]), TABLE.select([])]
)
def test_table_comes_back_with_its_schema(table: pa.Table) -> None:
    back = through(table)
    assert isinstance(back, pa.Table)
    assert back.schema.equals(table.schema, check_metadata=True)
    assert back.equals(table)


def test_chunks_with_different_dictionaries_come_back() -> None:
    parts = [pa.table({"w": pa.array(words).dictionary_encode()}) for words in (["a", "b"], ["c", "b"], [None, "a"])]
    table = pa.concat_tables(parts)
    assert through(table)["w"].to_pylist() == ["a", "b", "c", "b", None, "a"]
    assert pa.types.is_dictionary(through(table).schema.field("w").type)


def test_slice_of_a_column_with_a_large_dictionary_travels_light() -> None:
    words = pa.array([f"word{n}" for n in range(10_000)]).dictionary_encode()
    part = pa.table({"w": words}).slice(5_000, 3)
    _, [payload] = encode_batch(part)
    assert len(memoryview(payload)) < 2_000
    assert through(part)["w"].to_pylist() == ["word5000", "word5001", "word5002"]
    assert through(part).schema.equals(part.schema)


def test_decoded_columns_view_the_payload() -> None:
    header, [payload] = encode_batch(pa.table({"a": np.arange(1000)}))
    received = bytearray(memoryview(payload))
    start = pa.py_buffer(received).address
    column = decode_batch(header, memoryview(received))["a"].chunk(0)  # type: ignore[call-overload]
    assert start <= column.buffers()[1].address < start + len(received)


def test_unaligned_payload_is_read_all_the_same() -> None:
    header, [payload] = encode_batch(TABLE)
    shifted = memoryview(b"???" + bytes(memoryview(payload)))[3:]
    assert decode_batch(header, shifted).equals(TABLE)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "series",
    [
        pl.Series("a", [1, None], pl.Int8),
        pl.Series("a", [1, None], pl.UInt64),
        pl.Series("a", [1.5, None], pl.Float32),
        pl.Series("a", ["x", None, "a text longer than twelve"]),
        pl.Series("a", ["x", None], pl.Categorical),
        pl.Series("a", ["x", None], pl.Enum(["y", "x"])),
        pl.Series("a", [b"x", None]),
        pl.Series("a", [True, None]),
        pl.Series("a", [dt.date(2024, 1, 1), None]),
        pl.Series("a", [dt.time(1), None]),
        pl.Series("a", [1, None], pl.Datetime("ms", "Asia/Tokyo")),
        pl.Series("a", [1, None], pl.Duration("ns")),
        pl.Series("a", [Decimal("1.5"), None], pl.Decimal(10, 2)),
        pl.Series("a", [None, None]),
        pl.Series("a", [[1], None, []]),
        pl.Series("a", [[1, 2], None], pl.Array(pl.Int8, 2)),
        pl.Series("a", [{"b": 1}, {"b": None}]),
    ],
    ids=lambda series: str(series.dtype),
)
def test_frame_comes_back_with_its_schema(series: pl.Series) -> None:
    for frame in (
        series.to_frame(),
        series.to_frame().slice(1),
        series.to_frame().clear(),
        pl.concat([series.to_frame()] * 2),
    ):
        back = through(frame)
        assert isinstance(back, pl.DataFrame)
        assert back.schema == frame.schema
        assert back.equals(frame)


def test_frame_of_python_objects_is_refused_by_column() -> None:
    with pytest.raises(CodecError, match="column 'o'"):
        encode_batch(pl.DataFrame({"o": pl.Series([object()], dtype=pl.Object)}))


def test_frame_of_a_type_that_arrow_lacks_is_refused() -> None:
    with pytest.raises(CodecError, match="cast it first"):
        encode_batch(pl.DataFrame({"a": pl.Series([1], dtype=pl.Int128)}))


@pytest.mark.parametrize("cut", [0, 3, 40, 200])
def test_cut_off_columns_are_an_error(cut: int) -> None:
    header, [payload] = encode_batch(TABLE)
    with pytest.raises(CodecError):
        decode_batch(header, memoryview(payload)[:cut])


def test_unknown_header_is_an_error() -> None:
    with pytest.raises(CodecError, match="another version"):
        decode_batch(b"\x92\x09\xa7records", b"")


def test_what_is_no_batch_is_refused() -> None:
    with pytest.raises(CodecError, match="not tuple"):
        encode_batch((1, 2))  # type: ignore[arg-type]
