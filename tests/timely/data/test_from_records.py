"""Records that become columns, or rows of a file, a table or a database, have the values that they had, or are refused."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import re
import sqlite3
from collections import namedtuple
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import falkirk
from falkirk import Batches, Dataflow, FalkirkError, FileSink, Iterable, SqliteSink, agg
from timely.data.from_records import frame_as, frame_of_records, table_of_records

MANY = 101  # of as many Polars looks at all but the last

wide = st.sampled_from([2**53 + 1, 2**63 - 1, -(2**63), 2**63, 10**25])
numbers = st.none() | st.integers(-5, 5) | wide | st.sampled_from([2.75, -0.5, 1e300, math.nan, math.inf])
texts = st.none() | st.sampled_from(["", "x", "007", "1.50", " 7", "\udcff"])
moments = st.sampled_from(
    [
        dt.datetime(2024, 1, 2, 3, 4, 5, 6),
        dt.datetime(2024, 1, 2),
        dt.datetime(2024, 1, 2, tzinfo=dt.UTC),
        dt.date(2024, 1, 2),
        dt.time(3, 4, 5),
        dt.timedelta(microseconds=1),
    ]
)
single = numbers | texts | st.booleans() | moments | st.sampled_from([b"", b"\0x", Decimal("1.25"), Decimal("0.125")])
values = single | st.lists(single, max_size=2) | st.dictionaries(st.sampled_from("xy"), single, max_size=2)
kinds = st.sampled_from(
    [numbers, texts, moments, single, values, st.booleans() | numbers, st.lists(numbers, max_size=2)]
)


@st.composite
def drawn(draw: st.DrawFn, of: Any = kinds) -> list[dict[str, Any]]:
    """Records, most of them of the same fields, and columns with values mostly of one kind; often the odd one comes late."""
    fields = {name: draw(of) for name in draw(st.sampled_from(["a", "ab", "abc"]))}
    record = st.fixed_dictionaries(fields)
    if draw(st.integers(0, 4)) == 0:
        record = record | st.fixed_dictionaries({}, optional={**fields, "d": single})
    first = [draw(record)] * draw(st.sampled_from([0, 0, 1, MANY - 1]))
    return first + draw(st.lists(record, min_size=1, max_size=4))


def equal(given: Any, held: Any) -> bool:
    """True if `held` is the value `given`, as far as Python can tell; what lacks in nested ones is None."""
    if isinstance(given, dict) and isinstance(held, dict):
        return all(equal(given.get(key), held.get(key)) for key in {**given, **held})
    if isinstance(given, list) and isinstance(held, list):
        return len(given) == len(held) and all(map(equal, given, held))
    if isinstance(given, dt.date) and type(given) is dt.date and isinstance(held, dt.datetime):
        return equal(dt.datetime(given.year, given.month, given.day), held)
    return bool(given == held) or (given != given and held != held)


def rows_of(result: falkirk.Result, name: str = "out") -> list[dict[str, Any]]:
    return [row for _, batch in result.captured(name) for row in pl.DataFrame(batch).to_dicts()]


def same_rows(records: list[dict[str, Any]], rows: list[dict[str, Any]]) -> bool:
    return len(records) == len(rows) and all(
        record.keys() == row.keys() and equal(record, row) for record, row in zip(records, rows)
    )


def refused_in_words(error: FalkirkError, operator: str) -> None:
    """The error names the operator, the line, and what does not fit."""
    assert re.search(rf"{operator}\(\S*test_from_records.py:\d+\).*(column|field|SQLite)", str(error), re.DOTALL), error
    assert "inside Falkirk" not in str(error)


late_fraction = [{"v": 1}] * (MANY - 1) + [{"v": 2.75}]
late_field = [{"v": 1}] * (MANY - 1) + [{"v": 1, "w": 2}]


@given(records=drawn(), batch=st.sampled_from([1, 2, 1000]), typed=st.sampled_from([None, int, float, str, pl.Float32]))
@example(records=late_fraction, batch=1000, typed=None)
@example(records=late_fraction, batch=1000, typed=int)
@example(records=late_field, batch=1000, typed=None)
@example(records=late_field, batch=1000, typed=int)
@example(records=[{"v": 2**53 + 1}, {"v": 0.5}], batch=2, typed=None)
def test_columns_hold_the_records_or_refuse_them(records: list[dict[str, Any]], batch: int, typed: Any) -> None:
    flow = Dataflow()
    types = None if typed is None else dict.fromkeys(records[0], typed)
    flow.source("in", Iterable(records, batch=batch)).to_columns(types, name="made").capture("out")
    try:
        rows = rows_of(falkirk.run(flow))
    except FalkirkError as error:
        refused_in_words(error, r"to_columns 'made' ")
        return
    if typed is pl.Float32:
        both = [(r[name], value) for r, s in zip(records, rows) for name, value in s.items()]
        assert all((a is None) == (b is None) for a, b in both)
        assert all(math.isclose(a, b, rel_tol=1e-6) for a, b in both if isinstance(a, int | float) and math.isfinite(a))
    else:
        assert same_rows(records, rows)


@given(
    numbers=st.lists(st.none() | st.integers(-9, 9) | st.sampled_from([0.25, -2.75]), min_size=1, max_size=9),
    before=st.sampled_from([0, MANY - 1]),
    batch=st.sampled_from([1, 3, 1000]),
    typed=st.booleans(),
)
@example(numbers=[2.75], before=MANY - 1, batch=1000, typed=False)
def test_a_sum_of_records_as_columns_does_not_depend_on_batches(
    numbers: list[float | None], before: int, batch: int, typed: bool
) -> None:
    numbers = [1] * before + numbers
    flow = Dataflow()
    rows = flow.source("in", Iterable([{"v": n} for n in numbers], batch=batch)).to_columns(
        {"v": float} if typed else None
    )
    rows.agg(s=agg.sum("v")).capture("out")
    assert rows_of(falkirk.run(flow))[-1]["s"] == sum(n for n in numbers if n is not None)


def written_files(records: list[dict[str, Any]], folder: Path, schema: Any) -> list[dict[str, Any]]:
    flow = Dataflow()
    flow.source("in", Iterable(records)).to(FileSink(folder / "out", format="parquet", schema=schema), name="sink")
    falkirk.run(flow)
    [file] = (folder / "out").glob("*.parquet")
    return pl.read_parquet(file, hive_partitioning=False).to_dicts()


def plain(value: Any) -> Any:
    """A value as SqliteSink says that it writes it."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def written_rows(records: list[dict[str, Any]], folder: Path, columns: list[str] | None) -> list[dict[str, Any]]:
    flow = Dataflow()
    flow.source("in", Iterable(records, batch=3)).to(SqliteSink(folder / "out.db", "t", columns), name="sink")
    falkirk.run(flow)
    with closing(sqlite3.connect(folder / "out.db")) as database:
        found = database.execute("SELECT * FROM t ORDER BY rowid")
        return [dict(zip([each[0] for each in found.description], row)) for row in found]


