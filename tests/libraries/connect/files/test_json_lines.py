from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libraries.connect import JsonLines
from tests.timely.io.reading import chunks, read_all
from timely.errors import SourceError


def file(folder: Path, text: str, name: str = "a.jsonl") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_records_are_what_the_lines_are(tmp_path: Path) -> None:
    path = file(tmp_path, '{"a": 1}\n\n{"b": [1, {"c": null}]}\n{"a": "x"}\n')
    found = [row for _, row in read_all(JsonLines(path, as_records=True))]
    assert found == [{"a": 1}, {"b": [1, {"c": None}]}, {"a": "x"}]
    found = [row for _, row in read_all(JsonLines(path, as_records=True, columns=["a"]))]
    assert found == [{"a": 1}, {"a": None}, {"a": "x"}]


@pytest.mark.parametrize("as_records", [False, True])
def test_a_malformed_line_is_named(as_records: bool, tmp_path: Path) -> None:
    good = '{"a": 1}\n' * 20
    for bad, message in [
        ('{"a": 1\n', "line 21: this is not JSON"),
        ('{"n": 1e400}\n', "line 21: a number in it is beyond floats"),
        ("[1]\n", "line 21: this is not a JSON object"),
        ("{'a': 1}\n", "line 21: this is not JSON"),
    ]:
        path = file(tmp_path, good + bad + good)
        with pytest.raises(SourceError, match=rf"a\.jsonl, {message}"):
            read_all(JsonLines(path, as_records=as_records, block_bytes=30))


def test_a_new_field_or_type_names_the_line_and_the_way_out(tmp_path: Path) -> None:
    path = file(tmp_path, '{"a": 1}\n' * 9 + '{"a": 1, "new": 2}\n')
    with pytest.raises(SourceError, match=r"line 10: .*new.*schema="):
        read_all(JsonLines(path, block_bytes=30))
    found = read_all(JsonLines(path, block_bytes=30, schema={"new": pa.int64()}))
    assert found[-1][1] == {"new": 2, "a": 1}
    assert read_all(JsonLines(path, block_bytes=30, columns=["a"]))[-1][1] == {"a": 1}
    path = file(tmp_path, '{"a": 1}\n' * 9 + '{"a": "one"}\n')
    with pytest.raises(SourceError, match=r"line 10, field 'a': "):
        read_all(JsonLines(path, block_bytes=30))


def test_a_schema_gives_records_their_types(tmp_path: Path) -> None:
    path = file(tmp_path, '{"t": "2024-05-01 10:00:00"}\n')
    [(_, row)] = read_all(JsonLines(path, as_records=True, schema={"t": pa.timestamp("s")}))
    assert row == {"t": datetime.datetime(2024, 5, 1, 10)}


def test_an_empty_file_is_no_rows(tmp_path: Path) -> None:
    path = file(tmp_path, "")
    assert read_all(JsonLines(path)) == []
    assert read_all(JsonLines(path, as_records=True)) == []


def test_a_line_longer_than_a_block_is_read_whole(tmp_path: Path) -> None:
    path = file(tmp_path, f'{{"s": "{"x" * 1000}"}}\n{{"s": "y"}}\n')
    found = chunks(JsonLines(path, block_bytes=16).partitions(0, 1)[0])
    assert [row["s"] for c in found for row in c.data.to_pylist()] == ["x" * 1000, "y"]


def test_a_column_that_starts_with_nulls_is_text(tmp_path: Path) -> None:
    path = file(tmp_path, '{"a": 1, "b": null}\n' * 3 + '{"a": 1, "b": "x"}\n')
    assert read_all(JsonLines(path, block_bytes=20))[-1][1] == {"a": 1, "b": "x"}


LOOKS = [
    *("2024-01-01", "2024-01-01T10", "2024-01-01 10:30", "2024-01-01T10:00:00+02:00", "2024-01-01T10:00:00Z", "10:30"),
    *("20240101", "007", "1e5", "true", "null", "NaN", "", "n/a", "0001-01-01", "9999-12-31T23:59:59.999999999"),
]
texts = st.sampled_from(LOOKS) | st.dates().map(str) | st.datetimes().map(str) | st.text(max_size=4)


@st.composite
def alike(draw: st.DrawFn) -> list[dict[str, object]]:
    """Objects of one shape: what an Arrow table can hold as it is."""

    def values(depth: int) -> st.SearchStrategy[object]:
        kind = draw(st.sampled_from(["text", "text", "number", "truth", "list", "object"][: 6 if depth else 4]))
        if kind == "list":
            return st.lists(values(depth - 1), min_size=1, max_size=2)
        if kind == "object":
            return st.fixed_dictionaries({name: values(depth - 1) for name in draw(st.sets(names, min_size=1))})
        return {"text": texts, "number": st.integers(-9, 9), "truth": st.booleans()}[kind]

    names = st.sampled_from(["a", "b", "day"])
    fields = {name: values(2) for name in draw(st.sets(names, min_size=1))}
    return draw(st.lists(st.fixed_dictionaries(fields), min_size=1, max_size=8))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=alike(), block=st.integers(1, 200), typed=st.booleans())
