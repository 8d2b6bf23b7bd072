"""Epochs in Delta and Iceberg tables: each one commit, exactly once, whatever is tried again."""

from __future__ import annotations

import datetime as dt
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import falkirk
from libraries.connect import DeltaSink, Iceberg, IcebergSink
from libraries.connect.tables.iceberg_sink import catalog_properties, load_catalog
from tests.libraries.connect.tables.lakes import DELTA_FIRST, LAKES, DeltaLake, IcebergLake, Lake
from timely.errors import SinkError
from timely.io import Batches
from timely.time import END

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(params=LAKES, ids=lambda kind: kind.name)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    made: Lake = request.param(tmp_path)
    return made


def rows_of(job: str, epoch: int) -> list[dict[str, Any]]:
    return [{"job": job, "epoch": epoch, "i": i} for i in range(epoch % 3 + 1)]


def as_counter(job: str, epoch: int) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows_of(job, epoch))


STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.sampled_from(["", "before", "landed", "twin"])), max_size=7
)


@pytest.mark.parametrize("kind", LAKES, ids=lambda kind: kind.name)
@settings(max_examples=2)
@given(STEPS)
def test_each_epoch_is_one_commit_whatever_comes_again(kind: type[Lake], steps: list[tuple[str, int, str]]) -> None:
    """Jobs a and b write; some go back a few epochs, and commits fail in front of the commit and behind it, or meet a twin."""
    with tempfile.TemporaryDirectory() as folder:
        check_history(kind(Path(folder)), steps)


