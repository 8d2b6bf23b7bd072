"""Publishing a table: whole epochs, once, whatever is cut short. Spark reads such tables in `test_streams`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from libraries import spark
from libraries.spark.files import digest_of, input_stem, write_input
from libraries.spark.manifest import ManifestEntry
from libraries.spark.table import LAST, _TableSink, _TableWriter
from runtime.run import run
from timely.dataflow.dataflow import Dataflow
from timely.errors import FalkirkError, GraphError, SinkError
from timely.io import Batches
from timely.time import INF


def staged(table: Path, epoch: int, worker: int, rows: list[int]) -> ManifestEntry:
    """A file that a worker has written."""
    hidden = table / ".falkirk"
    hidden.mkdir(parents=True, exist_ok=True)
    arrow = pa.table({"k": pa.array(rows, pa.int64())})
    path = write_input(hidden, input_stem("rows", epoch, worker, f"0-{digest_of([arrow])}"), [arrow])
    return ManifestEntry("rows", path, len(rows), 1, arrow.schema.serialize().to_pybytes())


def writer(table: Path) -> _TableWriter:
    return _TableSink(table, "epoch").open(0, 2)


def content(table: Path) -> dict[str, list[int]]:
    return {
        folder.name: sorted(k for file in folder.iterdir() for k in pl.read_parquet(file, hive_partitioning=False)["k"])
        for folder in table.glob("epoch=*")
    }


class PowerCut(BaseException):
    """The process dies here."""


def test_epoch_is_there_whole_or_not_at_all_wherever_publishing_is_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renames: Callable[[Path, Any], Path] = Path.rename
    whole = {"epoch=0000000007": [1, 2, 3, 4]}
    cuts = 0
    for after in range(20):
        table = tmp_path / str(after)
        entries = [staged(table, 7, 0, [1, 2]), staged(table, 7, 0, [3]), staged(table, 7, 1, [4])]
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
