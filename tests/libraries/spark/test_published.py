"""Names of runs and of files: equal for equal input, whoever wrote it and however; and an outcome that never changes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.spark.files import parquet as files
from libraries.spark.files.manifest import Manifested, ManifestEntry
from libraries.spark.files.published import Outcome, name_of, published

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.float64()))])
ROWS = st.lists(
    st.tuples(st.integers(0, 3) | st.none(), st.text(max_size=2), st.lists(st.floats(allow_nan=False), max_size=2)),
    min_size=1,
    max_size=12,
)


def table(rows: list[Any], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.table([pa.array(column, field.type) for column, field in zip(zip(*rows), schema)], schema=schema)


def run_over(parts: list[list[Any]], seed: int = 0, schema: pa.Schema = SCHEMA) -> Manifested:
    """A run over files, each with the rows of one of `parts`."""
    entries = [
        ManifestEntry("in", f"{seed}-{n}", len(rows), 100 + seed, b"", digest=files.digest_of([table(rows, schema)]))
        for n, rows in enumerate(parts)
    ]
    return 3, entries, [("in", schema.serialize().to_pybytes())], []


@settings(max_examples=20)
@given(rows=ROWS, cut=st.integers(0, 12), seed=st.integers(0, 99))
def test_name_of_a_run_tells_its_rows_however_they_were_written(rows: list[Any], cut: int, seed: int) -> None:
    name = name_of(7, run_over([rows]), [2])
    assert files.epoch_of(Path(name)) == 7
    turned = random.Random(seed).sample(rows, len(rows))
    parts = [part for part in (turned[:cut], turned[cut:]) if part]
    assert name_of(7, run_over(parts, seed), [2]) == name
    assert files.digest_of(map(table, parts)) == files.digest_of([table(rows)])


@settings(max_examples=20)
@given(rows=ROWS, other=ROWS)
def test_runs_over_other_rows_have_other_names(rows: list[Any], other: list[Any]) -> None:
    same = sorted(map(repr, rows)) == sorted(map(repr, other))
    if not same and [repr(row).replace("-0.0", "0.0") for row in (*rows, *other)] == list(map(repr, (*rows, *other))):
        assert name_of(7, run_over([rows]), []) != name_of(7, run_over([other]), [])


def test_name_of_a_run_tells_its_epochs_columns_tables_and_whom_it_tells() -> None:
    run = run_over([[(1, "a", [])]])
    renamed = pa.schema([("x", pa.int64()), *list(SCHEMA)[1:]])
    names = [
        name_of(7, run, [2]),
        name_of(8, run, [2]),
        name_of(7, run, [3]),
        name_of(7, (2, *run[1:]), [2]),
        name_of(7, (*run[:3], [("t", [])]), [2]),
        name_of(7, run_over([[(1, "a", [])]], schema=renamed), [2]),
        name_of(7, run_over([[(1, "a", [])] * 2]), [2]),
    ]
    assert len(set(names)) == len(names)
    assert files.digest_of([table([(1, "a", [])], renamed)]) != files.digest_of([table([(1, "a", [])])])


ONE = Outcome(True, [(7, "a.parquet", b"")], [[ManifestEntry("in", "b.parquet", 1, 2, b"schema", (), 3)]])


def test_whoever_comes_first_is_right(tmp_path: Path) -> None:
    path = tmp_path / "name.run"

    def late() -> Outcome:
        assert published(path, lambda: ONE) == ONE
        return Outcome(True, [(7, "mine.parquet", b"")])

    assert published(path, late) == ONE
    assert published(path, lambda: pytest.fail("it is there")) == ONE
    assert ONE.deliveries == [[(7, "a.parquet", b"")], [ManifestEntry("in", "b.parquet", 1, 2, b"schema", (), 3)]]
    assert published(tmp_path / "other.run", lambda: Outcome(False)) == Outcome(False)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["name.run", "other.run"]


def test_file_that_is_there_stays_as_it_is_and_one_that_was_cut_short_does_not_count(tmp_path: Path) -> None:
    rows = [table([(n, "a", [])]) for n in range(3)]
    path = Path(files.write_input(tmp_path, "in", rows))
    before = path.stat()
    files.write_input(tmp_path, "in", rows[::-1])
    assert path.stat() == before

    def cut_short() -> Any:
        yield rows[0]
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        files._write(tmp_path, "other", cut_short(), durable=False)
    assert not (tmp_path / "other.parquet").exists()