@pytest.mark.parametrize("kind", ["files", "rows"])
@given(records=drawn(), typed=st.booleans())
@example(records=[{"a": 1}, {"a": 2, "b": 3}], typed=False)
@example(records=[{"a": 1}, {"a": 2, "b": 3}], typed=True)
@example(records=[{"a": 1, "b": 3}, {"a": 2}], typed=False)
@example(records=[{"a": 1}, {"a": "007"}], typed=False)
@example(records=[{"a": 1}, {"a": Decimal("1.25")}], typed=False)
@example(records=[{"a": "x"}, {"a": 0.1 + 0.2}], typed=False)
@example(records=[{"a": 0.5}, {"a": 2**53 + 1}], typed=False)
@example(records=[{"a": 0.5}, {"a": math.nan}], typed=False)
def test_what_sinks_write_are_the_records_or_they_are_refused(
    tmp_path_factory: pytest.TempPathFactory, kind: str, records: list[dict[str, Any]], typed: bool
) -> None:
    folder = tmp_path_factory.mktemp("written")
    names = list(records[0])
    try:
        if kind == "files":
            rows = written_files(records, folder, dict.fromkeys(names, pa.int64()) if typed else None)
        else:
            rows = written_rows(records, folder, names if typed and names else None)
    except FalkirkError as error:
        refused_in_words(error, r"sink 'sink' ")
        return
    if kind == "rows":
        chosen = names if typed and names else None  # then others are left out
        records = [
            {name: plain(value) for name, value in r.items() if chosen is None or name in chosen} for r in records
        ]
    assert same_rows(records, rows)
    if kind == "rows":
        held = [type(value) for row in rows for value in row.values() if isinstance(value, str)]
        assert len(held) == sum(isinstance(value, str) for record in records for value in record.values())


