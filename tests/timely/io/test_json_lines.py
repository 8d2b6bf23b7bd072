from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from tests.timely.io.reading import chunks, read_all
from timely.errors import SourceError
from timely.io import JsonLines


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
    with pytest.raises(SourceError, match=r"line 10: "):
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