@pytest.mark.soak
@pytest.mark.parametrize("kind", LAKES, ids=lambda kind: kind.name)
@settings(max_examples=300)
@given(STEPS)
def test_each_epoch_is_one_commit_in_many_histories(kind: type[Lake], steps: list[tuple[str, int, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        check_history(kind(Path(folder)), steps)


def check_history(lake: Lake, steps: list[tuple[str, int, str]]) -> None:
    done = {"a": -1, "b": -1}
    committed: list[tuple[str, int]] = []
    lake.append(pl.DataFrame(rows_of("z", 0)).clear())
    before = lake.newest()
    for job, back, fault in steps:
        sink = lake.sink().for_job(job * 32, "out")
        for epoch in range(max(0, done[job] + 1 - back), done[job] + 2):
            writer = sink.open(0, 1)
            writer.write(epoch, rows_of(job, epoch))
            new = epoch > done[job]
            if fault in ("before", "landed") and new:
                with lake.failing(landed=fault == "landed"), pytest.raises(SinkError, match="went away"):
                    writer.commit(epoch)
                writer = sink.open(0, 1)
                writer.write(epoch, rows_of(job, epoch))
            elif fault == "twin":  # another process of the job commits when this one has looked
                twin, look = sink.open(0, 1), writer._target.look
                twin.write(epoch, rows_of(job, epoch))

                def late(twin: Any = twin, look: Any = look, epoch: int = epoch) -> int | None:
                    found: int | None = look()
                    twin.commit(epoch)
                    return found

                writer._target.look = late  # type: ignore[method-assign]
            writer.commit(epoch)
            if new:
                committed.append((job, epoch))
                done[job] = epoch
    assert lake.rows() == sum((as_counter(*each) for each in committed), Counter())
    assert [each for each in lake.commits() if each] == [as_counter(*each) for each in committed]
    assert lake.newest() == before + len(committed)


def test_two_processes_of_a_job_leave_an_epoch_once(lake: Lake) -> None:
    """The second commits between the first one's look and its commit: the first notices, looks again, and is done."""
    check_history(lake, [("a", 0, "twin"), ("a", 1, "twin"), ("a", 0, "landed")])


def test_the_end_comes_after_all_epochs_and_an_epoch_without_rows_makes_no_commit(lake: Lake) -> None:
    writer = lake.sink().open(0, 1)
    writer.write(3, [])
    writer.commit(3)
    assert lake.rows() == Counter()
    for epoch in (4, END):
        writer.write(epoch, rows_of("a", 4))
        writer.commit(epoch)
        writer.commit(epoch)
    writer.write(7, rows_of("a", 7))
    writer.abort()
    writer.commit(7)
    assert lake.rows() == as_counter("a", 4) + as_counter("a", 4)


@pytest.mark.parametrize("kind", DELTA_FIRST)
def test_all_workers_rows_of_an_epoch_are_one_commit(kind: type[Lake], tmp_path: Path) -> None:
    lake = kind(tmp_path)
    frames = [pl.DataFrame({"epoch": [e] * 40, "i": range(40)}) for e in range(3)]
    flow = falkirk.Dataflow("numbers")
    flow.columns("in", Batches(frames)).exchange("i").to(lake.sink(partition_by=["epoch"]))
    falkirk.run(flow, workers=2)
    assert [each for each in lake.commits() if each] == [Counter(frame.rows()) for frame in frames]


def test_types_come_back_as_they_were_or_wider(lake: Lake) -> None:
    frame = pl.DataFrame(
        {
            "small": pl.Series([1, 2], dtype=pl.Int16),
            "text": pl.Series(["x", None]),
            "kind": pl.Series(["k", "l"], dtype=pl.Categorical),
            "at": pl.Series([dt.datetime(2024, 1, 1, 3), None], dtype=pl.Datetime("us", "UTC")),
            "day": [dt.date(2024, 1, 1), None],
            "price": pl.Series([Decimal("1.25"), None], dtype=pl.Decimal(12, 2)),
            "list": [[1, 2], []],
            "bytes": [b"a", b""],
            "ok": [True, None],
        }
    )
    if lake.name == "iceberg":
        frame = frame.with_columns(pl.col("small").cast(pl.Int32))
    flow = falkirk.Dataflow("types")
    flow.columns("in", Batches([frame])).to(lake.sink(partition_by=["kind", "day"]))
    falkirk.run(flow)
    again = falkirk.Dataflow("again")
    again.columns("in", lake.source(columns=frame.columns)).capture("rows")
    got = pa.concat_tables(batch for _, batch in falkirk.run(again).captured("rows"))
    assert pl.DataFrame(got).sort("small").rows() == frame.rows()


ROWS = [{"job": "a", "epoch": 0, "i": 1}]
MISFITS: list[tuple[Any, dict[str, Any], str]] = [
    ([(1, 2, 3)], {}, r"records must be dicts.*tuple.*to_columns"),
    ([{"job": "a"}], {}, r"no column 'epoch', 'i', which the table has"),
    ([{**ROWS[0], "more": 1}], {}, r"the table has no column 'more'.*alter the table"),
    (
        pa.table({"job": ["a"], "epoch": ["0"], "i": [1]}),
        {},
        r"column 'epoch' is string, and int64 in the table. Cast it",
    ),
    (pl.DataFrame({"job": ["a"], "epoch": [0.5], "i": [1]}), {}, r"column 'epoch' is double, and int64"),
    ([{**ROWS[0], "epoch": "x"}], {}, r"column 'epoch': its values, as str \('x'\), make no column"),
    (ROWS, {"partition_by": ["job"]}, r"is there, and partitioned by nothing, not by 'job'. Leave partition_by out"),
]


@pytest.mark.parametrize(("batch", "options", "message"), MISFITS, ids=range(len(MISFITS)))
def test_rows_that_do_not_fit_say_what_is_wrong_and_leave_the_table_alone(
    batch: Any, options: dict[str, Any], message: str, lake: Lake
) -> None:
    lake.append(pl.DataFrame(ROWS))
    flow = falkirk.Dataflow("misfits")
    flow.source("in", Batches([batch])).to(lake.sink(**options), name="lake")
    with pytest.raises(SinkError, match=rf"(?s)sink 'lake' \(.*test_table_sinks.py:\d+\).*{message}"):
        falkirk.run(flow)
    assert lake.rows() == Counter([("a", 0, 1)])


def test_a_new_table_needs_types_and_columns_that_are_there(lake: Lake) -> None:
    def write(sink: Any) -> None:
        writer = sink.open(0, 1)
        writer.write(0, pl.DataFrame({"a": [None], "b": [np.uint16(7)]}))
        writer.commit(0)

    with pytest.raises(SinkError, match="column 'a' has only nulls so far: give its type with schema="):
        write(lake.sink())
    with pytest.raises(SinkError, match=r"partition_by=.*name columns of the table"):
        lake.sink(schema={"a": int, "b": int}, partition_by=["c"])
    write(lake.sink(schema={"a": int, "b": int}, partition_by=["b"]))
    assert lake.rows() == Counter([(None, 7)])


def test_what_is_no_table_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("a letter")
    for path in (tmp_path, tmp_path / "mine"):
        with pytest.raises(SinkError, match=r"there is something else, which is no Delta table. Name another folder"):
            DeltaSink(path).open(0, 1)
    assert (tmp_path / "mine").read_text() == "a letter"
    for bad in ({"type": "sql", "uri": "sqlite:////no/such/folder/c.db"}, {"type": "nothing"}, {}):
        with pytest.raises(SinkError, match=r"Iceberg table a.b: (the catalog 'default' )?cannot be opened.*Check"):
            IcebergSink("a.b", bad).open(0, 1)
    for name in ("orders", "", "a.", 7):
        with pytest.raises(SinkError, match="the name of a table in its namespace"):
            IcebergSink(name, {})  # type: ignore[arg-type]
    with pytest.raises(SinkError, match="must be the name of a catalog, or its properties"):
        IcebergSink("a.b", {"type": 7})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("package", "extra", "make"),
    [("deltalake", "delta", lambda: DeltaSink("t")), ("pyiceberg", "iceberg", lambda: Iceberg("a.b", {}))],
)
def test_a_missing_package_is_named_with_what_to_install(
    package: str, extra: str, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(falkirk.FalkirkError, match=rf"test_table_sinks.py:\d+: .*pip install 'falkirk\[{extra}\]'"):
        make()


def test_a_conflict_that_does_not_end_is_an_error(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    from libraries.connect.tables import writer as module

    monkeypatch.setattr(module, "_WAITS", (0.0, 0.0))
    writer = lake.sink().open(0, 1)

    def conflict(*_: Any) -> None:
        raise module.CommitConflict("somebody was quicker")

    monkeypatch.setattr(writer._target, "append", conflict)
    writer.write(5, ROWS)
    with pytest.raises(SinkError, match=r"kept changing the table while epoch 5 was committed, 2 times .somebody was"):
        writer.commit(5)


def test_marks_of_a_delta_table_survive_compaction_checkpoints_and_cleaning(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    sink = lake.sink().for_job("a" * 32, "out")
    for epoch in range(4):
        writer = sink.open(0, 1)
        writer.write(epoch, rows_of("a", epoch))
        writer.commit(epoch)
    rows = lake.rows()
    table = deltalake.DeltaTable(lake.path)
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table.create_checkpoint()
    time.sleep(0.01)
    table.cleanup_metadata()
    assert len(list((lake.path / "_delta_log").glob("*.json"))) < 6
    for epoch in range(4):
        writer = sink.open(0, 1)
        writer.write(epoch, rows_of("a", epoch))
        writer.commit(epoch)
    assert lake.rows() == rows


def test_marks_of_an_iceberg_table_survive_snapshots_which_expire_by_themselves(tmp_path: Path) -> None:
    lake = IcebergLake(tmp_path)
    sink = lake.sink(keep_snapshots=2).for_job("a" * 32, "out")
    most = 0
    for epoch in range(9):
        for _ in range(2):
            writer = sink.open(0, 1)
            writer.write(epoch, rows_of("a", epoch))
            writer.commit(epoch)
        most = max(most, len(lake.table().snapshots()))
    assert 2 <= most <= 4
    assert lake.rows() == sum((as_counter("a", epoch) for epoch in range(9)), Counter())
    assert lake.table().current_snapshot().summary["falkirk.epoch"] == "8"  # type: ignore[union-attr,index]


WRITE_FOR_GOOD = """
import sys
from pathlib import Path
from tests.libraries.connect.tables.lakes import LAKES
from tests.libraries.connect.tables.test_table_sinks import rows_of
lake = LAKES[int(sys.argv[1])](Path(sys.argv[2]))
writer = lake.sink().for_job("a" * 32, "out").open(0, 1)
print("ready", flush=True)
for epoch in range(int(sys.argv[3])):
    writer.write(epoch, rows_of("a", epoch))
    writer.commit(epoch)
    print(epoch, flush=True)
"""


def killed_many_times(number: int, folder: Path, kills: int, delays: random.Random) -> None:
    lake, script = LAKES[number](folder), [sys.executable, "-c", WRITE_FOR_GOOD, str(number), str(folder)]
    last = -1
    for _ in range(kills):
        with subprocess.Popen([*script, "1000000"], stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.strip() == str(last + 2):
                    time.sleep(delays.uniform(0, 0.1))
                    process.send_signal(signal.SIGKILL)
                    break
            said = [int(line) for line in process.stdout if line.strip().isdecimal()]
        last = max([last + 2, *said])
        there = lake.rows()
        epochs = max(row[1] for row in there) + 1
        assert epochs > last
        assert there == sum((as_counter("a", epoch) for epoch in range(epochs)), Counter())
    assert [each for each in lake.commits() if each] == [as_counter("a", epoch) for epoch in range(epochs)]


@pytest.mark.soak
@pytest.mark.parametrize("number", range(len(LAKES)), ids=[kind.name for kind in LAKES])
def test_many_kills_of_a_writer(number: int, tmp_path: Path) -> None:
    killed_many_times(number, tmp_path, 25, random.Random(os.urandom(8)))


@pytest.mark.soak
@pytest.mark.parametrize("kind", LAKES, ids=lambda kind: kind.name)
def test_a_commit_takes_no_longer_when_there_were_many(kind: type[Lake], tmp_path: Path) -> None:
    """In processor seconds; 1,500 commits. Without checkpoints and expiry it would take several times as long at the end."""
    options = {"keep_snapshots": 50} if kind is IcebergLake else {}
    writer = kind(tmp_path).sink(**options).open(0, 1)
    took = []
    for epoch in range(1500):
        began = time.process_time()
        writer.write(epoch, ROWS)
        writer.commit(epoch)
        took.append(time.process_time() - began)
    early, late = (sum(took[a:b]) / (b - a) for a, b in ((100, 400), (1200, 1500)))
    print(f"{kind.name}: {early * 1000:.1f} ms a commit at first, {late * 1000:.1f} ms at last")
    assert late < 2 * early


def test_a_catalog_that_others_are_making_is_opened(tmp_path: Path) -> None:
    for attempt in range(8):
        (tmp_path / str(attempt)).mkdir()
        properties = catalog_properties(IcebergLake(tmp_path / str(attempt)).catalog, SinkError)
        together = threading.Barrier(4)

        def opened(properties: dict[str, str] = properties, together: threading.Barrier = together) -> list[Any]:
            together.wait()
            return list(load_catalog(properties, "here", SinkError).list_namespaces())

        with ThreadPoolExecutor(4) as pool:
            assert [each.result() for each in [pool.submit(opened) for _ in range(4)]] == [[]] * 4
