from __future__ import annotations

import csv
import tracemalloc
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libraries.connect import Csv
from libraries.connect.files.csv import Dialect, StrayQuote
from tests.timely.io.reading import chunks, read_all
from timely.errors import SourceError


def file(folder: Path, text: str, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_rows_equal_those_of_polars(tmp_path: Path) -> None:
    text = "n,x,s,b\n" + "".join(f'{i},{i / 4},"a, ""{i}""\n b",{"true" if i % 2 else "false"}\n' for i in range(500))
    path = file(tmp_path, text)
    found = pa.concat_tables([c.data for c in chunks(Csv(path, block_bytes=300).partitions(0, 1)[0])])
    assert pl.from_arrow(found).equals(pl.read_csv(path))


def test_a_value_of_another_type_names_line_and_column(tmp_path: Path) -> None:
    text = "n,s\n" + "".join(f"{i},x\n" for i in range(100)) + "oops,x\n" + "1,x\n"
    with pytest.raises(SourceError, match=r"a\.csv, line 102, column 'n': .*'oops'.*schema="):
        read_all(Csv(file(tmp_path, text), block_bytes=50))
    found = read_all(Csv(file(tmp_path, text), block_bytes=50, schema={"n": pa.string()}))
    assert found[100][1] == {"n": "oops", "s": "x"}


def test_a_row_with_too_few_fields_names_its_line(tmp_path: Path) -> None:
    text = "n,s\n" + "".join(f"{i},x\n" for i in range(60)) + "7\n"
    with pytest.raises(SourceError, match=r"a\.csv, line 62: .*[Ee]xpected 2 columns, got 1"):
        read_all(Csv(file(tmp_path, text), block_bytes=50))


def test_a_last_line_without_end_is_refused_unless_allowed(tmp_path: Path) -> None:
    path = file(tmp_path, "n\n10\n12")
    with pytest.raises(SourceError, match=r"line 3: the file ends within this line"):
        Csv(path).partitions(0, 1)
    assert read_all(Csv(path, allow_unfinished_line=True)) == [(0, {"n": 10}), (0, {"n": 12})]


@pytest.mark.parametrize("text", ["a,b\r1,x\n2,y\n", "a,b\r1,x\r2,y\r", "a\r1"])
def test_rows_are_not_taken_for_part_of_the_line_of_names(tmp_path: Path, text: str) -> None:
    """Arrow ends lines at a carriage return alone."""
    path = file(tmp_path, text)
    with pytest.raises(SourceError, match=r"line 1: lines end in a carriage return alone"):
        read_all(Csv(path, allow_unfinished_line=True))


def test_a_quote_that_is_never_closed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"line 3: the row that begins here does not end"):
        read_all(Csv(file(tmp_path, 'n,s\n1,a\n2,"b\n3,c\n')))


def test_stray_quotes_are_refused_unless_quotes_are_ordinary(tmp_path: Path) -> None:
    path = file(tmp_path, 'n,s\n1,a\n2,5" pipe\n3,c\n')
    with pytest.raises(SourceError, match=r"line 3: a quote stands within an unquoted field"):
        read_all(Csv(path))
    assert [row["s"] for _, row in read_all(Csv(path, quote=None))] == ["a", '5" pipe', "c"]


def test_a_file_without_rows_and_one_without_header(tmp_path: Path) -> None:
    assert read_all(Csv(file(tmp_path, "n,s\n"))) == []
    with pytest.raises(SourceError, match="the file is empty"):
        Csv(file(tmp_path, "")).partitions(0, 1)
    with pytest.raises(SourceError, match="same name"):
        Csv(file(tmp_path, "n,n\n1,2\n")).partitions(0, 1)


def test_names_given_by_the_user_make_the_first_line_a_row(tmp_path: Path) -> None:
    path = file(tmp_path, "1;a\r\n2;b\r\n")
    found = read_all(Csv(path, names=["n", "s"], delimiter=";", epoch=1))
    assert found == [(0, {"n": 1, "s": "a"}), (1, {"n": 2, "s": "b"})]


