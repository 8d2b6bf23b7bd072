"""Every file source: seek at any chunk boundary, epochs, and files cut off at any byte."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libraries.connect import Csv, Files, JsonLines, Parquet
from tests.timely.io.reading import check_seek_anywhere, chunks, read_all, rows
from timely.errors import SourceError

FORMATS = ("csv", "jsonl", "parquet")
# CSV says nothing of types: the x keeps text from looking like a number.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\0", exclude_categories=("Cs",)), max_size=6).map(
    "x".__add__
)


def write(folder: Path, kind: str, table: pa.Table, name: str = "a", group: int = 4) -> Path:
    path = folder / f"{name}.{kind}"
    if kind == "csv":
        pl.from_arrow(table).write_csv(path, quote_style="non_numeric")
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        pq.write_table(table, path, row_group_size=group)
    return path


def source(kind: str, path: Any, **options: Any) -> Any:
    if kind == "parquet":
        return Parquet(path, **options)
    return {"csv": Csv, "jsonl": JsonLines}[kind](path, block_bytes=40, **options)


def a_table(count: int, start: int = 0) -> pa.Table:
    return pa.table(
        {
            "day": [i // 5 for i in range(start, start + count)],
            "who": [f"name {i}" for i in range(start, start + count)],
        }
    )


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    steps = draw(st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 1, 3]), TEXT), min_size=1, max_size=30))
    day, days = 0, []
    for step, _ in steps:
        day += step
        days.append(day)
    return pa.table({"day": days, "who": [text for _, text in steps]})


def by_parity(batch: Any) -> list[int]:
    days = [row["day"] for row in rows(batch)]
    return [day // 2 for day in days]


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=max(10, settings().max_examples // 6))
@given(
    table=tables(),
    epoch=st.sampled_from(["file", "batch", 1, 3, 7, "day", by_parity]),
    as_records=st.booleans(),
    hide=st.booleans(),
)
def test_seek_at_any_chunk_gives_the_same_remainder(
    kind: str, table: pa.Table, epoch: Any, as_records: bool, hide: bool
) -> None:
    columns = ["who"] if hide and epoch in ("day", "batch", 3) else None
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), kind, table)
        one = source(kind, path, epoch=epoch, as_records=as_records, columns=columns)
        check_seek_anywhere(one)
        found = read_all(one)
        expected = table.to_pylist() if columns is None else table.select(columns).to_pylist()
        assert [row for _, row in found] == expected
        days = table["day"].to_pylist()
        if epoch == "file":
            assert {e for e, _ in found} == {0}
        elif isinstance(epoch, int):
            assert [e for e, _ in found] == [i // epoch for i in range(len(days))]
        elif epoch == "day":
            assert [e for e, _ in found] == days
        elif callable(epoch):
            assert [e for e, _ in found] == [day // 2 for day in days]


def rows_or_error(one: Any) -> list[Any] | SourceError:
    try:
        return [row for _, row in read_all(one)]
    except SourceError as error:
        return error


@pytest.mark.parametrize(
    ("kind", "as_records"), [("csv", False), ("jsonl", False), ("jsonl", True), ("parquet", False)]
)
def test_a_file_cut_off_at_any_byte_is_an_error_or_ends_at_a_full_row(
    kind: str, as_records: bool, tmp_path: Path
) -> None:
    table = pa.table({"n": list(range(100, 112)), "s": [f'x "{i}"\nend' if i % 3 else "" for i in range(12)]})
    whole = write(tmp_path, kind, table).read_bytes()
    rows_of_whole = table.to_pylist()
    ends_well = 0
    path = tmp_path / f"cut.{kind}"
    path.write_bytes(whole)
    for size in reversed(range(len(whole))):
        os.truncate(path, size)
        found = rows_or_error(source(kind, path, epoch="file", as_records=as_records))
        if isinstance(found, SourceError):
            assert f"cut.{kind}" in str(found)
            continue
        # Text formats: a file that ends where a row ends is a shorter, sound file.
        assert kind != "parquet"
        assert whole[size - 1 : size] in (b"\n", b"")
        assert found == rows_of_whole[: len(found)]
        ends_well += 1
    assert ends_well == (0 if kind == "parquet" else 12)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_cut_file_gives_nothing_of_its_last_epoch(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path, kind, a_table(20))
    path.write_bytes(path.read_bytes()[:-3])
    write(tmp_path, kind, a_table(5), name="0")
    _, cut = source(kind, tmp_path, epoch="file").partitions(0, 1)  # the first file is sound
    announced = cut.read()
    assert (announced.epoch, announced.data, announced.closes) == (1, None, False)
    with pytest.raises(SourceError, match=r"a\."):
        assert all(not chunk.closes for chunk in chunks(cut))


@pytest.mark.parametrize("kind", FORMATS)
def test_epoch_per_file_follows_the_names_and_is_announced_before_the_file_is_opened(kind: str, tmp_path: Path) -> None:
    for i in (2, 0, 1):
        write(tmp_path, kind, a_table(6, 6 * i), name=f"part-{i}")
    one = source(kind, tmp_path, epoch="file")
    assert read_all(one) == [(i // 6, row) for i, row in enumerate(a_table(18).to_pylist())]
    check_seek_anywhere(one)
    last = one.partitions(0, 1)[2]
    Path(last.name).unlink()
    with pytest.raises(SourceError, match="part-2"):
        last.read()
    first = one.partitions(0, 1)[1].read()
    assert (first.epoch, first.data) == (1, None)


@pytest.mark.parametrize("kind", FORMATS)
def test_files_are_spread_over_workers_each_once(kind: str, tmp_path: Path) -> None:
    for i in range(5):
        write(tmp_path, kind, a_table(3, 3 * i), name=f"{i}")
    one = source(kind, str(tmp_path / f"*.{kind}"))
    names = [sorted(Path(p.name).stem for p in one.partitions(w, 2)) for w in range(2)]
    assert names == [["0", "2", "4"], ["1", "3"]]
    assert sorted(row["who"] for _, row in read_all(one, 2)) == sorted(a_table(15)["who"].to_pylist())


@pytest.mark.parametrize("kind", FORMATS)
def test_a_falling_epoch_names_file_and_row(kind: str, tmp_path: Path) -> None:
    days = [0, 0, 1, 1, 2, 2, 3, 3, 3, 2, 4]
    path = write(tmp_path, kind, pa.table({"day": days, "who": ["x"] * len(days)}))
    with pytest.raises(SourceError, match=rf"a\.{kind}, row 10: epoch 2, but the row before it has 3"):
        read_all(source(kind, path, epoch="day"))
    with pytest.raises(SourceError, match=r"row 1: epoch -1, but epochs start at 0"):
        read_all(source(kind, path, epoch=lambda batch: [-1] * len(batch)))
    with pytest.raises(SourceError, match="one integer a row"):
        read_all(source(kind, path, epoch=lambda batch: [0.5] * len(batch)))
    with pytest.raises(SourceError, match="one integer a row"):
        read_all(source(kind, path, epoch=lambda batch: [1] * (len(batch) + 1)))


@pytest.mark.parametrize("kind", FORMATS)
def test_seek_into_a_changed_file_is_refused(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path, kind, a_table(20))
    [partition] = source(kind, path).partitions(0, 1)
    position = chunks(partition)[1].position
    write(tmp_path, kind, a_table(20, start=1))
    with pytest.raises(SourceError, match="has changed"):
        partition.seek(position)
    with pytest.raises(SourceError, match="not a position"):
        partition.seek(7)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_missing_column_is_named(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path, kind, a_table(5))
    with pytest.raises(SourceError, match="'nobody'"):
        read_all(source(kind, path, columns=["nobody"]))
    with pytest.raises(SourceError, match="'when'"):
        read_all(source(kind, path, epoch="when", as_records=True))


@pytest.mark.parametrize("kind", FORMATS)
def test_missing_files_say_what_was_looked_for(kind: str, tmp_path: Path) -> None:
    for paths, message in [
        (tmp_path / "no.csv", "no such file or folder"),
        (str(tmp_path / "*.none"), "no file matches"),
        (tmp_path, "no file in this folder ends in"),
        ([], "nothing to read"),
    ]:
        with pytest.raises(SourceError, match=message):
            source(kind, paths).partitions(0, 1)
    path = write(tmp_path, kind, a_table(3))
    with pytest.raises(SourceError, match="listed twice"):
        source(kind, [path, tmp_path]).partitions(0, 1)
    packed = path.rename(path.with_suffix(f".{kind}.gz"))
    with pytest.raises(SourceError, match="compressed"):
        source(kind, packed).partitions(0, 1)


@pytest.mark.parametrize("kind", FORMATS)
def test_positions_survive_a_journal(kind: str, tmp_path: Path) -> None:
    [partition] = source(kind, write(tmp_path, kind, a_table(9)), epoch=2).partitions(0, 1)
    for chunk in chunks(partition):
        packed = msgspec.json.encode(chunk.position)
        assert msgspec.json.decode(packed) == chunk.position


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, None])
def test_a_wrong_epoch_rule_is_refused_when_it_is_given(wrong: Any) -> None:
    with pytest.raises(SourceError, match="epoch="):
        Csv("x.csv", epoch=wrong)


@pytest.mark.parametrize("kind", FORMATS)
def test_reading_stays_within_bounded_memory(kind: str, tmp_path: Path) -> None:
    """A file of about 12 MB as a table, read in pieces of about a twentieth."""
    count = 400_000
    table = pa.table({"day": pa.array(range(count)), "who": pa.array([f"name {i % 977}" for i in range(count)])})
    if kind == "jsonl":
        path = tmp_path / "a.jsonl"
        pl.from_arrow(table).write_ndjson(path)
    else:
        path = write(tmp_path, kind, table, group=count // 20)
    size = table.nbytes
    del table
    options: dict[str, Any] = {"use_threads": False} if kind == "parquet" else {"block_bytes": 1 << 19}
    one = {"csv": Csv, "jsonl": JsonLines, "parquet": Parquet}[kind](path, **options)
    [partition] = one.partitions(0, 1)
    before, most, seen = pa.total_allocated_bytes(), 0, 0
    while hasattr(chunk := partition.read(), "data"):
        seen += len(chunk.data)
        most = max(most, pa.total_allocated_bytes() - before)
        del chunk
    assert seen == count
    assert most < size / 4


@pytest.mark.parametrize("kind", FORMATS)
def test_the_name_tells_the_format(kind: str, tmp_path: Path) -> None:
    write(tmp_path, kind, a_table(3))
    assert [row for _, row in read_all(Files(str(tmp_path / f"*.{kind}"), epoch="file"))] == a_table(3).to_pylist()
    with pytest.raises(SourceError, match="cannot be told from this name"):
        Files(tmp_path)