def test_a_field_that_comes_later_is_refused_by_csv_too_and_by_later_batches_of_a_database(tmp_path: Path) -> None:
    flow = Dataflow()
    flow.source("in", Iterable([{"a": 1}, {"a": 2, "b": 3}])).to(FileSink(tmp_path / "out", format="csv"))
    with pytest.raises(FalkirkError, match=r"a field 'b', and the first record of its batch has only 'a'"):
        falkirk.run(flow)
    frames = [pl.DataFrame({"a": [1]}), pl.DataFrame({"a": [2], "b": [3]})]
    flow = Dataflow()
    flow.columns("in", Batches(frames)).to(SqliteSink(tmp_path / "out.db", "t"))
    with pytest.raises(FalkirkError, match=r"a column 'b', and began with 'a' only"):
        falkirk.run(flow)
    flow = Dataflow()
    flow.columns("in", Batches(frames)).to(SqliteSink(tmp_path / "chosen.db", "t", ["a"]))
    falkirk.run(flow)


@dataclasses.dataclass
class Point:
    x: int
    y: float


Pair = namedtuple("Pair", "x y")


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("records", "types", "rows"),
    [
        ([(1, "a"), [2, "b"]], {"x": pl.Int8, "y": pl.String}, [(1, "a"), (2, "b")]),
        ([(1, 2.5), (2, 3)], None, [(1, 2.5), (2, 3.0)]),
        ([Pair(1, 2.5)], None, [(1, 2.5)]),
        ([Point(1, 2.5)], None, [(1, 2.5)]),
        ([1, 2], {"n": pl.Int64}, [(1,), (2,)]),
        ([{"n": 2.0}], {"n": pl.Int64}, [(2,)]),
        ([{"n": 3}], {"n": pl.Float64}, [(3.0,)]),
        ([{"n": np.int32(3)}, {"n": None}], None, [(3,), (None,)]),
        ([{"n": np.float64(0.1)}], {"n": pl.Float32}, [(pytest.approx(0.1),)]),
        ([{"c": Colour.RED}], {"c": pl.Enum(["red"])}, [("red",)]),
        ([{"c": "a"}, {"c": None}], {"c": pl.Categorical}, [("a",), (None,)]),
        ([{"at": 1_000_000}], {"at": pl.Datetime("us")}, [(dt.datetime(1970, 1, 1, 0, 0, 1),)]),
        ([{"at": dt.date(2024, 1, 2)}], {"at": pl.Datetime("us")}, [(dt.datetime(2024, 1, 2),)]),
        ([{"l": (1, 2)}, {"l": []}], None, [([1, 2],), ([],)]),
        ([{"s": {"x": 1}}, {"s": {"x": None}}], None, [({"x": 1},), ({"x": None},)]),
        ([{"n": None}], None, [(None,)]),
    ],
)
def test_records_of_all_kinds_become_rows(records: list[Any], types: Any, rows: list[Any]) -> None:
    assert frame_of_records(records, types).rows() == rows


