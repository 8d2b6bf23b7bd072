"""One file an epoch and worker, there whole or not at all."""

from __future__ import annotations

import datetime
import gc
import json
import os
import stat
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from libraries.connect import Csv, FileSink, JsonLines, Parquet
from tests.libraries.connect.places import files_limited_to, read_only_folder
from tests.timely.io.reading import read_all
from timely.errors import SinkError

# Sockets that a Spark of another test has left are none of these tests' files, and are collected whenever that happens.
pytestmark = pytest.mark.filterwarnings("error", "ignore:unclosed <socket:ResourceWarning")

NEW_YEAR = datetime.datetime(2024, 1, 1)
FORMATS = ("jsonl", "csv", "parquet")
READERS: dict[str, Any] = {"jsonl": JsonLines, "csv": Csv, "parquet": Parquet}


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("make", [lambda rows: rows, pa.Table.from_pylist, pl.DataFrame])
def test_epochs_become_files_that_our_sources_read_back(format: Any, make: Any, tmp_path: Path) -> None:
    rows = [{"n": i, "s": f'a, "{i}"', "x": i / 4} for i in range(10)]
    writer = FileSink(tmp_path / "deep" / "out", format).open(1, 2)
    writer.write(12, make(rows[:3]))
    writer.write(13, make(rows[6:]))
    writer.write(12, make(rows[3:6]))
    assert all(name.startswith(".") for name in names(tmp_path / "deep" / "out"))
    writer.commit(12)
    writer.commit(13)
    writer.close()
    folder = tmp_path / "deep" / "out"
    assert names(folder) == [f"epoch-0000000012-w1.{format}", f"epoch-0000000013-w1.{format}"]
    found = read_all(READERS[format](folder, epoch="file"))
    assert found == [(i // 6, row) for i, row in enumerate(rows)]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("end", ["abort", "close"])
def test_abort_leaves_no_partial_file(format: Any, end: str, tmp_path: Path) -> None:
    writer = FileSink(tmp_path, format).open(0, 1)
    writer.write(1, [{"n": 1}])
    writer.commit(1)
    writer.write(2, [{"n": 2}])
    writer.write(3, [{"n": 3}])
    getattr(writer, end)()
    assert names(tmp_path) == [f"epoch-0000000001-w0.{format}"]


@pytest.mark.parametrize("format", FORMATS)
def test_what_a_killed_run_left_is_removed_and_a_new_commit_replaces_the_old(format: Any, tmp_path: Path) -> None:
    sink = FileSink(tmp_path, format)
    killed, other = sink.open(0, 2), sink.open(1, 2)
    killed.write(1, [{"n": 1}])
    killed.commit(1)
    killed.write(2, [{"n": 2}])
    other.write(2, [{"n": 9}])  # another worker's unfinished file is not touched
    again = sink.open(0, 2)
    assert names(tmp_path) == [f".epoch-0000000002-w1.{format}.part", f"epoch-0000000001-w0.{format}"]
    again.write(1, [{"n": 5}, {"n": 6}])
    again.commit(1)
    other.abort()
    assert [row for _, row in read_all(READERS[format](tmp_path))] == [{"n": 5}, {"n": 6}]
    killed.abort()


def test_records_of_any_json_kind_become_lines(tmp_path: Path) -> None:
    writer = FileSink(tmp_path).open(0, 1)
    writer.write(0, [("a", 1), {"d": datetime.date(2024, 1, 2)}, None, [1.5, "x\ny"]])
    writer.commit(0)
    lines = (tmp_path / "epoch-0000000000-w0.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [["a", 1], {"d": "2024-01-02"}, None, [1.5, "x\ny"]]
    with pytest.raises(SinkError, match=r"epoch-0000000001-w0\.jsonl: a record cannot be written as JSON.*object"):
        writer.write(1, [object()])
    writer.abort()
    assert len(names(tmp_path)) == 1


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_records_that_are_not_dicts_have_no_columns(format: Any, tmp_path: Path) -> None:
    writer = FileSink(tmp_path, format).open(0, 1)
    with pytest.raises(SinkError, match="must be dicts to become columns, this one is tuple"):
        writer.write(0, [("a", 1)])
    writer.abort()


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_schema_that_changes_within_a_file_is_refused(format: Any, tmp_path: Path) -> None:
    writer = FileSink(tmp_path, format).open(0, 1)
    writer.write(0, pa.table({"n": [1]}))
    with pytest.raises(SinkError, match="the columns changed from n to n, m"):
        writer.write(0, pa.table({"n": [1], "m": [2]}))
    with pytest.raises(SinkError, match="types changed and cannot be reconciled"):
        writer.write(0, pa.table({"n": ["one"]}))
    writer.write(0, pa.table({"n": pa.array([2], pa.int8())}))  # fits without loss
    writer.abort()
    assert names(tmp_path) == []


@pytest.mark.parametrize("format", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("first", "then"),
    [
        (pl.Series([datetime.date(2024, 1, 1)]), pl.Series([NEW_YEAR.replace(hour=23)])),
        (pl.Series(["1.25"]).cast(pl.Decimal(30, 2)), pl.Series([0.126])),
        (pl.Series([True]), pl.Series([2])),
        (pl.Series([1]), pl.Series(["007"])),
        (pl.Series([1.0], dtype=pl.Float32), pl.Series([16777217.0])),
        (pl.Series([1.5]), pl.Series(["0.10000000000000000001"]).cast(pl.Decimal(38, 20))),
        (
            pl.Series([datetime.datetime(2024, 1, 1)]),
            pl.Series([datetime.datetime(2024, 1, 1)]).dt.replace_time_zone("Europe/Berlin"),
        ),
    ],
    ids=lambda each: str(each.dtype),
)
def test_a_value_is_never_written_as_another_one(
    format: Any, first: pl.Series, then: pl.Series, tmp_path: Path
) -> None:
    writer = FileSink(tmp_path, format).open(0, 1)
    writer.write(0, first.alias("v").to_frame())
    with pytest.raises(SinkError, match="types changed and cannot be reconciled: column 'v': "):
        writer.write(0, then.alias("v").to_frame())
    writer.abort()
    given = FileSink(tmp_path, format, schema=pl.Schema({"v": first.dtype})).open(0, 1)
    with pytest.raises(SinkError, match="column 'v': "):
        given.write(0, then.alias("v").to_frame())
    given.abort()


def test_a_given_schema_holds_for_all_files(tmp_path: Path) -> None:
    schema = pa.schema({"n": pa.int32(), "s": pa.string()})
    writer = FileSink(tmp_path, "parquet", schema=schema).open(0, 1)
    writer.write(0, [{"n": 1, "s": None}])
    writer.write(1, pl.DataFrame({"s": ["x"], "n": [2]}))
    writer.write(2, [])
    for epoch in range(3):
        writer.commit(epoch)
    found = read_all(Parquet(tmp_path, epoch="file"))
    assert found == [(0, {"n": 1, "s": None}), (1, {"n": 2, "s": "x"})]
    assert len(names(tmp_path)) == 3


@pytest.mark.parametrize("format", FORMATS)
def test_dictionary_codes_are_written(format: Any, tmp_path: Path) -> None:
    writer = FileSink(tmp_path, format).open(0, 1)
    for start in (0, 3):
        words = pa.array([f"w{i % 3}" for i in range(start, start + 3)]).dictionary_encode()
        writer.write(0, pa.table({"w": words}))
    writer.commit(0)
    assert [row["w"] for _, row in read_all(READERS[format](tmp_path))] == ["w0", "w1", "w2"] * 2


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_an_epoch_that_turns_out_empty_removes_its_former_file(format: Any, tmp_path: Path) -> None:
    writer = FileSink(tmp_path, format).open(0, 1)
    writer.write(4, [{"n": 1}])
    writer.commit(4)
    writer.write(4, [])
    writer.commit(4)
    assert names(tmp_path) == []


def test_a_commit_syncs_the_file_then_renames_it_then_syncs_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def record_replace(old: Path, new: Path) -> None:
        done.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    writer = FileSink(tmp_path).open(0, 1)
    writer.write(0, [1])
    writer.commit(0)
    assert done == ["file", "rename", "folder"]


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    for folder in (tmp_path / "out", tmp_path / "out" / "below"):
        with pytest.raises(SinkError, match="there is a file where the folder should be"):
            FileSink(folder).open(0, 1)


def test_a_read_only_folder_is_refused_before_any_work() -> None:
    with read_only_folder() as folder:
        with pytest.raises(SinkError, match="may not write here"):
            FileSink(folder).open(0, 1)
        with pytest.raises(SinkError, match="may not write here"):
            FileSink(folder / "new").open(0, 1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("format", FORMATS)
def test_a_full_disk_says_so_and_leaves_nothing(format: Any, tmp_path: Path) -> None:
    fill_the_disk(format, tmp_path)
    gc.collect()  # nothing that is left behind may complain
    assert names(tmp_path) == []


def fill_the_disk(format: Any, folder: Path) -> None:
    writer = FileSink(folder, format).open(0, 1)
    rows = pa.table({"s": [f"{i * 2654435761 % 1_000_003} something" for i in range(20_000)]})

    def write_all() -> None:
        for _ in range(5):
            writer.write(7, rows)
        writer.commit(7)

    with files_limited_to(1 << 16), pytest.raises(SinkError, match=r"epoch-0000000007-w0.*Free some space"):
        write_all()
    writer.abort()


def test_a_folder_that_vanishes_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    writer = FileSink(folder).open(0, 1)
    folder.rmdir()
    with pytest.raises(SinkError, match="The folder is gone"):
        writer.write(0, [1])


def test_a_format_that_does_not_exist_is_refused_at_once() -> None:
    with pytest.raises(SinkError, match="jsonl, csv, parquet"):
        FileSink("x", "xml")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "ä"])
def test_a_name_that_cannot_begin_the_names_of_files_is_refused_at_once(name: str) -> None:
    with pytest.raises(SinkError, match="letters, digits"):
        FileSink("x", name=name)


def test_files_of_a_named_sink_begin_with_its_name(tmp_path: Path) -> None:
    (tmp_path / ".other-epoch-0000000001-w0.jsonl.part").touch()
    (tmp_path / ".epoch-epoch-0000000001-w0.jsonl.part").touch()
    writer = FileSink(tmp_path, name="epoch").for_job("job", "sink").open(0, 1)
    writer.write(0, [1])
    writer.commit(0)
    FileSink(tmp_path).for_job("job", "another").open(0, 1)
    assert sorted(os.listdir(tmp_path)) == [
        ".falkirk-epoch-job",
        ".falkirk-job",
        ".other-epoch-0000000001-w0.jsonl.part",
        "epoch-epoch-0000000000-w0.jsonl",
    ]


def test_nanoseconds_are_written_as_json_where_they_are_microseconds(tmp_path: Path) -> None:
    whole = pl.DataFrame({"at": [NEW_YEAR], "for": [datetime.timedelta(seconds=1)]}).cast(
        {"at": pl.Datetime("ns"), "for": pl.Duration("ns")}
    )
    writer = FileSink(tmp_path, "jsonl").open(0, 1)
    writer.write(0, whole)
    writer.commit(0)
    assert [json.loads(line) for path in tmp_path.iterdir() for line in path.read_text().splitlines()] == [
        {"at": "2024-01-01T00:00:00", "for": "PT1S"}
    ]
    with pytest.raises(SinkError, match="column 'at' has nanoseconds, and JSON lines have microseconds"):
        writer.write(1, whole.with_columns(pl.col("at") + pl.duration(nanoseconds=1)))
    writer.abort()
