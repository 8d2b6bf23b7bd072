"""Publishing a table: whole epochs, once, whatever is cut short. Spark reads such tables in `test_streams`."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.connect import Parquet
from libraries.spark.dataflow.table import LAST, _TableSink, _TableWriter
from libraries.spark.files.manifest import ManifestEntry
from libraries.spark.files.parquet import digest_of, input_stem, write_input
from runtime.run import run
from timely.data.batch import as_polars
from timely.errors import FalkirkError, GraphError, SinkError
from timely.io import Batches
from timely.io.memory import rows_of
from timely.time import INF


def staged(table: Path, epoch: int, worker: int, rows: list[int], place: str = "") -> ManifestEntry:
    """A file that a worker has written."""
    hidden = table / ".falkirk"
    hidden.mkdir(parents=True, exist_ok=True)
    arrow = pa.table({"k": pa.array(rows, pa.int64())})
    path = write_input(hidden, input_stem("rows", epoch, worker, f"0-{digest_of([arrow])}"), [arrow])
    return ManifestEntry("rows", path, len(rows), 1, arrow.schema.serialize().to_pybytes(), place=place)


def writer(table: Path) -> _TableWriter:
    return _TableSink(table, "epoch").open(0, 2)


def content(table: Path) -> dict[str, list[int]]:
    return {
        folder.name: sorted(
            k for file in folder.rglob("*.parquet") for k in pl.read_parquet(file, hive_partitioning=False)["k"]
        )
        for folder in table.glob("epoch=*")
    }


class PowerCut(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("places", [["", "", ""], ["shop=n", "shop=s/day=1", "shop=n"]], ids=["plain", "partitioned"])
def test_epoch_is_there_whole_or_not_at_all_wherever_publishing_is_cut_short(
    places: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renames: Callable[[Path, Any], Path] = Path.rename
    whole = {"epoch=0000000007": [1, 2, 3, 4]}
    cuts = 0
    for after in range(20):
        table = tmp_path / str(after)
        rows = [(0, [1, 2]), (0, [3]), (1, [4])]
        entries = [staged(table, 7, worker, ks, place) for (worker, ks), place in zip(rows, places, strict=True)]
        left = [after]

        def rename(path: Path, target: Path, left: list[int] = left, table: Path = table) -> Path:
            assert content(table) in ({}, whole)
            if left[0] == 0:
                raise PowerCut
            left[0] -= 1
            done = renames(path, target)
            assert content(table) in ({}, whole)
            return done

        monkeypatch.setattr(Path, "rename", rename)
        first = writer(table)
        first.write(7, list(entries))
        try:
            first.commit(7)
        except PowerCut:
            cuts += 1
        monkeypatch.setattr(Path, "rename", renames)
        for _ in range(2):  # the one that takes its place, and another
            again = writer(table)
            again.write(7, list(entries))
            again.commit(7)
            assert content(table) == whole
            found = Counter(str(file.parent.relative_to(table)) for file in table.glob("epoch=*/**/*.parquet"))
            assert found == Counter(str(Path("epoch=0000000007", place)) for place in places)
        assert sorted(path.name for path in (table / ".falkirk").iterdir()) == ["schema"]
    assert cuts == 4


def test_what_another_run_has_left_half_published_is_not_mixed_in(tmp_path: Path) -> None:
    other = Path(staged(tmp_path, 4, 0, [9])[1])
    (tmp_path / ".falkirk" / "epoch-4").mkdir()
    other.rename(tmp_path / ".falkirk" / "epoch-4" / other.name)
    one = writer(tmp_path)
    one.write(4, [staged(tmp_path, 4, 0, [1])])
    one.commit(4)
    assert content(tmp_path) == {"epoch=0000000004": [1]}


def test_files_of_attempts_that_do_not_count_go_with_their_epoch(tmp_path: Path) -> None:
    lost, early, later = (staged(tmp_path, epoch, 1, [9]) for epoch in (2, 1, 3))
    one = writer(tmp_path)
    one.write(2, [staged(tmp_path, 2, 0, [1])])
    one.commit(2)
    assert content(tmp_path) == {"epoch=0000000002": [1]}
    assert not Path(lost[1]).exists()
    assert not Path(early[1]).exists()
    assert Path(later[1]).exists()


def test_epoch_without_rows_and_the_end_of_all_input(tmp_path: Path) -> None:
    one = writer(tmp_path)
    one.write(0, [staged(tmp_path, 0, 0, [])])
    one.commit(0)
    assert content(tmp_path) == {}
    one.write(INF, [staged(tmp_path, INF, 0, [5])])
    one.commit(INF)
    assert content(tmp_path) == {f"epoch={LAST}": [5]}


def test_columns_that_change_or_clash_are_an_error_at_the_users_line(tmp_path: Path) -> None:
    def program(*frames: pl.DataFrame, table: str = "t") -> Dataflow:
        flow = Dataflow("changing")
        spark.write(flow.columns("in", Batches(list(frames))), tmp_path / table, name="t")
        return flow

    frames = [pl.DataFrame({"k": [1]}), pl.DataFrame({"k": ["a"]})]
    with pytest.raises(FalkirkError, match=r"(?s)test_table.py.*'k' was int64 and is string.*epoch 1|epoch 1.*'k' was"):
        run(program(*frames))
    with pytest.raises(FalkirkError, match=r"(?s)test_table.py.*column 'epoch' already.*column="):
        run(program(pl.DataFrame({"epoch": [1]}), table="u"))
    with pytest.raises(FalkirkError, match=r"(?s)test_table.py.*'d' is of type duration.*cast it"):
        run(program(pl.DataFrame({"d": [pl.duration(days=1)]}).select(d=pl.duration(days=1)), table="v"))


def test_the_table_of_another_job_is_left_alone(tmp_path: Path) -> None:
    def program(*numbers: int) -> Dataflow:
        flow = Dataflow("numbers")
        spark.write(flow.columns("in", Batches([pl.DataFrame({"k": [n]}) for n in numbers])), tmp_path / "t", name="t")
        return flow

    run(program(1, 2))
    (tmp_path / "t" / ".falkirk" / "00000000000000000001-rows-0-x.parquet").touch()  # of a job that is under way
    before = {path: path.read_bytes() for path in (tmp_path / "t").rglob("*") if path.is_file()}
    with pytest.raises(
        SinkError, match=r"sink 't' .*test_table.py.*t: another job writes here, its files are epoch=0+ and"
    ):
        run(program(1, 2, 3, 4))
    assert {path: path.read_bytes() for path in (tmp_path / "t").rglob("*") if path.is_file()} == before


def test_what_cannot_be_a_table_is_refused_at_the_users_line(tmp_path: Path) -> None:
    flow = Dataflow("refused")
    cells = flow.columns("in", Batches([pl.DataFrame({"k": [1]})]))
    with pytest.raises(GraphError, match=r"test_table.py.*to_columns"):
        spark.write(cells.to_records(), tmp_path)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"test_table.py.*column='a b'"):
        spark.write(cells, tmp_path, column="a b")
    (tmp_path / "file").write_text("")
    spark.write(cells, tmp_path / "file")
    with pytest.raises(FalkirkError, match=r"test_table.py.*file/.falkirk: cannot be written"):
        run(flow)


ODD = ["a/b", "10:30=[x]", "% '\"?*#{^", "größe", "a b", None]


def partitioned(frames: list[pl.DataFrame], table: Path, by: Any, **arguments: Any) -> None:
    flow = Dataflow("partitioned")
    spark.write(flow.columns("in", Batches(frames)), table, partition_by=by, name="t", **arguments)
    run(flow, workers=2)


def test_rows_are_in_folders_by_their_values_and_come_back_with_them(tmp_path: Path) -> None:
    frames = [
        pl.DataFrame({"n": range(24), "text": ODD * 4, "even": [n % 2 == 0 for n in range(24)]}).with_columns(
            day=pl.date(2024, 5, 1) + pl.duration(days=epoch), whole=pl.col("n").cast(pl.Int32) % 2 - 1
        )
        for epoch in range(2)
    ]
    partitioned(frames, tmp_path / "t", ["text", "even", "day", "whole"])
    whole = pl.concat(frames).select("n", "text", "even", "day", "whole")
    source = Parquet(
        str(tmp_path / "t/epoch=*/*/*/*/*/*.parquet"),
        folders={"text": str, "even": bool, "day": pl.Date, "whole": pl.Int32, "epoch": int},
    )
    flow = Dataflow("back")
    flow.columns("in", source).capture("out")
    found = pl.concat(as_polars(batch) for _, batch in run(flow).captured("out"))
    assert found.drop("epoch").sort(pl.all()).equals(whole.sort(pl.all()))
    assert (found["epoch"] == (found["day"] - pl.Series([dt.date(2024, 5, 1)])).dt.total_days()).all()
    others = pl.read_parquet(tmp_path / "t/epoch=*/**/*.parquet", hive_partitioning=True)
    assert others["n"].sort().equals(whole["n"].sort())
    few = Parquet(str(tmp_path / "t/epoch=*/*/*/*/*/*.parquet"), folders={"text": str}, columns=["text"])
    flow = Dataflow("texts")
    flow.columns("in", few).capture("out")
    texts = [row["text"] for _, batch in run(flow).captured("out") for row in rows_of(batch)]
    assert Counter(texts) == Counter(ODD * 8)


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("x", "column 'x', which is in partition_by, is of type double"),
        (["k", "x", "t"], "all columns are in partition_by"),
        ("other", "no column 'other', which is in partition_by; there are"),
        ("t", "column 't' is in partition_by, and the value '' cannot be the name of a folder"),
    ],
)
def test_what_cannot_be_folders_is_an_error_at_the_users_line(by: Any, said: str, tmp_path: Path) -> None:
    if isinstance(by, list):
        with pytest.raises(FalkirkError, match=said):
            partitioned([pl.DataFrame({"k": [1], "t": ["a"]})], tmp_path / "t", ["k", "t"])
        return
    with pytest.raises(FalkirkError, match=rf"(?s)test_table.py.*{said}"):
        partitioned([pl.DataFrame({"k": [1], "x": [0.5], "t": [""]})], tmp_path / "t", by)


@pytest.mark.parametrize("by", [["k", "k"], "epoch", [3]])
def test_partition_by_names_columns_each_once(by: Any, tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"test_table.py.*partition_by=.* must name columns"):
        partitioned([pl.DataFrame({"k": [1]})], tmp_path / "t", by)


def test_folders_that_a_source_names_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "day=x").mkdir()
    pl.DataFrame({"k": [1]}).write_parquet(tmp_path / "day=x" / "a.parquet")
    for folders, said in (({"shop": str}, "none of its folders is named shop="), ({"day": int}, "'day'.*is no int64")):
        flow = Dataflow("missing")
        flow.columns("in", Parquet(tmp_path / "day=x", folders=folders)).capture("out")
        with pytest.raises(FalkirkError, match=said):
            run(flow)
