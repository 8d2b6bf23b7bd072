"""A stopped job goes on with another program; its operators keep their state."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import falkirk
from falkirk import agg
from falkirk.cli import app
from recovery.policy import Lazy
from recovery.store.address import StoreAddress
from recovery.store.interface import StoreBusy
from runtime.page.recorded import RecordedJob
from runtime.supervisor.upgrading import CannotUpgrade
from timely.errors import FalkirkError

MANY, BATCH, BAD = 1_500, 10, 1_000


def number(n: int) -> int:
    return n


def fails(n: int) -> tuple[int, int]:
    return n % 7, n // (n != BAD)


def works(n: int) -> tuple[int, int]:
    return n % 7, n


def ignore(epoch: int, batch: Any) -> None:
    return None


def read(flow: falkirk.Dataflow) -> Any:
    return flow.source("numbers", falkirk.Rate(number, 2_000.0, MANY, epoch_every=BATCH)).policy(Lazy(every=5))


def former() -> falkirk.Dataflow:
    flow = falkirk.Dataflow("job")
    pairs = read(flow).map(fails, name="pairs").keyed()
    pairs.sum(name="sums").capture("out")
    pairs.count(name="counts").to(falkirk.Callback(ignore), name="ignored")
    return flow


def changed(*, name: str = "sums", count: bool = True, more: bool = True) -> falkirk.Dataflow:
    flow = falkirk.Dataflow("job")
    pairs = read(flow).map(works, name="pairs")
    kept = pairs.filter(lambda pair: pair[0] >= 0, name="all").keyed()
    kept.sum(name=name).capture("out")
    if count:
        kept.count(name="counts").to(falkirk.Callback(ignore), name="ignored")
    if more:
        columns = pairs.map(lambda pair: {"k": pair[0], "v": pair[1]}, name="rows").to_columns(
            {"k": pl.Int64, "v": pl.Int64}
        )
        columns.group_by("k").agg(over="scope", name="rows of each", n=agg.count()).to_records().capture("since")
    return flow


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A job of two workers that failed in the midst of its work, after some checkpoints."""
    folder = tmp_path / "store"
    with pytest.raises(FalkirkError, match="integer division"):
        falkirk.run(former, workers=2, store=folder)
    return folder


def largest(result: Any, capture: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for _, batch in result.captured(capture):
        for key, value in batch:
            found[key] = max(value, found.get(key, value))
    return found


TOTALS = {key: sum(range(key, MANY, 7)) for key in range(7)}


def test_totals_go_on_and_what_is_added_begins_where_the_plan_says(store: Path) -> None:
    changes = {change.name: change for change in falkirk.upgrade(changed, store)}
    assert {name: change.fate for name, change in changes.items()} == {
        **dict.fromkeys(("numbers", "sums", "out", "ones-1", "counts", "ignored"), "same"),
        "pairs": "changed",
        **dict.fromkeys(("all", "rows", "to_columns-1", "rows of each", "to_records-1", "since"), "added"),
    }
    assert [each.fate for each in falkirk.upgrade(changed, store)] == ["same"] * len(changes)
    with RecordedJobOf(store) as job:
        assert job.verdict.state == "failed"
    result = falkirk.run(changed, workers=2, store=store)
    assert largest(result, "out") == TOTALS
    begins = int(changes["rows of each"].detail.removeprefix("begins at epoch "))
    rows = [row for _, batch in result.captured("since") for row in batch]
    assert sum(max(row["n"] for row in rows if row["k"] == key) for key in range(7)) == MANY - begins * BATCH


class RecordedJobOf:
    """The page's view of a store."""

    def __init__(self, folder: Path) -> None:
        self._opened = StoreAddress.of(folder).open()

    def __enter__(self) -> RecordedJob:
        return RecordedJob(self._opened)

    def __exit__(self, *_: object) -> None:
        self._opened.close()


def test_what_is_renamed_goes_on_and_what_is_removed_is_named(store: Path) -> None:
    build = partial(changed, name="totals", count=False, more=False)
    fates = {each.name: (each.fate, each.detail) for each in falkirk.upgrade(build, store, renames={"sums": "totals"})}
    assert fates["totals"] == ("renamed", "was called 'sums'")
    assert fates["counts"] == ("removed", "its state is dropped")
    # and then with another number of workers
    assert largest(falkirk.run(build, workers=3, store=store), "out") == TOTALS


def test_another_way_of_saving_is_a_change(store: Path) -> None:
    def logged(log: bool = True) -> falkirk.Dataflow:
        flow = falkirk.Dataflow("job")
        with flow.region("front", policy=Lazy(every=5, log_outputs=log)):
            pairs = flow.source("numbers", falkirk.Rate(number, 2_000.0, MANY, epoch_every=BATCH))
            pairs = pairs.map(works, name="pairs").keyed()
            pairs.sum(name="sums").capture("out")
            pairs.count(name="counts").to(falkirk.Callback(ignore), name="ignored")
        return flow

    changes = {change.name: change for change in falkirk.upgrade(logged, store)}
    assert changes["numbers"].fate == "changed"
    assert "logs outputs" in changes["numbers"].detail
    assert {each.fate for each in falkirk.upgrade(logged, store)} == {"same"}
    assert largest(falkirk.run(logged, workers=2, store=store), "out") == TOTALS


def test_a_dry_run_changes_nothing(store: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in store.rglob("*") if path.is_file())
    falkirk.upgrade(changed, store, dry_run=True)
    falkirk.upgrade(changed, store, dry_run=True, renames={"sums": "sums"})
    assert before == sorted((path, path.stat().st_mtime_ns) for path in store.rglob("*") if path.is_file())


def other_kind() -> falkirk.Dataflow:
    flow = falkirk.Dataflow("job")
    pairs = read(flow).map(works, name="pairs").keyed()
    pairs.count(name="sums").capture("out")
    return flow


def in_a_loop() -> falkirk.Dataflow:
    flow = falkirk.Dataflow("job")
    pairs = read(flow).map(works, name="pairs")

    def inside(inner: Any) -> Any:
        return inner.keyed().sum(name="sums").records().filter(lambda pair: False)

    pairs.iterate(inside, name="loop").capture("out")
    return flow


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (other_kind, "count 'sums' .* is another one: its kind was 'sum', and is 'count'"),
        (in_a_loop, "sum 'sums' .* is another one: its number of scopes was 1, and is 2"),
    ],
)
def test_what_cannot_go_on_is_refused_and_the_store_stays_as_it_was(
    store: Path, build: Callable[[], falkirk.Dataflow], reason: str
) -> None:
    with pytest.raises(CannotUpgrade, match=reason):
        falkirk.upgrade(build, store)
    mended = partial(falkirk.run, former_mended, workers=2, store=store, accept="pairs")
    assert largest(mended(), "out") == TOTALS


