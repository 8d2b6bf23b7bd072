"""Numbers and text of files: exact, or refused with the line or column; never other ones in silence."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import falkirk
from falkirk import Batches, Csv, Dataflow, FileSink, Iterable, JsonLines

WIDE = st.sampled_from([-(2**63), -(2**63) - 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**25])
integers = st.lists(st.integers(-5, 5) | WIDE, min_size=1, max_size=5)


def read(source: Any) -> list[Any]:
    flow = Dataflow()
    stream = flow.source("file", source) if source.as_records else flow.columns("file", source).to_records()
    stream.capture("out")
    return [record["a"] for _, batch in falkirk.run(flow).captured("out") for record in batch]


@pytest.mark.parametrize("kind", ["csv", "json", "records"])
@given(numbers=integers)
@settings(max_examples=20)
def test_integers_are_exact_or_refused(tmp_path_factory: Any, kind: str, numbers: list[int]) -> None:
    folder: Path = tmp_path_factory.mktemp("numbers")
    if kind == "csv":
        (folder / "a.csv").write_text("".join(f"{line}\n" for line in ["a", *numbers]))
        source: Any = Csv(folder / "a.csv")
    else:
        (folder / "a.jsonl").write_text("".join(f'{{"a": {n}}}\n' for n in numbers))
        source = JsonLines(folder / "a.jsonl", as_records=kind == "records")
    if kind == "records" or all(-(2**63) <= n < 2**63 for n in numbers):
        found = read(source)
        assert found == numbers
        assert set(map(type, found)) == {int}
        return
    with pytest.raises(falkirk.FalkirkError, match=r"'a': -?\d+ is beyond 64-bit integers.*decimal128\(38, 0\)"):
        read(source)
    source = type(source)(source.paths if hasattr(source, "paths") else folder / f"a.{'csv' if kind == 'csv' else 'jsonl'}",
                          schema={"a": pa.decimal128(38, 0)})  # fmt: skip
    assert list(map(int, read(source))) == numbers


def test_integers_among_floats_are_floats(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1.5\n99999999999999999999\n")
    (tmp_path / "b.csv").write_text("a\n1e3\n99999999999999999999\n")
    (tmp_path / "a.jsonl").write_text('{"a": 1.5}\n{"a": 99999999999999999999}\n')
    assert read(Csv(tmp_path / "a.csv")) == read(JsonLines(tmp_path / "a.jsonl")) == [1.5, 1e20]
    assert read(Csv(tmp_path / "b.csv")) == [1e3, 1e20]


def test_integers_inside_lists_and_objects_are_looked_at_too(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": {"b": [1, 18446744073709551616]}}\n')
    with pytest.raises(falkirk.FalkirkError, match=r"field 'a.b.\[\]': 18446744073709551616 is beyond"):
        read(JsonLines(tmp_path / "a.jsonl"))


@pytest.mark.parametrize("as_records", [False, True])
@pytest.mark.parametrize(
    "line",
    [b'{"a": "\xff"}', b'{"\xff": 1, "a": 2}', b'{"a": "\xed\xa0\x80"}', b'{"a": "\\ud800"}', b'{"a": "\\udc00x"}'],
)
def test_what_is_not_unicode_is_refused_at_its_line(tmp_path: Path, as_records: bool, line: bytes) -> None:
    for before in (b'{"a": "fine"}\n', b'{"a": "caf\xc3\xa9"}\n'):
        (tmp_path / "a.jsonl").write_bytes(before * 3 + line + b"\n")
        with pytest.raises(falkirk.FalkirkError, match=r"a\.jsonl, line 4: "):
            read(JsonLines(tmp_path / "a.jsonl", as_records=as_records))


odd = st.sampled_from([math.nan, math.inf, -math.inf])
values = st.recursive(
    st.none() | st.floats() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2) | st.tuples(inner)
    ),
    max_leaves=6,
)


def finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    return all(map(finite, value)) if isinstance(value, list | tuple) else True


@given(value=values)
@settings(max_examples=40)
def test_numbers_that_json_lacks_are_refused_and_all_others_written(tmp_path_factory: Any, value: Any) -> None:
    folder = tmp_path_factory.mktemp("out")
    flow = Dataflow()
    flow.source("in", Iterable([{"a": value}])).to(FileSink(folder))
    if not finite(value):
        with pytest.raises(falkirk.FalkirkError, match="a number that JSON does not have"):
            falkirk.run(flow)
        return
    falkirk.run(flow)
    [line] = [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert json.loads(line) == json.loads(json.dumps({"a": value}))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_columns_of_numbers_that_json_lacks_are_refused(tmp_path: Path, number: float) -> None:
    for frame in (pl.DataFrame({"a": [1.0, number]}), pl.DataFrame({"a": [[1.0], [number]]})):
        flow = Dataflow()
        flow.columns("in", Batches([frame])).to(FileSink(tmp_path / "out"))
        with pytest.raises(falkirk.FalkirkError, match=r"a number that JSON does not have.*fill_nan\(None\)"):
            falkirk.run(flow)
    flow = Dataflow()
    flow.columns("in", Batches([pl.DataFrame({"a": [1.0, None]})])).to(FileSink(tmp_path / "fine"))
    falkirk.run(flow)
