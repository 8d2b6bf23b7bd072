from __future__ import annotations

from itertools import accumulate, pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libraries.connect import Parquet
from libraries.connect.files.discovery import checksum
from libraries.connect.files.parquet import ParquetPartition, share_out
from libraries.connect.validation import check_sound
from tests.timely.io.reading import check_seek_anywhere, chunks, read_all
from timely.errors import SourceError
from timely.io import Chunk


def write(path: Path, count: int, group: int, **columns: Any) -> Path:
    pq.write_table(pa.table({"n": list(range(count)), **columns}), path, row_group_size=group)
    return path


@given(
    sizes=st.lists(st.integers(0, 9), max_size=12),
    rows_an_epoch=st.none() | st.integers(1, 12),
    shares=st.integers(1, 4),
)
def test_shares_hold_every_row_once_and_in_order(sizes: list[int], rows_an_epoch: int | None, shares: int) -> None:
    seen: list[int] = []
    for share in range(shares):
        mine: list[int] = []
        for part in share_out(sizes, rows_an_epoch, share, shares):
            assert part.first_row == sum(sizes[: part.group]) + part.start
            assert 0 <= part.start <= part.stop <= sizes[part.group]
            mine += range(part.first_row, part.first_row + part.stop - part.start)
        assert mine == sorted(mine)
        seen += mine
    assert sorted(seen) == list(range(sum(sizes)))


@given(groups=st.integers(1, 3), epochs=st.integers(1, 4), shares=st.integers(1, 3), size=st.integers(1, 5))
def test_whole_row_groups_are_dealt_out_where_they_divide(groups: int, epochs: int, shares: int, size: int) -> None:
    sizes = [size] * (groups * shares * epochs)
    for share in range(shares):
        parts = share_out(sizes, size * groups * shares, share, shares)
        assert [(p.start, p.stop) for p in parts] == [(0, size)] * (groups * epochs)


@pytest.mark.parametrize("epoch", ["batch", "file", 12, 8, 5, "day"])
def test_every_epoch_of_a_split_file_is_shared_by_all_workers(epoch: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", 24, 4, day=[i // 4 for i in range(24)])
    split = Parquet(path, epoch=epoch, split="row_groups")
    whole = read_all(Parquet(path, epoch=epoch))
    assert sorted(read_all(split, 2), key=lambda found: found[1]["n"]) == whole
    check_seek_anywhere(split, 2)
    for worker in range(2):
        [partition] = split.partitions(worker, 2)
        assert {c.epoch for c in chunks(partition) if c.data is not None} == {e for e, _ in whole}


def test_workers_without_rows_still_say_that_the_epoch_is_over(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", 3, 1)
    found = [chunks(Parquet(path, split="row_groups").partitions(w, 2)[0]) for w in range(2)]
    assert [[(c.epoch, c.closes) for c in mine] for mine in found] == [[(0, True), (1, True), (2, True)]] * 2
    assert sum(c.data is not None for mine in found for c in mine) == 3


def test_dictionary_codes_survive(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", 100, 50, word=[f"w{i % 7}" for i in range(100)])
    found = chunks(Parquet(path, read_dictionary=["word"], use_threads=False, memory_map=True).partitions(0, 1)[0])
    assert all(pa.types.is_dictionary(c.data["word"].type) for c in found)
    plain = chunks(Parquet(path, columns=["word"]).partitions(0, 1)[0])
    assert [c.data["word"].to_pylist() for c in found] == [c.data["word"].to_pylist() for c in plain]


def test_a_dictionary_column_can_hold_the_epoch(tmp_path: Path) -> None:
    table = pa.table({"day": pa.array([0, 0, 1]).dictionary_encode(), "n": [1, 2, 3]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert [e for e, _ in read_all(Parquet(tmp_path, epoch="day"))] == [0, 0, 1]


def test_files_with_other_columns_or_types_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path / "0.parquet", 3, 3)
    write(tmp_path / "1.parquet", 3, 3, extra=[1, 2, 3])
    with pytest.raises(SourceError, match=r"1\.parquet: column 'extra' is not in .*0\.parquet"):
        read_all(Parquet(tmp_path))
    assert len(read_all(Parquet(tmp_path, columns=["n"]))) == 6
    pq.write_table(pa.table({"n": [1.0, 2.0]}), tmp_path / "1.parquet")
    with pytest.raises(SourceError, match=r"1\.parquet: column 'n' is double, but int64"):
        read_all(Parquet(tmp_path))
    assert [row["n"] for _, row in read_all(Parquet(tmp_path, schema={"n": pa.float64()}))] == [
        0.0,
        1.0,
        2.0,
        1.0,
        2.0,
    ]


def test_a_cast_that_loses_values_is_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1.5]}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match=r"a\.parquet, row group 0"):
        read_all(Parquet(tmp_path, schema={"n": pa.int64()}))


def test_damage_in_the_middle_is_noticed_by_checksums(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"n": pa.array([i * 7919 % 100_003 for i in range(5000)])})
    pq.write_table(table, path, write_page_checksum=True, use_dictionary=False, compression="none")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(SourceError, match="row group 0"):
        read_all(Parquet(path))


