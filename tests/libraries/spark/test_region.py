"""The results of a batch region, their epochs, and what it leaves behind: all of it is the real thing, but for Spark itself.

Workers, stores, monitor and faults are simulated; files are real.
"""

from __future__ import annotations

import functools
import operator
import os
import shutil
import time
from collections import Counter
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falkirk.simulate.simulation import Simulation
from falkirk.simulate.world import World
from libraries import spark
from libraries.columns.verbs.dataflow import Dataflow
from libraries.spark.dataflow import operators
from libraries.spark.dataflow.placement import home, keys_of
from libraries.spark.dataflow.skipped_runs import SkippedRuns
from libraries.spark.files import manifest
from libraries.spark.files import parquet as files
from libraries.spark.files.manifest import Calendar, Manifest, ManifestEntry
from recovery.place import Place
from recovery.policy import Batch, Lazy
from runtime.program import Program
from runtime.run import run
from runtime.session.session import Session
from runtime.sources.limits import Limits
from runtime.supervisor.supervisor import Job
from tests.libraries.spark.local_runner import LocalRunner
from tests.support.profile import tries
from timely.data.batch import as_arrow
from timely.data.codec.tables import write_table
from timely.errors import FalkirkError, GraphError
from timely.io import Batches, Iterable
from timely.io.memory import rows_of
from timely.time import INF, Frontier

Rows = list[tuple[int, int]]


def totals(table: pa.Table) -> pa.Table:
    return table.group_by("k").aggregate([("v", "sum")]).rename_columns(["k", "s"]).sort_by("k")


def program(batches: list[Rows], runner: LocalRunner, **arguments: Any) -> Dataflow:
    """Two batches make an epoch; what the region gives is added up again behind it, so that it has to arrive once."""
    flow = Dataflow("region")
    tables = [pa.table({"k": [k for k, _ in rows], "v": [v for _, v in rows]}, SCHEMA) for rows in batches]
    cells = flow.columns("in", Batches(tables, per_epoch=2))
    with flow.region("history", policy=Batch(log_outputs=True)):
        found = spark.batch(cells, totals, name="history", runner=runner, checkpoint=2, **arguments)
    found.capture("out")
    found.to_records().map(lambda row: (0, row["s"])).keyed().sum(name="sum").policy(Lazy(every=3)).capture("sums")
    return flow


SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def expected(batches: list[Rows], every: int | str = 1, over: int | str = "new") -> dict[int, Rows]:
    """By the words of the documentation."""
    if every == "end":
        all_rows = expected([[row for rows in batches for row in rows], []])
        return {INF: all_rows[0]} if all_rows else {}
    assert isinstance(every, int)
    epochs = [functools.reduce(operator.iadd, batches[at : at + 2], []) for at in range(0, len(batches), 2)]
    found = {}
    for due in range(every - 1, len(epochs) + every, every):
        if not any(epochs[max(0, due - every + 1) : due + 1]):
            continue
        length = {"new": every, "all": due + 1}.get(str(over)) or int(over)
        sums: Counter[int] = Counter()
        for k, v in functools.reduce(operator.iadd, epochs[max(0, due - length + 1) : due + 1], []):
            sums[k] += v
        found[due] = sorted(sums.items())
    return found


def given_by(world: World) -> dict[int, Rows]:
    world.run()
    result = world.outside.result()
    return {
        time[0]: sorted((row["k"], row["s"]) for row in rows_of(rows))
        for (name, time), rows in sorted(result.items())
        if name == "out" and rows
    }


BATCHES = st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 9)), max_size=4), max_size=12)
CALENDARS = st.one_of(
    st.tuples(st.sampled_from([1, 2, 3, 4, "end"]), st.sampled_from(["new", "all"])),
    st.integers(1, 3).flatmap(lambda every: st.tuples(st.just(every), st.integers(every, 6))),
)


