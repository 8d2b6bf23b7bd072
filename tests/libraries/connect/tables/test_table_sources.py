"""Delta and Iceberg tables as input: a version is an epoch, whole, once, and the same whenever it is read."""

from __future__ import annotations

import datetime as dt
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import StringType

import falkirk
from libraries.connect import Delta
from tests.libraries.connect.tables.lakes import LAKES, DeltaLake, IcebergLake, Lake
from tests.timely.io.reading import check_seek_anywhere, chunks, read_all, rows
from timely.errors import SourceError
from timely.io.interface import Chunk, Wait

FIRST = {"delta": 0, "iceberg": 1}
"""The number of the first version."""


@pytest.fixture(params=LAKES, ids=lambda kind: kind.name)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    made: Lake = request.param(tmp_path)
    return made


def frame(number: int) -> pl.DataFrame:
    return pl.DataFrame({"version": [number] * 3, "i": [0, 1, 2]})


def filled(lake: Lake, versions: int) -> int:
    """Appends so many versions, and returns the number of the first."""
    for number in range(versions):
        lake.append(frame(number))
    return FIRST[lake.name]


def read(source: Any, workers: int = 1) -> Counter[Any]:
    return Counter((epoch, *row.values()) for epoch, row in read_all(source, workers))


def expected(first: int, *versions: int) -> Counter[Any]:
    return Counter((first + number, number, i) for number in versions for i in range(3))


def test_each_version_is_an_epoch_of_what_it_adds(lake: Lake) -> None:
    first = filled(lake, 4)
    for workers in (1, 3):
        assert read(lake.source(), workers) == expected(first, 0, 1, 2, 3)
        assert read(lake.source(after=first + 1), workers) == expected(first, 2, 3)
        whole = Counter((first + 2, number, i) for number in range(3) for i in range(3))
        assert read(lake.source(start=first + 2), workers) == whole + expected(first, 3)
    assert read(lake.source(after=first + 3)) == Counter()
    assert [row for _, row in read_all(lake.source(columns=["i"], as_records=True))][:3] == [{"i": i} for i in range(3)]


def test_reading_goes_on_from_any_position(lake: Lake) -> None:
    first = filled(lake, 3)
    for options in ({}, {"start": first + 1}, {"after": first}):
        check_seek_anywhere(lake.source(**options), workers=2)


