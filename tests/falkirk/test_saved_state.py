"""Saved state as tables: at every saved epoch that of a computation by hand, beside running jobs too."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import falkirk
from falkirk import agg
from falkirk.cli import app
from falkirk.saved_state import StoreReader
from recovery.moving.refusals import CannotMove
from runtime.supervisor.starting import JobStopped
from runtime.supervisor.stop import stop_job
from timely.errors import FalkirkError

BATCH = 25
MANY = 40 * BATCH


def number(n: int) -> int:
    return n * n % 97


def build(total: int | None = MANY, rate: float = 1e9) -> falkirk.Dataflow:
    """Counts of records, totals of columns, and text lists of a keyed process."""
    flow = falkirk.Dataflow("states")
    read = flow.source("numbers", falkirk.Rate(number, rate, total, epoch_every=BATCH))
    ignore = falkirk.Callback(lambda epoch, batch: None)
    read.key_by(lambda n: n % 7, name="by-rest").count(name="counts").to(ignore, name="out")
    columns = read.map(lambda n: {"k": f"k{n % 3}", "v": n}, name="rows").to_columns({"k": pl.String, "v": pl.Int64})
    totals = columns.group_by("k").agg(over="scope", name="sums", total=agg.sum("v"), rows=agg.count())
    totals.to_records().to(ignore, name="sums-out")
    read.key_by(lambda n: n % 2, name="parity").process(seen, name="seen").to(ignore, name="seen-out")
    return flow


def seen(key: int, value: int, timers: falkirk.Timers) -> None:
    timers.state = [*(timers.state or ()), value][-3:]


def prefix(last: int | None) -> list[int]:
    return [number(n) for n in range(MANY if last is None else (last + 1) * BATCH)]


def counts_of(table: pl.DataFrame) -> dict[Any, int]:
    return dict(zip(table["key"], table["value"], strict=True))


def check_counts(program: Any, store: Path) -> int:
    """Compare all saved states of `counts` with the prefix of the input; their number."""
    reader = StoreReader(program, store)
    (found,) = (each for each in reader.operators() if each.name == "counts")
    for last in found.epochs:
        if last is not None:
            (table,) = reader.table("counts", at=last).values()
            assert counts_of(table) == Counter(n % 7 for n in prefix(last)), last
    return len(found.epochs)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("states") / "store"
    falkirk.run(build, workers=2, store=folder)
    return folder


def test_states_of_an_ended_job_are_those_of_all_its_input(store: Path) -> None:
    assert {each.name for each in StoreReader(build, store).operators()} >= {"counts", "sums"}
    assert counts_of(falkirk.state(build, store, "counts")) == Counter(n % 7 for n in prefix(None))
    sums = falkirk.state(build, store, "sums")
    rows = pl.DataFrame({"k": [f"k{n % 3}" for n in prefix(None)], "v": prefix(None)})
    expected = {(k, total): count for k, total, count in rows.group_by("k").agg(pl.sum("v"), pl.len()).iter_rows()}
    assert {row["k"] for row in sums.iter_rows(named=True)} == {k for k, _ in expected}
    text = str(sorted(tuple(row.values()) for row in sums.drop("worker").iter_rows(named=True)))
    assert all(str(total) in text and str(count) in text for (_, total), count in expected.items())
    assert set(sums["worker"]) <= {0, 1}
    last = {key: sorted(n for n in prefix(None)[-BATCH:] if n % 2 == key)[-3:] for key in (0, 1)}
    kept = falkirk.state(build, store, "seen")
    assert all(str(last[key]) in str(kept.rows()) for key in (0, 1))


def test_each_saved_epoch_has_the_state_after_it(store: Path) -> None:
    assert check_counts(build, store) >= 1


def test_states_are_read_while_the_job_runs_and_differences_add_up(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    errors: list[BaseException] = []

    def run() -> None:
        try:
            falkirk.run(lambda: build(None, 2000.0), workers=2, store=folder, on_note=lambda _: None)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        epochs: tuple[int | None, ...] = ()
        while thread.is_alive() and len(epochs) < 2:
            try:
                reader = StoreReader(build, folder)
                epochs = next((each.epochs for each in reader.operators() if each.name == "counts"), ())
            except FalkirkError:  # there is no store, or no job in it, yet
                continue
            finally:
                threading.Event().wait(0.05)
        for last in epochs:
            assert last is not None
            (table,) = reader.table("counts", at=last).values()
            assert counts_of(table) == Counter(n % 7 for n in (number(n) for n in range((last + 1) * BATCH)))
        new, old = epochs[0], epochs[-1]
        (changed,) = reader.table("counts", at=new, since=old).values()
        signed = changed.select((pl.col("value") * pl.col("change")).sum()).item()
        assert signed == (new - old) * BATCH  # type: ignore[operator]
    finally:
        stop_job(folder)
        thread.join()
    assert [type(error) for error in errors] == [JobStopped]


def test_what_is_not_there_is_an_error_that_says_what_is(store: Path, tmp_path: Path) -> None:
    with pytest.raises(FalkirkError, match=r"no operator 'count' in the store; those with state are: .*counts"):
        falkirk.state(build, store, "count")
    with pytest.raises(FalkirkError, match="no state of count 'counts' after epoch 1000; it has: the end"):
        falkirk.state(build, store, "counts", at=1000)
    with pytest.raises(FalkirkError, match=r"'rows' .*keeps no state"):
        falkirk.state(build, store, "rows")
    other = falkirk.Dataflow("other")
    other.source("numbers", falkirk.Iterable([1])).to(falkirk.Callback(lambda epoch, batch: None))
    with pytest.raises(FalkirkError, match="the program has no operator 'counts', and the store has"):
        falkirk.state(other, store, "counts")
    changed = falkirk.Dataflow("changed")
    rows = changed.columns("rows", falkirk.Iterable([pl.DataFrame({"k": [1]})]))
    rows.group_by("k").agg(over="scope", name="counts", n=agg.count()).to_records().capture("out")
    with pytest.raises(FalkirkError, match=r"its state in the store is .* in this program"):
        falkirk.state(changed, store, "counts")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FalkirkError):
        falkirk.state(build, tmp_path / "empty", "counts")


def test_the_command_lists_prints_and_writes(store: Path, tmp_path: Path) -> None:
    program = f"{__file__}:build"
    listed = CliRunner().invoke(app, ["state", program, str(store)])
    assert listed.exit_code == 0
    assert "counts" in listed.output
    assert "end" in listed.output
    shown = CliRunner().invoke(app, ["state", program, str(store), "counts", "--rows", "2"])
    assert "counts: 7 rows" in shown.output
    assert "5 more" in shown.output
    for name in ("counts.parquet", "counts.csv", "counts.jsonl"):
        written = CliRunner().invoke(app, ["state", program, str(store), "counts", "-o", str(tmp_path / name)])
        assert "7 rows of counts are in" in written.output
    assert counts_of(pl.read_parquet(tmp_path / "counts.parquet")) == Counter(n % 7 for n in prefix(None))
    assert pl.read_csv(tmp_path / "counts.csv").height == 7
    refused = CliRunner().invoke(app, ["state", program, str(store), "counts", "-o", str(tmp_path / "counts.xls")])
    assert refused.exit_code != 0
    assert CliRunner().invoke(app, ["state", program, str(store), "--at", "3"]).exit_code == 2


def stop_once_saved(flow: falkirk.Dataflow, folder: Path) -> None:
    """Run it on two workers until a newer epoch is saved than before."""

    def newest() -> int:
        try:
            (found,) = (each for each in StoreReader(flow, folder).operators() if each.name == "counts")
        except (FalkirkError, ValueError):  # nothing is saved yet
            return -1
        return MANY if found.epochs[0] is None else found.epochs[0]

    before = newest()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            falkirk.run(flow, workers=2, store=folder)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while newest() <= before and thread.is_alive():
        threading.Event().wait(0.05)
    stop_job(folder)
    thread.join()
    assert [type(error) for error in errors] == [JobStopped]


def test_state_is_read_after_a_change_of_workers(tmp_path: Path) -> None:
    """The journals are those of the new layout."""
    flow, moved = build(rate=100.0), False
    while not moved:
        stop_once_saved(flow, tmp_path)
        try:
            falkirk.run(flow, workers=3, store=tmp_path)
            moved = True
        except CannotMove:  # it was stopped while a cut was written, and goes on to the next one
            pass
    table = falkirk.state(flow, tmp_path, "counts")
    assert counts_of(table) == Counter(n % 7 for n in prefix(None))
    assert max(table["worker"]) == 2