def test_the_first_file_settles_names_and_types(tmp_path: Path) -> None:
    file(tmp_path, "n,s\n1,a\n", "0.csv")
    file(tmp_path, "s,n\nb,2\n", "1.csv")
    assert [row for _, row in read_all(Csv(tmp_path))] == [{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]
    file(tmp_path, "n,s\n1.5,a\n", "2.csv")
    with pytest.raises(SourceError, match=r"2\.csv, line 2, column 'n'"):
        read_all(Csv(tmp_path))
    file(tmp_path, "n,s,z\n1,a,0\n", "2.csv")
    with pytest.raises(SourceError, match=r"2\.csv: column 'z' is not in the first file"):
        read_all(Csv(tmp_path))
    assert len(read_all(Csv(tmp_path, columns=["n"]))) == 3


def test_an_empty_value_in_a_single_column_is_a_row(tmp_path: Path) -> None:
    assert [row["n"] for _, row in read_all(Csv(file(tmp_path, "n\n1\n\n3\n")))] == [1, None, 3]


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("s\ncaf\xe9\n".encode("latin-1"))
    with pytest.raises(SourceError, match="UTF-8"):
        read_all(Csv(path))


def test_a_file_that_grows_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = file(tmp_path, "n\n" + "1\n" * 100)
    [partition] = Csv(path, block_bytes=20).partitions(0, 1)
    partition.read()
    with path.open("a") as more:
        more.write("2\n")
    with pytest.raises(SourceError, match="changed while it was read"):
        chunks(partition)


FIELD = st.text('ab,"\n\r 1', max_size=5)


@given(rows=st.lists(st.lists(FIELD, min_size=2, max_size=2), min_size=1, max_size=8), cut=st.integers(0, 200))
def test_rows_end_only_where_a_row_ends(rows: list[list[str]], cut: int) -> None:
    lines = [",".join('"' + f.replace('"', '""') + '"' for f in row).encode() + b"\n" for row in rows]
    ends = [0]
    for line in lines:
        ends.append(ends[-1] + len(line))
    data = b"".join(lines)[:cut]
    assert Dialect(",", '"').last_row_end(data) == max(end for end in ends if end <= len(data))


@given(data=st.text('a,"\n', max_size=12))
def test_rows_are_cut_as_a_quote_by_quote_reading_would(data: str) -> None:
    try:
        last = Dialect(",", '"').last_row_end(data.encode())
        first = Dialect(",", '"').first_row_end(data.encode())
    except StrayQuote:
        return
    inside, ends = False, [0]
    for i, c in enumerate(data):
        if c == '"':
            inside = not inside
        elif c == "\n" and not inside:
            ends.append(i + 1)
    assert (first, last) == (ends[1] if len(ends) > 1 else 0, ends[-1])


def test_a_byte_order_mark_is_not_part_of_the_first_name(tmp_path: Path) -> None:
    assert read_all(Csv(file(tmp_path, '\ufeff"n","s"\n1,"a"\n'))) == [(0, {"n": 1, "s": "a"})]


def test_python_memory_stays_bounded(tmp_path: Path) -> None:
    path = file(tmp_path, "n,s\n" + "".join(f"{i},some text here\n" for i in range(300_000)))
    [partition] = Csv(path, block_bytes=1 << 18).partitions(0, 1)
    tracemalloc.start()
    try:
        while hasattr(partition.read(), "data"):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < path.stat().st_size / 4


fields = st.text(st.sampled_from('ab,;"\r\n \té'), max_size=6)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(st.tuples(fields, fields, fields), min_size=1, max_size=12),
    block=st.integers(1, 60),
    end=st.sampled_from(["\n", "\r\n"]),
    always=st.booleans(),
    suffix=st.sampled_from(["csv", "tsv"]),
)
def test_rows_are_those_of_pythons_own_reader(
    rows: list[tuple[str, ...]], block: int, end: str, always: bool, suffix: str, tmp_path: Path
) -> None:
    delimiter = "\t" if suffix == "tsv" else ","

    def written(value: str) -> str:  # Python's own writer leaves a carriage return without quotes
        return '"' + value.replace('"', '""') + '"' if always or {*value} & {*'",\t\r\n'} else value

    lines = [delimiter.join(written(value) for value in row) + end for row in [("x", "y", "z"), *rows]]
    path = file(tmp_path, "".join(lines), f"drawn.{suffix}")
    with path.open(newline="") as text:
        _, *wanted = csv.reader(text, delimiter=delimiter)
    found = read_all(Csv(path, block_bytes=block, schema=dict.fromkeys("xyz", str)))
    assert [tuple(row.values()) for _, row in found] == [tuple(row) for row in wanted]


@pytest.mark.parametrize("inside", ["\r\n", "\n\r", "\r", "\n", '""', "\r\n\r\n"])
def test_line_ends_in_quotes_are_kept_wherever_they_stand(inside: str, tmp_path: Path) -> None:
    value = inside.replace('""', '"')
    for before in range((1 << 20) - 4, (1 << 20) + 2):  # around the end of a piece as Arrow cuts them
        lead = "x" * (before - 3)
        path = file(tmp_path, f'"{lead}","a{inside}b"\n1,2\n')
        found = read_all(Csv(path, names=["x", "y"], schema={"x": str, "y": str}))
        assert [(len(row["x"]), row["y"]) for _, row in found] == [(len(lead), f"a{value}b"), (1, "2")]


@pytest.mark.parametrize("mib", [1.5, 2.5, 9])
def test_a_row_may_be_long(mib: float, tmp_path: Path) -> None:
    text = "<p>" * int(mib * (1 << 20) / 3)
    path = file(tmp_path, f'id,html\n1,short\n2,"{text}"\n3,short\n')
    assert [len(row["html"]) for _, row in read_all(Csv(path))] == [5, len(text), 5]


def test_a_line_of_names_may_be_long(tmp_path: Path) -> None:
    name = "n" * (5 << 20)
    path = file(tmp_path, f"id,{name}\n1,2\n")
    assert read_all(Csv(path)) == [(0, {"id": 1, name: 2})]


def test_files_of_tabs_are_read_with_tabs(tmp_path: Path) -> None:
    path = file(tmp_path, "a\tb,c\n1\t2\n", "a.tsv")
    assert read_all(Csv(path)) == [(0, {"a": 1, "b,c": 2})]
    path = file(tmp_path, "a\tb,c\n1\t2,3\n", "b.tsv")
    assert read_all(Csv(path, delimiter=",")) == [(0, {"a\tb": "1\t2", "c": 3})]