def test_files_of_many_pieces_are_read_piece_by_piece(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    small = deltalake.WriterProperties(max_row_group_size=10)
    for number in range(2):
        table = pl.DataFrame({"n": range(number * 45, number * 45 + 45)}).to_arrow()
        deltalake.write_deltalake(lake.path, table, mode="append", writer_properties=small)
    found = chunks(lake.source().partitions(0, 1)[0])
    assert [(chunk.epoch, len(rows(chunk.data)), chunk.closes) for chunk in found] == [
        (number, size, size == 5) for number in range(2) for size in (10, 10, 10, 10, 5)
    ]
    check_seek_anywhere(lake.source())


def test_compaction_adds_nothing(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    filled(lake, 3)
    deltalake.DeltaTable(lake.path).optimize.compact()
    lake.append(frame(4))
    assert read(lake.source()) == expected(0, 0, 1, 2, 4)
    state = Counter((3, number, i) for number in range(3) for i in range(3))
    assert read(lake.source(start=3)) == state + expected(0, 4)


def test_it_follows_a_table_that_grows_and_each_version_is_over_at_once(lake: Lake) -> None:
    first = filled(lake, 1)
    [partition] = lake.source(follow=True, poll_seconds=0.5).partitions(0, 1)
    for number in range(3):
        chunk = partition.read()
        assert isinstance(chunk, Chunk)
        assert (chunk.epoch, chunk.closes, len(rows(chunk.data))) == (first + number, True, 3)
        assert partition.read() == Wait(0.5)
        lake.append(frame(number + 1))
    ahead = lake.source(start=first + 7, follow=True).partitions(0, 1)[0]
    assert isinstance(ahead.read(), Wait)


def test_the_end_is_the_same_for_all_workers_and_whoever_reads_again(lake: Lake, tmp_path: Path) -> None:
    """Otherwise one worker would read half a version, and a job that has seen the end would be told more."""

    class Folder:
        durable = True

        def note(self, text: str) -> None:
            raise AssertionError(text)

        def folder(self, name: str) -> Path:
            (tmp_path / name).mkdir(exist_ok=True)
            return tmp_path / name

    first = filled(lake, 2)
    early = lake.source().with_files(Folder(), "in").partitions(0, 2)
    filled(lake, 2)
    late = lake.source().with_files(Folder(), "in").partitions(1, 2)
    found = [chunk for partition in (*early, *late) for chunk in chunks(partition)]
    assert {chunk.epoch for chunk in found} == {first, first + 1}
    assert sum(len(rows(chunk.data)) for chunk in found) == 6
    (tmp_path / "in" / "upto").write_text("x")
    with pytest.raises(SourceError, match="a file of the job, is damaged"):
        lake.source().with_files(Folder(), "in").partitions(0, 1)


def test_columns_are_those_of_the_version(lake: Lake) -> None:
    first = filled(lake, 1)
    if isinstance(lake, DeltaLake):
        table = frame(1).with_columns(more=pl.lit("x")).to_arrow()
        deltalake.write_deltalake(lake.path, table, mode="append", schema_mode="merge")
    else:
        with lake.table().update_schema() as update:
            update.add_column("more", StringType())
        lake.append(frame(1).with_columns(more=pl.lit("x")))
    lake.append(frame(2).with_columns(more=pl.lit("y")))
    found = chunks(lake.source().partitions(0, 1)[0])
    assert [chunk.data.column_names for chunk in found] == [["version", "i"], *[["version", "i", "more"]] * 2]
    assert (first + 1, {"version": 0, "i": 1, "more": None}) in read_all(lake.source(start=first + 1))
    partition = lake.source(columns=["more"]).partitions(0, 1)[0]
    with pytest.raises(SourceError, match=r"there is no column 'more'. It has: 'version', 'i'"):
        chunks(partition)
    partition.seek([first])
    assert [row for chunk in chunks(partition) for row in rows(chunk.data)] == [{"more": text} for text in "xxxyyy"]


def test_partition_values_come_back_from_the_log(tmp_path: Path) -> None:
    values = pl.DataFrame(
        {
            "n": [1, 2],
            "text": ["a b/ü=%", None],
            "at": pl.Series([dt.datetime(2024, 1, 1, 3, 0, 0, 5), None], dtype=pl.Datetime("us", "UTC")),
            "day": [dt.date(2024, 1, 1), None],
            "number": [7, None],
            "ok": [True, None],
        }
    )
    for _ in range(2):
        partition_by = ["text", "at", "day", "number", "ok"]
        deltalake.write_deltalake(tmp_path / "t", values.to_arrow(), mode="append", partition_by=partition_by)
    for source in (Delta(tmp_path / "t"), Delta(tmp_path / "t", start=1)):
        found = Counter(tuple(row.values()) for _, row in read_all(source))
        assert found == Counter(values.rows() * 2)


def test_changes_of_rows_are_refused_by_name_and_a_later_start_goes_on(lake: Lake) -> None:
    first = filled(lake, 2)
    lake.delete("i = 1")
    lake.append(frame(9))
    number = first + 2
    flow = falkirk.Dataflow("changes")
    flow.columns("in", lake.source()).capture("rows")
    message = (
        rf"source 'in' \(.*test_table_sources.py:\d+\).*{number} deletes or changes rows.*after={number} or start="
    )
    with pytest.raises(SourceError, match=message):
        falkirk.run(flow)
    assert read(lake.source(after=number)) == Counter((first + 3, 9, i) for i in range(3))
    whole = Counter((number, version, i) for version in range(2) for i in (0, 2))
    assert read(lake.source(start=number)) == whole + Counter((first + 3, 9, i) for i in range(3))


def test_versions_that_are_gone_are_named_with_what_to_do(tmp_path: Path) -> None:
    delta, iceberg = DeltaLake(tmp_path), IcebergLake(tmp_path / "ice")
    (tmp_path / "ice").mkdir()
    filled(delta, 4)
    [behind] = delta.source(follow=True).partitions(0, 1)
    table = deltalake.DeltaTable(delta.path)
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(SourceError, match=r"part-.* is gone: the table was vacuumed.*later start="):
        behind.read()
    assert read(delta.source(start=4)) == Counter((4, number, i) for number in range(4) for i in range(3))
    behind.seek([1])
    table.create_checkpoint()
    for number in range(4):
        (delta.path / "_delta_log" / f"{number:020}.json").unlink()
    with pytest.raises(
        SourceError, match=r"version 2 is gone: the table's log was cleaned.*delta.logRetentionDuration"
    ):
        behind.read()
    with pytest.raises(SourceError, match=r"version 0 cannot be opened.*begin with a later version"):
        chunks(delta.source().partitions(0, 1)[0])

    filled(iceberg, 4)
    [behind] = iceberg.source(follow=True).partitions(0, 1)
    first = iceberg.table().snapshots()
    iceberg.table().maintenance.expire_snapshots().by_ids([each.snapshot_id for each in first[:2]]).commit()
    with pytest.raises(SourceError, match=r"its first snapshots have expired. Begin with a later one, start=3"):
        behind.read()
    behind.seek([1])
    with pytest.raises(SourceError, match=r"snapshot 1 is not there \(there are 3 to 4\): it has expired"):
        behind.read()
    assert read(iceberg.source(start=3)) == Counter((3, n, i) for n in range(3) for i in range(3)) + expected(1, 3)
    Path(next(iter(iceberg.table().scan().plan_files())).file.file_path.removeprefix("file://")).unlink()
    with pytest.raises(SourceError, match=r"is gone: the snapshot has expired"):
        read(iceberg.source(start=4))


def test_a_table_that_is_not_there_or_not_ours_to_read_is_named(lake: Lake) -> None:
    for options in ({"start": 1, "after": 1}, {"start": -1}, {"columns": "i"}, {"columns": []}, {"poll_seconds": 0}):
        with pytest.raises(SourceError, match=r"\w+.py:\d+: "):
            lake.source(**options)
    with pytest.raises(SourceError, match=r"table .*: there is none. Check the"):
        lake.source().partitions(0, 1)
    filled(lake, 1)
    with pytest.raises(SourceError, match=r"'x' is no position in a table"):
        lake.source().partitions(0, 1)[0].seek("x")
    if isinstance(lake, IcebergLake):
        shutil.rmtree(lake.path / "metadata")
        with pytest.raises(SourceError, match="cannot be opened"):
            lake.source().partitions(0, 1)
        return
    [partition] = Delta(lake.path, after=0, follow=True).partitions(0, 1)
    assert isinstance(partition.read(), Wait)
    (lake.path / "_delta_log" / f"{1:020}.json").write_text('{"add": 7}')
    with pytest.raises(SourceError, match=r"_delta_log/0*1.json is no commit of a Delta table"):
        partition.read()
    with pytest.raises(SourceError, match=r"cannot be opened: \w+: [^\n]*Check the path and storage_options.$"):
        lake.source().partitions(0, 1)


@pytest.mark.soak
def test_text_that_is_not_utf8_is_refused_with_its_file_and_column(lake: Lake) -> None:
    lake.append(pl.DataFrame({"i": [1, 2], "word": ["hello", "grüße"]}))
    (path,) = lake.path.rglob("*.parquet")
    pq.write_table(pq.read_table(path), path, compression="none", write_statistics=False)
    assert [row["word"] for _, row in read_all(lake.source(as_records=True))] == ["hello", "grüße"]
    path.write_bytes(path.read_bytes().replace(b"hello", b"hel\xff\xfe"))
    with pytest.raises(SourceError, match=rf"{path.name} cannot be read: .*'word'.*UTF8"):
        read_all(lake.source())


@pytest.mark.parametrize("kind", LAKES)
def test_a_job_copies_a_table_while_it_grows(kind: type[Lake], tmp_path: Path) -> None:
    """Version for epoch, with a store; a second run of a job that is over does nothing."""
    lake, target = kind(tmp_path), kind(tmp_path / "copy")
    filled(lake, 3)
    (tmp_path / "copy").mkdir()
    for _ in range(2):
        flow = falkirk.Dataflow("copy")
        flow.columns("in", lake.source()).to(target.sink(), name="out")
        falkirk.run(flow, store=tmp_path / "store")
        lake.append(frame(7))
    began = 1  # a version that makes a Delta table has no rows, and snapshots count from 1
    assert read(target.source()) == Counter((began + number, number, i) for number in range(3) for i in range(3))