def test_a_text_file_is_not_taken_for_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("n\n1\n")
    with pytest.raises(SourceError, match=r"a\.parquet: not a whole Parquet file"):
        read_all(Parquet(tmp_path))
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(SourceError, match=r"a\.parquet: not a whole Parquet file"):
        read_all(Parquet(tmp_path))


def test_whole_epochs_are_dealt_out_in_turn(tmp_path: Path) -> None:
    table = pa.table({"n": list(range(70))})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=5)
    source = Parquet(tmp_path / "a.parquet", epoch=10, split="epochs")
    seen: dict[int, list[int]] = {}
    for worker in range(3):
        (partition,) = source.partitions(worker, 3)
        while isinstance(chunk := partition.read(), Chunk):
            assert chunk.epoch % 3 == worker
            seen.setdefault(chunk.epoch, []).extend(chunk.data["n"].to_pylist())
    assert seen == {epoch: list(range(10 * epoch, 10 * epoch + 10)) for epoch in range(7)}


def test_a_row_group_of_two_epochs_cannot_be_dealt_out(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": list(range(30))}), tmp_path / "a.parquet", row_group_size=15)
    (partition,) = Parquet(tmp_path / "a.parquet", epoch=10, split="epochs").partitions(0, 2)
    with pytest.raises(SourceError, match="row group 0 has rows of two epochs"):
        partition.read()
    with pytest.raises(SourceError, match="needs an epoch of so many rows"):
        Parquet(tmp_path / "a.parquet", split="epochs")


def uneven(path: Path, groups: int = 6, rows: int = 2_000) -> Path:
    """A file as it lies on the disk: without checksums of pages and statistics, which would tell of each change."""
    values = {"n": list(range(groups * rows)), "other": [0.5 * n for n in range(groups * rows)]}
    pq.write_table(
        pa.table(values),
        path,
        row_group_size=rows,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
    )
    return path


def checksums_of(path: Path, **options: Any) -> list[int]:
    """Of each chunk of a source, between the position before it and its own."""
    (partition,) = Parquet(path, **options).partitions(0, 1)
    assert isinstance(partition, ParquetPartition)
    found, before = [], None
    for chunk in chunks(partition):
        assert partition.checksums
        found.append(partition.checksum(before, chunk.position))
        before = chunk.position
    return found


@pytest.mark.parametrize("columns", [None, ["n"]])
def test_a_checksum_changes_with_the_bytes_of_its_epoch_and_with_no_others(
    tmp_path: Path, columns: list[str] | None
) -> None:
    path = uneven(tmp_path / "in.parquet")
    right = checksums_of(path, columns=columns)
    assert len(set(right)) == 6
    content, metadata = path.read_bytes(), pq.read_metadata(path)
    for group in range(6):
        for number in range(2):
            column = metadata.row_group(group).column(number)
            at = column.data_page_offset + column.total_compressed_size - 1
            path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            here = {group} if columns is None or number == 0 else set()
            changed = checksums_of(path, columns=columns)
            assert {one for one in range(6) if changed[one] != right[one]} == here


def test_a_checksum_is_that_of_the_whole_way_from_one_position_to_another(tmp_path: Path) -> None:
    path = uneven(tmp_path / "in.parquet")
    (partition,) = Parquet(path, epoch=4_000).partitions(0, 1)
    assert isinstance(partition, ParquetPartition)
    ends = [chunk.position for chunk in chunks(partition)]
    fresh = Parquet(path, epoch=4_000).partitions(0, 1)[0]
    assert isinstance(fresh, ParquetPartition)
    assert [fresh.checksum(ends[at], ends[at + 2]) for at in range(4)] == [
        partition.checksum(ends[at], ends[at + 2]) for at in range(4)
    ]
    assert len({fresh.checksum(None, end) for end in ends}) == len(ends)


@pytest.mark.parametrize(
    ("options", "whole"),
    [
        ({"epoch": "batch"}, True),
        ({"epoch": "file"}, True),
        ({"epoch": 2_000}, True),
        ({"epoch": 6_000}, True),
        ({"epoch": 3_000}, False),
        ({"epoch": "n"}, False),
        ({"epoch": lambda rows: rows["n"]}, False),
    ],
)
def test_only_epochs_of_whole_row_groups_have_a_checksum(tmp_path: Path, options: Any, whole: bool) -> None:
    (partition,) = Parquet(uneven(tmp_path / "in.parquet"), **options).partitions(0, 1)
    assert isinstance(partition, ParquetPartition)
    assert not partition.checksums
    partition.read()
    assert partition.checksums == whole


def test_a_file_that_is_gone_has_no_checksum(tmp_path: Path) -> None:
    path = uneven(tmp_path / "in.parquet")
    (partition,) = Parquet(path).partitions(0, 1)
    assert isinstance(partition, ParquetPartition)
    chunk = partition.read()
    assert isinstance(chunk, Chunk)
    path.unlink()
    with pytest.raises(SourceError, match="cannot be read"):
        partition.checksum(None, chunk.position)


@given(sizes=st.lists(st.integers(0, 300_000), min_size=1, max_size=5), share=st.floats(0, 1))
def test_of_many_bytes_pieces_are_looked_at_from_the_first_to_the_last(sizes: list[int], share: float) -> None:
    """Changed are the first byte, the last one, and 40,000 bytes in a row anywhere: more than lie between two pieces."""
    size = sum(sizes)
    cuts = [0, *accumulate(sizes)]
    extents = [(7 + begin, 7 + end) for begin, end in pairwise(cuts)]

    def of(content: bytes) -> int:
        with TemporaryFile() as file:
            file.write(bytes(7) + content + b"what follows")
            file.flush()
            return checksum(file.fileno(), extents)

    right = of(bytes(size))
    at = int(share * max(size - 40_000, 0))
    for begin, end in ((0, 1), (size - 1, size), (at, min(at + 40_000, size))):
        if size:
            assert of(bytes(begin) + b"x" * (end - begin) + bytes(size - end)) != right
    assert of(bytes(size) + b"x") == right


TEXTS = [pa.string(), pa.large_string()]


def written(path: Path, table: pa.Table, **options: Any) -> bytes:
    pq.write_table(table, path, compression="none", write_statistics=False, **options)
    return path.read_bytes()


def test_columns_of_the_same_name_are_refused_unless_others_are_chosen(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table([pa.array([1, 2])] * 3, names=["a", "b", "a"]), path)
    for columns in (None, ["b", "a"]):
        with pytest.raises(SourceError, match=r"a.parquet: two columns have the name 'a': a, b, a\. Rename one"):
            read_all(Parquet(path, columns=columns))
    assert read_all(Parquet(path, columns=["b"])) == read_all(Parquet(path, columns=["b"], as_records=False))


@pytest.mark.parametrize("bad", [b"\xff\xfe", b"\xc3(", b"a\x80"])
@pytest.mark.parametrize("coded", [False, True])
def test_text_that_is_not_utf8_is_refused_with_its_column(bad: bytes, coded: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    data = written(path, pa.table({"n": [1, 2], "word": ["hello", "grüße"]}), use_dictionary=coded)
    assert read_all(Parquet(path, read_dictionary=["word"] if coded else ()))
    path.write_bytes(data.replace(b"hello", bad.ljust(5, b".")))
    with pytest.raises(SourceError, match=r"row group 0.*'word'.*UTF8"):
        read_all(Parquet(path, read_dictionary=["word"] if coded else ()))


@given(
    st.lists(st.text(max_size=3) | st.none(), max_size=6),
    st.integers(0, 3),
    st.sampled_from([pa.string(), pa.large_string()]),
)
def test_what_arrow_has_made_is_sound_in_each_slice(texts: list[str | None], begin: int, kind: pa.DataType) -> None:
    plain = pa.array(texts, kind)
    table = pa.table(
        {"plain": plain, "coded": plain.dictionary_encode(), "nested": pa.array([[t] for t in texts], pa.list_(kind))}
    )
    check_sound(table.slice(begin))


@given(st.lists(st.integers(-3, 4) | st.none(), min_size=1, max_size=5), st.integers(0, 3))
def test_codes_beyond_their_dictionary_are_refused_wherever_they_are(codes: list[int | None], size: int) -> None:
    coded = pa.DictionaryArray.from_arrays(
        pa.array(codes, pa.int32()), pa.array(list("abc"[:size]), pa.string()), safe=False
    )
    for array in (coded, pa.StructArray.from_arrays([coded], ["inside"])):
        if all(code is None or 0 <= code < size for code in codes):
            check_sound(pa.table({"c": array}))
        else:
            with pytest.raises(ValueError, match="'c'"):
                check_sound(pa.table({"c": array}))