def former_mended() -> falkirk.Dataflow:
    flow = falkirk.Dataflow("job")
    pairs = read(flow).map(works, name="pairs").keyed()
    pairs.sum(name="sums").capture("out")
    pairs.count(name="counts").to(falkirk.Callback(ignore), name="ignored")
    return flow


def counts(*wanted: str) -> Callable[[], falkirk.Dataflow]:
    """Unnamed counts of several streams, one of which fails."""

    def build() -> falkirk.Dataflow:
        flow = falkirk.Dataflow("counts")
        for each in wanted:
            numbers = flow.source(each, falkirk.Rate(number, 2_000.0, MANY, epoch_every=BATCH)).policy(Lazy(every=5))
            pairs = numbers.map(fails if each == "bad" else works, name=f"pairs of {each}")
            pairs.keyed().count().capture(f"counts of {each}")
        return flow

    return build


def test_counted_names_have_to_be_confirmed(tmp_path: Path) -> None:
    """Without one of them the others would have the state of their neighbours."""
    with pytest.raises(FalkirkError, match="integer division"):
        falkirk.run(counts("bad", "good"), store=tmp_path)
    with pytest.raises(CannotUpgrade, match=r"count 'count-1' .* may have been another operator before"):
        falkirk.upgrade(counts("good"), tmp_path)
    falkirk.upgrade(counts("good"), tmp_path, renames={"count-2": "count-1", "ones-2": "ones-1", "count-1": "gone"})
    result = falkirk.run(counts("good"), store=tmp_path)
    assert largest(result, "counts of good") == {key: len(range(key, MANY, 7)) for key in range(7)}


def test_a_store_in_use_is_left_as_it_is(store: Path) -> None:
    with StoreAddress.of(store).open() as opened, opened.lock(), pytest.raises(StoreBusy, match="is using the store"):
        falkirk.upgrade(changed, store)


PROGRAM = """
import falkirk

def number(n):
    return n

def build(bad=-1, more=False):
    flow = falkirk.Dataflow("job")
    read = flow.source("numbers", falkirk.Rate(number, 2000.0, 600, epoch_every=10)).policy(falkirk.Lazy(every=5))
    pairs = read.map(lambda n: (n % 3, 1 // (n != bad)), name="pairs").keyed()
    pairs.count(name="counts").capture("out")
    if more:
        pairs.sum(name="sums").capture("more")
    return flow
"""


def test_the_command_plans_asks_and_writes(tmp_path: Path) -> None:
    program, folder = tmp_path / "app.py", str(tmp_path / "store")
    program.write_text(PROGRAM)
    with pytest.raises(FalkirkError, match="integer division"):
        falkirk.run(falkirk_program(program, bad=400), store=folder)
    words = ["upgrade", str(program), "--store", folder, "--arg", "more=true"]

    def said(*more: str, answer: str | None = None) -> tuple[int, str]:
        done = CliRunner().invoke(app, [*words, *more], input=answer)
        return done.exit_code, done.output

    code, text = said("--dry-run")
    assert code == 0
    assert "nothing was changed: this is what falkirk upgrade would do without --dry-run" in text
    code, text = said(answer="n\n")
    assert (code, "nothing was changed" in text, "sums" in text) == (1, True, True)
    assert said("--rename", "sums")[0] == said("--json")[0] == 2
    assert "the store has no operator 'x'" in said("--rename", "x=y")[1]
    code, text = said("--yes", "--json")
    assert [each["name"] for each in json.loads(text) if each["fate"] == "added"] == ["sums", "more"]
    assert "nothing to change" in said()[1]


def falkirk_program(path: Path, **args: Any) -> Any:
    from runtime.program import Program

    return Program(path=str(path), args=args).build()