@settings(max_examples=25)
@given(batches=BATCHES, calendar=CALENDARS, workers=st.integers(1, 3), seed=st.integers(0, 99))
def test_region_runs_at_the_epochs_that_are_due_over_the_rows_that_it_is_told_to(
    batches: list[Rows], calendar: tuple[Any, Any], workers: int, seed: int
) -> None:
    every, over = calendar
    runner = LocalRunner(totals)
    world = World(lambda: program(batches, runner, every=every, over=over), workers, seed, ())
    right = expected(batches, every, over)
    assert given_by(world) == right
    assert sorted(runner.ran) == sorted(right)


SOME = [[(i % 3, i + j) for j in range(3)] for i in range(24)]


class Telling(LocalRunner):
    """Gives what came of each second run as rows, as Spark does where there are few."""

    def run(self, context: Any, inputs: Any, tables: Any, output: str, rows: int) -> Any:
        written = super().run(context, inputs, tables, output, rows)
        if not written or len(self.ran) % 2:
            return written
        table = pa.concat_tables([pq.read_table(path) for path, _ in written])
        shutil.rmtree(output)
        return write_table(table).to_pybytes()


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"over": "all"}, marks=pytest.mark.check),
        pytest.param({"every": 2}, marks=pytest.mark.check),
        {"over": 3},
        pytest.param({"every": "end"}, marks=pytest.mark.soak),
    ],
    ids=str,
)
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.check), 2])
def test_region_gives_the_same_whatever_fails(arguments: dict[str, Any], workers: int) -> None:
    runner = Telling(totals)
    simulation = Simulation(lambda: program(SOME, runner, **arguments), workers)
    for seed in range(tries(4)):
        failure = simulation.run(seed)
        assert failure is None, f"seed {seed}: {failure and failure.error}"
    assert simulation.tally.rounds > 4


class Dealing(LocalRunner):
    """Deals the rows of a run out anew at each attempt, as Spark may: one a file, from another one on."""

    def run(self, context: Any, inputs: Any, tables: Any, output: str, rows: int) -> Any:
        attempt = self.ran.count(files.epoch_of(Path(output)))
        self.rows, self.function = 1, lambda table: _turned(totals(table), attempt)
        return super().run(context, inputs, tables, output, rows)


def _turned(table: pa.Table, by: int) -> pa.Table:
    return pa.concat_tables([table.slice(by % len(table)), table.slice(0, by % len(table))])


def spared_behind(victim: int, upto: int, seed: int = 5, **arguments: Any) -> int:
    """Of a job of two workers one dies when runs up to `upto` are durable. Its outputs are right; is the other one spared?"""
    runner = Dealing(totals)
    world = World(lambda: program(SOME[:16], runner, **arguments), 2, seed, ())
    while durable_upto(world) <= upto:
        world.step()
    process = world._processes[Place(victim)]
    assert process is not None
    world._kill(process, "killed")
    given, right = given_by(world), expected(SOME[:16], 1, arguments["over"])
    right[INF] = right[max(right)]
    assert given == {time: right[time] for time in given}
    sums = [rows for (name, _), rows in sorted(world.outside.result().items()) if name == "sums"]
    assert sums == [[(0, n)] for n in accumulate(sum(s for _, s in rows) for _, rows in sorted(given.items()))]
    world._files.close()
    return world.checks.spared


