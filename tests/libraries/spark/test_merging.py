"""The files of a region whose runs share rows are merged: few are left, none goes too early, and every run is right."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falkirk.simulate.simulation import Simulation
from falkirk.simulate.world import World
from libraries.spark.files import manifest
from libraries.spark.files import parquet as files
from libraries.spark.files.manifest import FAN, Calendar, Manifest, ManifestEntry, Over
from libraries.spark.files.sweeping import Named, Sweep, named
from runtime.session.session import Session
from tests.libraries.spark.local_runner import LocalRunner
from tests.libraries.spark.test_region import Rows, expected, given_by, program, totals
from tests.support.profile import tries
from timely.time import Frontier

MANY = [[(i % 3, i)] for i in range(96)]


@pytest.mark.check
@pytest.mark.parametrize(
    ("arguments", "workers"),
    [
        pytest.param({}, 1, marks=pytest.mark.soak),
        pytest.param({"every": 3}, 2, marks=pytest.mark.soak),
        ({}, 2),
        ({"every": 3}, 1),
        ({"over": 7}, 1),
        ({"over": 9, "every": 3}, 2),
    ],
    ids=str,
)
def test_region_gives_the_same_whatever_fails_while_files_are_merged_all_the_time(
    arguments: dict[str, Any], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "FAN", 2)
    merged: list[str] = []
    merge = files.merge_inputs
    monkeypatch.setattr(files, "merge_inputs", lambda *how: merged.append(found := merge(*how)) or found)
    runner = LocalRunner(totals)
    simulation = Simulation(lambda: program(MANY[:32], runner, **{"over": "all"} | arguments), workers)
    for seed in range(tries(4)):
        failure = simulation.run(seed)
        assert failure is None, f"seed {seed}: {failure and failure.error}"
    assert simulation.tally.rounds > 4
    assert len(merged) > 4 * 4


def newest_names(self: Named, upto: int) -> Any:
    """As if no run could be asked for again once a later one was."""
    return self._names[max(self._names)] if self._names else None


def settle_at_once(self: Manifest, frontier: Frontier) -> None:
    """As if a merge could not be rolled back."""
    self._settle(sorted(self.times(), reverse=True))


@pytest.mark.check
@pytest.mark.parametrize(
    ("of", "name", "wrong", "known"),
    [(Named, "at", newest_names, 35), (Manifest, "compact", settle_at_once, 2)],
    ids=["names", "settle"],
)
def test_without_the_rule_some_failure_is_not_survived(
    of: type, name: str, wrong: Any, known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few runs are done again, so files that went too early are seldom missed: the seed that is known to is tried first."""
    monkeypatch.setattr(manifest, "FAN", 2)
    monkeypatch.setattr(of, name, wrong)
    runner = LocalRunner(totals)
    simulation = Simulation(lambda: program(MANY[:32], runner, over="all"), 1)
    assert any(simulation.run(seed) for seed in (known, *range(40)))