def test_what_stands_in_quotes_is_text(rows: list[dict[str, object]], block: int, typed: bool, tmp_path: Path) -> None:
    if typed:
        rows = [{**row, "n": number} for number, row in enumerate(rows)]
    path = file(tmp_path, "".join(json.dumps(row) + "\n" for row in rows))
    schema = {"n": int} if typed else None
    assert [row for _, row in read_all(JsonLines(path, block_bytes=block, schema=schema))] == rows
    assert [row for _, row in read_all(JsonLines(path, block_bytes=block, schema=schema, as_records=True))] == rows


UTC = datetime.UTC
MEANT = [
    ("2024-02-29", datetime.date, datetime.date(2024, 2, 29)),
    ("10:30:00.25", datetime.time, datetime.time(10, 30, 0, 250_000)),
    ("10:30", pa.time32("s"), datetime.time(10, 30)),
    ("2024-02-29T10:30:00", datetime.datetime, datetime.datetime(2024, 2, 29, 10, 30)),
    ("2024-02-29 10:30", pl.Datetime("ms"), datetime.datetime(2024, 2, 29, 10, 30)),
    ("2024-02-29T10:30:00+02:00", pa.timestamp("us", "UTC"), datetime.datetime(2024, 2, 29, 8, 30, tzinfo=UTC)),
    ("1.10", pl.Decimal(10, 2), decimal.Decimal("1.10")),
    (["2024-02-29", None], pl.List(pl.Date), [datetime.date(2024, 2, 29), None]),
    (
        {"at": {"day": "2024-02-29", "hour": "10:30:00"}, "n": 1},
        pl.Struct({"at": pl.Struct({"day": pl.Date, "hour": pl.Time}), "n": pl.Int64}),
        {"at": {"day": datetime.date(2024, 2, 29), "hour": datetime.time(10, 30)}, "n": 1},
    ),
    (None, datetime.time, None),
]


@pytest.mark.parametrize(("written", "kind", "meant"), MEANT, ids=[str(each[0]) for each in MEANT])
@pytest.mark.parametrize("others", [{}, {"n": 1, "text": "2024-01-01"}])
def test_a_type_that_is_asked_for(written: object, kind: object, meant: object, others: object, tmp_path: Path) -> None:
    assert isinstance(others, dict)
    path = file(tmp_path, json.dumps({"d": written, **others}) + "\n" + json.dumps({"d": None, **others}) + "\n")
    first, second = [row for _, row in read_all(JsonLines(path, schema={"d": kind}))]
    assert first == {"d": meant, **others}
    assert second == {"d": None, **others}


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        *(
            ("x", int),
            (7, str),
            ("true", bool),
            ("29.02.2024", datetime.date),
            (17, datetime.date),
            ("24:30", datetime.time),
        ),
        *(("2024-02-29T10:30:00+02:00", datetime.datetime), ("2024-02-29T10:30:00", pa.timestamp("us", "UTC"))),
        *(("10:30:00+02:00", datetime.time), (["x"], pl.List(pl.Date)), ({"a": "x"}, pl.Struct({"a": pl.Date}))),
    ],
)
@pytest.mark.parametrize("others", [{}, {"a": 1}])
def test_a_type_that_does_not_fit_names_its_field(
    written: object, kind: object, others: object, tmp_path: Path
) -> None:
    assert isinstance(others, dict)
    path = file(tmp_path, '{"d": null}\n' + json.dumps({**others, "d": written}) + "\n")
    with pytest.raises(SourceError, match=r"a\.jsonl, line 2, field 'd': .* does not fit the type .*schema="):
        read_all(JsonLines(path, schema={"d": kind}))


def test_a_type_of_the_first_block_that_does_not_fit_later_names_its_field(tmp_path: Path) -> None:
    path = file(tmp_path, '{"a": 1, "d": 2}\n' * 9 + '{"a": 1, "d": "two", "new": 3}\n')
    with pytest.raises(
        SourceError, match=r"line 10, field 'd': 'two' does not fit the type int64, which the first block"
    ):
        read_all(JsonLines(path, block_bytes=30))


def test_a_type_that_json_does_not_have_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path, '{"d": null}\n')
    with pytest.raises(SourceError, match=r"field 'd': JSON has no values of the type duration"):
        read_all(JsonLines(path, schema={"d": datetime.timedelta}))