ARGUMENTS: list[dict[str, Any]] = [{"over": "all"}, {"every": 3600.0, "over": 3}]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=["epochs", "period"])
def test_who_lives_keeps_complete_epochs_behind_a_region_though_spark_deals_rows_out_anew(
    arguments: dict[str, Any],
) -> None:
    assert spared_behind(home(2), 3, **arguments) == spared_behind(1 - home(2), 3, **arguments) == 1


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=["epochs", "period"])
def test_if_runs_were_not_published_who_lives_would_have_a_share_of_one_and_the_dead_of_another(
    arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libraries.spark.dataflow.operators.published", lambda path, run: run())
    with pytest.raises(FalkirkError, match=r"'history.*' of worker 0 .* sent .* and .* when it did this again"):
        spared_behind(home(2), 3, 0, **arguments)
    monkeypatch.setattr("falkirk.simulate.again.Sends.complete", lambda *_: None)
    with pytest.raises((FalkirkError, AssertionError)):  # records come twice, or not at all
        spared_behind(home(2), 3, 0, **arguments)


def test_run_whose_output_is_durable_is_never_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    again = 0
    for seed in range(tries(5)):
        runner = LocalRunner(totals)
        world = World(lambda runner=runner: program(SOME, runner, over="all"), 2, seed)  # type: ignore[misc]
        safe: dict[int, int] = {}

        def before(epoch: int, world: World = world, safe: dict[int, int] = safe) -> None:
            upto = durable_upto(world)
            assert epoch >= upto, f"epoch {epoch} runs again, and everything before {upto} was safe"
            safe[epoch] = upto

        runner.before = before
        world.run()
        again += len(runner.ran) - len(set(runner.ran))
        assert set(runner.ran) == set(range(12))
    assert again > 0  # what was not safe is done again: the faults did hit


@pytest.mark.check
@pytest.mark.parametrize("over", ["new", "all"])
def test_run_that_is_done_again_reads_the_files_of_a_table_that_it_was_given_however_the_folder_changes(
    over: Any, tmp_path: Path
) -> None:
    again = left = 0
    for seed in range(4):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        runner = LocalRunner(totals)
        flow = functools.partial(program, SOME, runner, over=over, tables={"names": folder})
        world = World(flow, 2, seed)
        pinned: dict[int, Any] = {}

        def before(epoch: int, folder: Path = folder, pinned: Any = pinned, tables: Any = runner.tables) -> None:
            nonlocal again
            given = tables[-1]["names"]
            assert all(file.base == str(folder) for file in given)
            again += epoch in pinned
            assert given == pinned.setdefault(epoch, given)
            (folder / f"{len(tables)}").write_bytes(b"more")

        (folder / "0").write_bytes(b"one")
        runner.before = before
        world.run()
        assert len({len(tables["names"]) for tables in runner.tables}) > 6  # later runs see what has come
        left += len(list(world._files.path.rglob("*.tables")))
    assert again > 0
    assert left < 4 * 12  # of what is safe they go


@pytest.mark.parametrize("over", ["new", "all", 3])
@pytest.mark.parametrize("store", [True, False], ids=["store", "no store"])
def test_runs_that_wait_until_the_files_of_a_table_are_listed_have_their_rows(
    store: bool, over: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All epochs are complete before the first list is made, and nothing is ever rolled back where there is no store."""
    (tmp_path / "names.parquet").write_bytes(b"names")
    pin = operators.pin_once

    def slowly(*how: Any) -> Any:
        time.sleep(0.3 * (how[1] == 0))
        return pin(*how)

    monkeypatch.setattr(operators, "pin_once", slowly)
    flow = functools.partial(program, SOME, LocalRunner(totals), over=over, tables={"names": tmp_path})
    if store:
        assert given_by(World(flow, 1, 7, ())) == expected(SOME, 1, over)
        return
    found: dict[int, Rows] = {}
    for time_, batch in run(flow).captured("out"):
        found.setdefault(time_[0], []).extend((row["k"], row["s"]) for row in rows_of(batch))
    assert {epoch: sorted(rows) for epoch, rows in found.items()} == expected(SOME, 1, over)


def durable_upto(world: World) -> int:
    """Up to where compute was safe when its worker last heard: the state that it is told of, on any living process."""
    found = 0
    for process in world._processes.values():
        if process is None or process.session is None or process.recovery is None:
            continue
        session = process.session
        node = session.plan.graph.node_named("history")
        op = session.plan.of_node[node.index]
        if session.index == home(2):
            found = max(found, process.recovery.agent.low[session.index][op][0])
    return found


def slow_runs() -> Dataflow:
    """Epochs that are complete at once, and two runs, due at once, that take longer than the way from one cut to the next."""
    runner = LocalRunner(lambda cells: cells)
    runner.before = lambda epoch: time.sleep(1.0)
    flow = Dataflow("slow")
    cells = flow.columns("cells", Batches([pl.DataFrame({"n": [number]}) for number in range(40)]))
    with flow.region("history", policy=Batch(log_outputs=True)):
        found = spark.batch(
            cells, "the runner knows", every=20, over="all", runner=runner, name="found", checkpoint=0.05
        )
    found.to_records().map(lambda row: (0, row["n"])).keyed().sum(name="sum").policy(
        Lazy(every=0.05)
    ).records().capture("sums")
    return flow


def test_cuts_are_made_while_runs_of_later_epochs_are_due_and_under_way(tmp_path: Path) -> None:
    cuts: list[tuple[float, str]] = []
    job = Job(
        Program(flow=slow_runs),
        1,
        tmp_path / "store",
        Limits(epochs=64),
        lambda kind, at, data: cuts.append((at, kind)),
    )
    (*_, (_, last)) = job.run().captured("sums")
    assert last == [(0, sum(range(20)) + sum(range(40)))]
    began, ended = cuts[0][0], cuts[-1][0]
    assert any(kind == "checkpoint" and began + 0.1 < at < ended - 0.5 for at, kind in cuts), (
        "otherwise it shows nothing"
    )


def test_files_go_when_no_run_can_need_them_any_more() -> None:
    for seed in range(tries(1)):
        runner = LocalRunner(totals)
        world = World(lambda runner=runner: program(SOME * 4, runner, every=2), 2, seed)  # type: ignore[misc]
        world.run()
        left = list(world._files.path.rglob("*.parquet"))
        assert len(left) < 48, "96 were written for Spark, and 24 by it"
        assert min(int(path.name[:20]) for path in left if path.parent.name == "in") > 8
        world._files.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_without_a_store_files_go_as_soon_as_they_were_read(workers: int, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("FALKIRK_FILES", str(tmp_path))
    seen: list[int] = []
    runner = LocalRunner(totals)
    runner.before = lambda epoch: seen.append(len(parquet_under(tmp_path)))
    flow = program(SOME, runner)
    with Session(flow) as session:
        session.run()
        given = {t[0]: sorted((r["k"], r["s"]) for r in rows_of(b)) for t, b in session.captured("out")}
    assert given.keys() == expected(SOME).keys()
    assert max(seen) < 24
    assert parquet_under(tmp_path) == []


def parquet_under(folder: Path) -> list[str]:
    """Also while folders go: `Path.rglob` would fail then."""
    return [name for _, _, names in os.walk(folder) for name in names if name.endswith(".parquet")]


def test_folder_that_another_worker_removes_while_it_is_swept_is_gone(monkeypatch: Any, tmp_path: Path) -> None:
    gone, kept = tmp_path / files.output_name(1), tmp_path / files.output_name(2)
    for folder in (gone, kept):
        folder.mkdir()
        (folder / "000000.w0.parquet").touch()
    scandir = os.scandir

    def other(path: Any = ".") -> Any:
        if Path(path) == gone and gone.exists():
            (gone / "000000.w0.parquet").unlink()
            gone.rmdir()
        return scandir(path)

    monkeypatch.setattr("os.scandir", other)
    files.sweep_outputs(tmp_path, upto=5, worker=0)
    assert list(tmp_path.iterdir()) == []


def test_two_inputs_of_which_one_is_empty_at_times_and_a_region_behind_a_region() -> None:
    def joined(orders: pa.Table, customers: pa.Table) -> pa.Table:
        return orders.join(customers, "k").group_by("k").aggregate([("v", "sum"), ("w", "max")]).sort_by("k")

    def build() -> Dataflow:
        flow = Dataflow("two")
        orders = flow.columns("orders", Batches([pa.table({"k": [1, 2, i], "v": [i, i, i]}) for i in range(6)]))
        customers = flow.columns("customers", Batches([pa.table({"k": [0, 1, 2, 3, 4, 5], "w": [9, 8, 7, 6, 5, 4]})]))
        one = spark.batch({"orders": orders, "customers": customers}, joined, over="all", name="one", runner=first)
        two = spark.batch(one, lambda table: table.select(["v_sum"]), every=3, name="two", runner=second)
        two.capture("out")
        return flow

    first, second = LocalRunner(joined), LocalRunner(lambda table: table.select(["v_sum"]))
    world = World(build, 2, 5)
    world.run()
    result = world.outside.result()
    sums = {time[0]: sum(row["v_sum"] for row in rows_of(rows)) for (_, time), rows in result.items() if rows}
    upto = [3 * sum(range(i + 1)) for i in range(6)]
    assert sums == {2: sum(upto[:3]), 5: sum(upto[3:])}


def priced(facts: pa.Table, rates: pa.Table, days: pa.Table) -> pa.Table:
    """For each run the sums of what it is over."""
    return pa.table(
        {
            "facts": [sum(facts["n"].to_pylist())],
            "rates": [sum(rates["n"].to_pylist())],
            "days": [sum(days["n"].to_pylist())],
        }
    )


NAMES = "facts", "rates", "days"


def over_each(given: dict[str, list[int]], every: int, over: dict[str, Any], runner: LocalRunner) -> Dataflow:
    """Regions whose inputs have a number at each epoch, or 0 for no row."""
    flow = Dataflow("each")
    schema = pa.schema([("n", pa.int64())])
    streams = {
        name: flow.columns(f"in-{name}", Batches([pa.table({"n": [n] if n else []}, schema) for n in given[name]]))
        for name in NAMES
    }
    with flow.region("history", policy=Batch(log_outputs=True)):
        found = spark.batch(
            streams,
            priced,
            every=every,
            over=over,
            schemas=dict.fromkeys(NAMES, schema),
            name="priced",
            runner=runner,
            checkpoint=2,
        )
    found.capture("out")
    return flow


def sums_of(world: World) -> dict[int, dict[str, int]]:
    world.run()
    return {time[0]: row for (_, time), rows in sorted(world.outside.result().items()) for row in rows_of(rows)}


EACH = st.one_of(st.sampled_from(["new", "all"]), st.integers(3, 5))


@settings(max_examples=25)
@given(
    given=st.integers(1, 9).flatmap(
        lambda epochs: st.fixed_dictionaries(
            {name: st.lists(st.integers(0, 9), min_size=epochs, max_size=epochs) for name in NAMES}
        )
    ),
    every=st.integers(1, 3),
    over=st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, EACH)),
    workers=st.integers(1, 2),
    seed=st.integers(0, 99),
)
def test_each_input_has_the_rows_that_it_is_told_to(
    given: dict[str, list[int]], every: int, over: dict[str, Any], workers: int, seed: int
) -> None:
    right = {}
    for due in range(every - 1, len(given["facts"]) + every, every):
        if not any(given[name][at] for name in NAMES for at in range(due - every + 1, min(due + 1, len(given[name])))):
            continue
        row = {}
        for name in NAMES:
            which = over.get(name, "new")
            length = {"new": every, "all": due + 1}.get(str(which)) or int(which)
            row[name] = sum(given[name][max(0, due - length + 1) : due + 1])
        right[due] = row
    assert sums_of(World(lambda: over_each(given, every, over, LocalRunner(priced)), workers, seed, ())) == right


@pytest.mark.check
@pytest.mark.parametrize("over", [{"rates": "all"}, {"rates": "all", "days": 3}, {"rates": 9, "days": 3}], ids=str)
def test_each_input_has_its_rows_whatever_fails(over: dict[str, Any]) -> None:
    given = {"facts": list(range(1, 25)), "rates": [7 * n % 5 for n in range(24)], "days": [n % 3 for n in range(24)]}
    simulation = Simulation(lambda: over_each(given, 1, over, LocalRunner(priced)), 2)
    for seed in range(tries(3)):
        failure = simulation.run(seed)
        assert failure is None, f"seed {seed}: {failure and failure.error}"
    assert simulation.tally.rounds > 3


def test_files_of_an_input_over_what_is_new_go_though_another_is_over_everything() -> None:
    there: list[Counter[str]] = []

    class Looking(LocalRunner):
        def run(self, context: Any, inputs: Any, tables: Any, output: str, rows: int) -> Any:
            folder = Path(output).parent.parent / "in"
            there.append(Counter(path.name.split("-")[1] for path in folder.glob("*.parquet")))
            return super().run(context, inputs, tables, output, rows)

    epochs = 100
    given = dict.fromkeys(NAMES, [1] * epochs)
    flow = over_each(given, 1, {"rates": "all", "days": 3}, Looking(priced))
    with Session(flow) as session:
        session.run()
        held = session.captured("out")
    # Two runs may be under way at once, so that a later one may be the first to end.
    found = sorted((time[0], *row.values()) for time, batch in held for row in rows_of(batch))
    assert found == [(epoch, 1, epoch + 1, min(3, epoch + 1)) for epoch in range(epochs)]
    last = there[-1]
    ahead = epochs - len(there) + 20  # spilled, and not due yet
    assert last["rates"] < 4 * manifest.FAN + ahead
    assert last["facts"] <= ahead
    assert last["days"] <= 3 + ahead


def test_manifest_forgets_of_each_input_what_no_run_needs() -> None:
    held = Manifest(Calendar.of_inputs(1, {"a": "new", "b": "all", "c": 2}))
    for epoch in range(5):
        held.add((epoch,), [ManifestEntry(name, f"{name}{epoch}", 1, 1, b"S") for name in "abc"])
    held.add((5,), [ManifestEntry("b", "b5", 1, 1, b"S")])
    assert [entry.path for entry in held.entries(0, 4)] == ["b0", "b1", "b2", "b3", "c3", "a4", "b4", "c4"]
    held.compact(Frontier.lexicographic((5,)))
    assert held.schemas() == {"a": (4, b"S"), "b": (5, b"S"), "c": (4, b"S")}
    left = [entry.path for time in sorted(held.times()) for entry in held._at(time)]
    assert sorted(left) == ["a4", "b0", "b1", "b2", "b3", "b4", "b5", "c4"]


def test_input_without_rows_yet_needs_its_columns_to_be_declared() -> None:
    def build(**more: Any) -> Dataflow:
        flow = Dataflow("two")
        some = flow.columns("some", Batches([pa.table({"k": [1]})]))
        none = flow.columns("none", Batches([], per_epoch=1))
        runner = LocalRunner(lambda a, b: pa.table({"n": [len(a), len(b)]}))
        spark.batch({"a": some, "b": none}, "ignored", runner=runner, name="region", **more).capture("out")
        return flow

    with pytest.raises(FalkirkError, match=r"due at epoch 0.*input 'b' has had no rows yet.*schemas="):
        run(build())
    found = run(build(schemas={"b": pa.schema([("x", pa.int32())])})).captured("out")
    assert [rows_of(batch) for _, batch in found] == [[{"n": 1}, {"n": 0}]]


def test_period_leaves_runs_out_but_never_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.0, 2.0, 31.0, 32.0] + [33.0] * 50)
    monkeypatch.setattr("libraries.spark.dataflow.region.time", SimpleNamespace(monotonic=lambda: next(times)))
    runner = LocalRunner(totals)
    flow = program(SOME, runner, every=30.0, over="all")
    with Session(flow) as session:
        session.run()
        found = session.captured("out")
    *early, last = runner.ran
    assert early == [0, 3]
    assert last > 1 << 60  # the time of what comes when all input is over
    sums = sum(row["s"] for time, batch in found if time[0] == last for row in rows_of(batch))
    assert sums == sum(v for rows in SOME for _, v in rows)


@pytest.mark.check
@pytest.mark.parametrize(("over", "fan"), [("all", manifest.FAN), ("all", 2), (3, manifest.FAN)])
def test_run_that_a_period_has_left_out_is_made_up_for_whatever_fails(
    over: int | str, fan: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "FAN", fan)
    batches = SOME[:8] + [[]] * 40  # a long time in which there is nothing to run, and the rest goes on
    right = expected(batches, 1, over)
    last = max(right)
    killed = 0
    for seed in range(tries(6)):
        runner = LocalRunner(totals)
        world = World(lambda runner=runner: program(batches, runner, every=3600.0, over=over), 2, seed)  # type: ignore[misc]
        while durable_upto(world) <= last and not world.finished:
            world.step()
        if (process := world._processes[Place(home(2))]) is not None and not world.finished:
            world._kill(process, "killed")  # when nobody will ever be sent what it was to run
            killed += 1
        given = given_by(world)
        (end,) = given.keys() & {last, INF}  # one or the other, and never both
        assert given.pop(end) == right[last], f"seed {seed}"
        assert given == {time: right[time] for time in given}
        world._files.close()
    assert killed > 2


RUN_7, RUN_9 = ((first, [ManifestEntry("in", f"file {first}", 1, 1, b"")], [("in", b"")]) for first in (5, 7))


def test_run_that_was_left_out_is_known_as_of_each_bound() -> None:
    kept = SkippedRuns()
    kept.note((6,), None)
    kept.note((7,), RUN_7)
    saved = kept.snapshot(Frontier.lexicographic((7,)), Frontier.empty(1))
    kept.note((8,), None)
    assert (kept.last(), kept.first()) == (None, 5)
    kept.note((9,), RUN_9)
    more = kept.snapshot(Frontier.lexicographic((9,)), Frontier.lexicographic((7,)))
    kept.compact(Frontier.lexicographic((7,)))
    kept.keep(Frontier.lexicographic((8,)))
    assert kept.last() is None
    kept.keep(Frontier.lexicographic((7,)))
    assert kept.last() == RUN_7
    again = SkippedRuns()
    for runs, last, first in [(saved, RUN_7, 5), (saved + more, RUN_9, 5), ([], None, INF)]:
        again.restore(reversed(runs))
        assert (again.last(), again.first()) == (last, first)


# What is refused


def test_schema_that_changes_is_an_error_that_says_what_has_changed_and_when() -> None:
    def job(*tables: Any) -> None:
        flow = Dataflow("changes")
        cells = flow.columns("in", Batches(list(tables), per_epoch=2))
        spark.batch(cells, totals, name="history", runner=LocalRunner(totals)).capture("out")
        run(flow)

    good = pa.table({"k": [1], "v": [2]})
    wide = pa.table({"k": [1], "v": [2.5]})
    job(good, good, good, good)
    job(good.to_pandas().pipe(pl.from_pandas), good)
    with pytest.raises(FalkirkError, match=r"history-gather .*test_region.py.*at epoch 1.*'v' was int64 and is double"):
        job(good, good, wide)
    with pytest.raises(FalkirkError, match=r"'w' is new"):
        job(good, good, good.append_column("w", [[1]]))
    with pytest.raises(FalkirkError, match=r"within epoch 0|column types|different columns"):
        job(good, good.drop_columns(["v"]))


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([1, 2], pa.duration("s")), r"column 'c' is of type duration\[s\], which Spark cannot take"),
        (pa.array([1, 2], pa.time64("us")), r"time64\[us\]"),
        (pa.array([[1], [2]], pa.list_(pa.duration("s"))), "duration"),
        (pa.array([2**63, 1], pa.uint64()), "values of column 'c' do not fit"),
        (pl.Series([object(), object()], dtype=pl.Object), "c"),
    ],
    ids=["duration", "time", "nested", "too-large", "object"],
)
def test_column_that_cannot_go_to_spark_is_named_with_its_type(column: Any, said: str) -> None:
    batch = pl.DataFrame({"c": column}) if isinstance(column, pl.Series) else pa.table({"c": column})
    flow = Dataflow("types")
    spark.batch(flow.columns("in", Batches([batch])), totals, name="history", runner=LocalRunner(totals)).capture("out")
    with pytest.raises(FalkirkError, match=said):
        run(flow)


def test_columns_of_other_kinds_go_as_the_nearest_that_spark_has() -> None:
    flow = Dataflow("types")
    sent = pl.DataFrame(
        {
            "a": [1, 2],
            "b": ["x", "y"],
            "c": [b"1", None],
            "d": [None, None],
            "e": [[1], [2, 3]],
            "f": [{"g": 1.5}, None],
        },
        schema_overrides={"a": pl.UInt32, "b": pl.Categorical, "e": pl.List(pl.UInt8)},
    ).with_columns(t=pl.datetime(2024, 1, 2, 3, 4, 5, time_unit="ns"))
    out = spark.batch(flow.columns("in", Batches([sent])), totals, runner=LocalRunner(lambda table: table))
    out.capture("out")
    ((_, batch),) = run(flow).captured("out")
    assert rows_of(batch) == sent.with_columns(pl.col("b").cast(pl.String), pl.col("d").cast(pl.String)).to_dicts()


def test_records_and_streams_inside_a_loop_are_refused_at_the_users_line() -> None:
    flow = Dataflow("refused")
    records = flow.source("in", Iterable([1, 2]))
    columns = records.to_columns()
    inside = columns.enter(flow.scope("inner"))
    for arguments, said in [
        ((records, "select 1"), r"is Stream, not Columns"),
        ((inside, "select 1"), "leave\\(\\) first"),
        (({"a b": columns}, "select 1"), "name of a table in SQL"),
        (({}, "select 1"), "at least one stream"),
        ((columns, 7), "a function or SQL text, not 7"),
        ((columns, " "), "a function or SQL text"),
    ]:
        with pytest.raises(GraphError, match=f"test_region.py.*{said}"):
            spark.batch(*arguments)  # type: ignore[arg-type]
    for more, said in [
        ({"over": "some"}, "must be"),
        ({"over": 0}, "must be"),
        ({"every": 0}, "every=0"),
        ({"every": 5, "over": 2}, "leaves out epochs"),
        ({"every": "end", "over": 2}, "one run over everything"),
        ({"every": "5s"}, "is a period"),
        ({"tables": {"input": "x"}}, "an input and of a table"),
        ({"tables": {"dim": 3}}, "'dim' is int"),
        ({"schemas": {"other": pa.schema([])}}, "schemas="),
    ]:
        with pytest.raises(GraphError, match=said):
            spark.batch(columns, "select 1", **more)  # type: ignore[arg-type]


# The arithmetic


@given(every=st.integers(1, 6), length=st.integers(0, 9), epoch=st.integers(0, 60))
def test_what_is_needed_later_is_what_some_later_run_is_over(every: int, length: int, epoch: int) -> None:
    calendar = Calendar(every, every + length)
    dues = [due for due in range(epoch + 1, epoch + 40) if due == calendar.due(due)]
    assert calendar.needed_after(epoch) == min(calendar.first(due) for due in dues)
    assert calendar.due(epoch) == min(due for due in [epoch, *dues] if (due + 1) % every == 0)


def test_manifest_forgets_what_no_run_needs_and_keeps_the_last_schema_of_each_input() -> None:
    held = Manifest(Calendar(1, 2))
    for epoch in range(5):
        held.add(
            (epoch,), [ManifestEntry("a", f"a{epoch}", 1, 1, b"A"), *([ManifestEntry("b", "b0", 1, 1, b"B")][epoch:])]
        )
    held.compact(Frontier.lexicographic((3,)))
    assert held.schemas() == {"a": (4, b"A"), "b": (0, b"B")}
    assert [entry.path for entry in held.entries(0, 9)] == ["a0", "b0", "a3", "a4"]


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_every_worker_has_a_routing_key_of_its_own(workers: int) -> None:
    keys = keys_of(workers)
    assert len(set(keys)) == workers
    assert 0 <= home(workers) < workers
    assert keys[home(workers)] == 0


def test_batches_of_the_region_are_columns_again() -> None:
    flow = program(SOME, LocalRunner(totals))
    for _, batch in run(flow).captured("out"):
        assert as_arrow(batch).schema.names == ["k", "s"]