@pytest.mark.check
@pytest.mark.parametrize("over", ["all", 120])
@pytest.mark.parametrize("store", [True, False], ids=["store", "no store"])
def test_files_stay_few_however_many_epochs_there_are(
    store: bool, over: Over, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALKIRK_FILES", str(tmp_path))
    batches: list[Rows] = [[(i % 3, i)] for i in range(300)]
    named: list[int] = []
    there: list[int] = []

    class Counted(LocalRunner):
        def run(self, context: Any, inputs: Any, tables: Any, output: str, rows: int) -> Any:
            named.append(sum(len(paths) for _, paths in inputs.values()))
            folder = Path(output).parent.parent / "in"
            there.append(len(os.listdir(folder)))
            return super().run(context, inputs, tables, output, rows)

    runner = Counted(totals)
    flow = program(batches, runner, over=over)
    if store:
        world = World(lambda: flow, 2, 7, ())
        assert given_by(world) == expected(batches, 1, over)
    else:
        with Session(flow) as session:
            session.run()
    assert len(named) == 150
    magnitudes = 1 + len(batches).bit_length() // 3
    assert max(named) < magnitudes * FAN, "of 300, or in a window of 240, that were written"
    if over == "all":  # what a window's merges were made from stays until no window begins within them
        assert max(there) < 6 * FAN * magnitudes
    else:
        assert max(there[-30:]) < 1.5 * 2 * over


ENTRIES = st.lists(st.lists(st.integers(1, 5000), max_size=4), min_size=1, max_size=60)
CALENDARS = st.one_of(
    st.just(Calendar(1, "all")),
    st.builds(lambda every, more: Calendar(every, every + more), st.integers(1, 5), st.integers(0, 80)),
)


@given(epochs=ENTRIES, calendar=CALENDARS, fan=st.sampled_from([2, 3, FAN]), data=st.data())
def test_every_row_is_in_one_file_of_a_run_and_comes_back_with_any_rollback(
    epochs: list[list[int]], calendar: Calendar, fan: int, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest, "FAN", fan)
        run_through(epochs, calendar, data)


def run_through(epochs: list[list[int]], calendar: Calendar, data: st.DataObject) -> None:
    held, saved, upto, least = Manifest(calendar), [], Frontier.empty(1), 0
    content: dict[str, list[str]] = {}

    def check(held: Manifest, last: int) -> list[ManifestEntry]:
        found = held.entries(calendar.first(last), last)
        parts = [part for entry in found for part in content[entry.path]]
        written = [path for path, of in content.items() if of == [path]]
        wanted = [path for path in written if calendar.first(last) <= int(path.split("-")[0]) <= last]
        assert sorted(parts) == sorted(wanted)
        return found

    for epoch, sizes in enumerate(epochs):
        new = [ManifestEntry("in", f"{epoch}-{number}", size, size, b"") for number, size in enumerate(sizes)]
        content |= {entry.path: [entry.path] for entry in new}
        held.add((epoch,), new)
        if calendar.due(epoch) != epoch:
            continue
        merged = []
        for since, until, entries in held.ripe(epoch):
            assert least <= since <= until <= epoch
            path = f"{epoch}-merged-{len(merged)}"
            paths = tuple(entry.path for entry in entries)
            content[path] = [part for each in paths for part in content[each]]
            merged.append(ManifestEntry("in", path, sum(entry.rows for entry in entries), 1, b"", paths, since=since))
        if merged:
            held.add((epoch,), merged)
        found = check(held, epoch)
        if calendar.over == "all" and manifest.FAN == FAN:
            assert all(
                sum(1 for entry in found if entry.rows.bit_length() // 3 == magnitude) <= FAN + 3
                for magnitude in range(6)
            )
        now = Frontier.lexicographic((epoch,))
        if data.draw(st.booleans(), "saved"):
            saved += held.snapshot(now, upto)
            upto = now
            if data.draw(st.booleans(), "let go"):
                held.compact(now)
                least = calendar.needed_after(epoch)
        if data.draw(st.booleans(), "restored"):
            again = Manifest(calendar)
            again.restore(saved)
            check(again, max((run.time[0] for run in saved if calendar.due(run.time[0]) == run.time[0]), default=-1))


def test_large_files_and_those_of_open_blocks_are_left_as_they_are() -> None:
    large, window = Manifest(Calendar(1, "all")), Manifest(Calendar(1, 50))
    for epoch in range(40):
        large.add((epoch,), [ManifestEntry("in", f"{epoch}", 10, manifest.LARGE, b"")])
        window.add((epoch,), [ManifestEntry("in", f"{epoch}", 10, 10, b"")])
    assert large.ripe(40) == []
    assert [merge[:2] for merge in window.ripe(39)] == [(0, 7), (8, 15), (16, 23), (24, 31), (32, 39)]
    assert [merge[:2] for merge in window.ripe(46)] == [(0, 7), (8, 15), (16, 23), (24, 31), (32, 39)]
    assert [merge[:2] for merge in window.ripe(51)] == [(8, 15), (16, 23), (24, 31), (32, 39)]  # 2 to 51 is over
    window._calendar = Calendar(1, 7)
    assert window.ripe(39) == [], "no run has a whole block"
    window._calendar = Calendar(1, "all")
    assert [len(merge.entries) for merge in window.ripe(40)] == [40]


@pytest.mark.check
def test_blocks_make_larger_blocks_where_windows_are_long() -> None:
    held, counts = Manifest(Calendar(1, 600)), []
    for epoch in range(1500):
        held.add((epoch,), [ManifestEntry("in", f"{epoch}", 1, 1, b"")])
        while ripe := held.ripe(epoch):
            merges = [
                ManifestEntry("in", f"m{since}-{until}", sum(e.rows for e in entries), 1, b"", tuple(e.path for e in entries),
                              since=since)
                for since, until, entries in ripe
            ]  # fmt: skip
            held.add((epoch,), merges)
        found = held.entries(max(0, epoch - 599), epoch)
        assert sum(entry.rows for entry in found) == min(600, epoch + 1)
        counts.append(len(found))
        held.compact(Frontier.lexicographic((epoch,)))
    assert max(counts) <= 2 * 3 * FAN
    assert len(held.times()) < 700


def test_merged_file_has_the_rows_of_all_in_groups_that_are_worth_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_GROUP_BYTES", 4000)
    tables = [pa.table({"k": range(100 * i, 100 * i + 100), "s": [f"{i}"] * 100}) for i in range(20)]
    paths = [files.write_input(tmp_path, f"{files.named_by(i)}-in", [table]) for i, table in enumerate(tables)]
    merged = files.merge_inputs(tmp_path, f"{files.named_by(19)}-in-merged", paths, tables[0].schema, durable=True)
    assert files.epoch_of(Path(merged)) == 19
    assert pq.read_table(merged) == pa.concat_tables(tables)
    groups = pq.ParquetFile(merged).metadata
    assert 1 < groups.num_row_groups <= 10


def run_of(*paths: str) -> Any:
    return 0, [ManifestEntry("in", path, 1, 1, b"") for path in paths], [], []


def test_file_goes_only_when_no_run_that_may_come_again_names_it() -> None:
    named_ = Named()
    named_.note(4, run_of("a", "b"))
    named_.note(5, run_of("a", "b", "c"))
    named_.note(6, run_of("ab", "c"))
    assert not Sweep(3, 0, named_.at(3)).takes(1, "stale")  # nothing that is over names anything
    before = Sweep(5, 0, named_.at(5))
    assert [before.takes(epoch, path) for epoch, path in [(1, "a"), (5, "c"), (1, "stale"), (6, "stale")]] == [
        *(False, False),
        *(True, False),
    ]
    after = Sweep(6, 0, named_.at(6))
    assert [after.takes(epoch, path) for epoch, path in [(1, "a"), (6, "ab"), (6, "other"), (7, "new")]] == [
        *(True, False),
        *(True, False),
    ]
    assert named_.at(5) is None  # forgotten: it is never asked for less than before
    window = Sweep(9, 7, named(8, (7, [], [], [])))
    assert [window.takes(epoch, "x") for epoch in (6, 7, 8, 9)] == [True, True, True, False]