@pytest.mark.parametrize(
    ("records", "types", "message"),
    [
        (
            [{"v": 1}, {"v": 2.75}],
            {"v": pl.Int64},
            r"column 'v' is of type Int64, which holds 2.75 as 2: convert it before",
        ),
        ([{"v": 300}], {"v": pl.Int8}, "column 'v'.*300"),
        ([{"v": 1}, {"v": "x"}], None, "column 'v'"),
        ([{"v": 1}], {"v": pl.String}, "column 'v'"),
        ([{"v": 1e300}], {"v": pl.Float32}, "column 'v' is of type Float32, which holds 1e.300 as inf"),
        ([{"v": Decimal("1.234")}], {"v": pl.Decimal(10, 2)}, "column 'v'.*1.23"),
        ([{"v": dt.datetime(2024, 1, 2, 3)}], {"v": pl.Date}, "column 'v'"),
        ([{"v": dt.datetime(2024, 1, 2, 3, 4, 5, 6)}], {"v": pl.Datetime("ms")}, "column 'v'"),
        ([{"v": object()}], None, "column 'v': columns do not hold object"),
        ([{"v": {"x": 1}}, {"v": {"y": 2}}] * 60, {"v": pl.Struct({"x": pl.Int64})}, "column 'v'"),
        ([{"v": [1]}, {"v": [2.75]}], {"v": pl.List(pl.Int64)}, "column 'v'"),
        ([{"v": 1}, {"w": 1}], None, "a field 'w', and the first record of its batch has only 'v'"),
        ([{"v": 1}, {}], None, "no field 'v', which the first record of its batch has"),
        ([{"v": 1}], {"v": pl.Int64, "w": pl.Int64}, "no field 'w', which the types name"),
        ([{1: 1}], None, "names of columns are text, and a record has the field 1"),
        ([{"v": 1}, (1,)], None, r"records must be dicts, as the first one is.*\(1,\) is none"),
        ([(1, 2), (3,)], None, r"a tuple of 2 values \('column_0', 'column_1'\), and \(3,\) is none"),
        ([1, 2], {"a": pl.Int64, "b": pl.Int64}, "a dict, or a tuple of 2 values, and 1 is neither"),
    ],
)
def test_records_that_do_not_fit_are_refused_with_what_is_wrong(records: list[Any], types: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        frame_of_records(records, types)


class Riddle:
    def __repr__(self) -> str:
        raise RuntimeError


def test_a_value_that_cannot_be_shown_does_not_hide_the_column() -> None:
    for make in (frame_of_records, table_of_records):
        with pytest.raises(TypeError, match=r"column 'v'.*Riddle"):
            make([{"v": Riddle()}])
    with pytest.raises(TypeError, match="a field 'w'"):
        frame_of_records([{"v": 1}, {"v": 1, "w": Riddle()}])


SCHEMAS: list[tuple[Callable[[], pl.DataFrame], dict[str, Any], str | None]] = [
    (lambda: pl.DataFrame({"v": [1.0, None]}), {"v": pl.Int64}, None),
    (lambda: pl.DataFrame({"v": ["7"]}), {"v": pl.Int64}, None),
    (lambda: pl.DataFrame({"v": [0.1]}), {"v": pl.Float32}, None),
    (lambda: pl.DataFrame({"v": [2.75]}), {"v": pl.Int64}, "column 'v' is of type Int64, which holds 2.75 as 2"),
    (
        lambda: pl.DataFrame({"v": [2**53 + 1]}),
        {"v": pl.Float64},
        "column 'v' is of type Float64, which holds 9007199254740993",
    ),
    (lambda: pl.DataFrame({"v": [dt.datetime(2024, 1, 2, 3)]}), {"v": pl.Date}, "column 'v' is of type Date"),
    (lambda: pl.DataFrame({"v": [1], "w": [2]}), {"v": pl.Int64}, "the types name 'v', and the columns are 'v', 'w'"),
]


@pytest.mark.parametrize(("make", "types", "message"), SCHEMAS)
def test_columns_of_other_types_are_cast_or_refused(make: Any, types: Any, message: str | None) -> None:
    flow = Dataflow()
    flow.source("in", Batches([make()])).to_columns(types, name="made").capture("out")
    if message is None:
        falkirk.run(flow)
        assert frame_as(make(), types).schema == types
        return
    with pytest.raises(FalkirkError, match=rf"(?s)to_columns 'made' \(.*test_from_records.*{message}"):
        falkirk.run(flow)


@settings(max_examples=30)
@given(records=drawn())
def test_tables_of_records_hold_what_frames_of_them_hold(records: list[dict[str, Any]]) -> None:
    try:
        table = table_of_records(records)
    except TypeError:
        return
    assert same_rows(records, table.to_pylist())
