"""The news for a page: the least frontiers and the sums of what is folded, and nothing that it knows already."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import replace as replaced

from monitor.web.fold import fold, group_tree
from monitor.web.view import BARS, FIELDS, View, changes
from recovery.metadata import NEVER, everything
from recovery.protocol import ROWS
from tests.monitor.web.programs import example_layout, wide_layout
from tests.monitor.web.standing import StandingJob


@pytest.mark.parametrize("closed", [[], ["hand-on"]])
def test_a_row_is_the_least_frontier_and_the_sum_of_what_it_stands_for(closed: list[str]) -> None:
    layout = example_layout("flights", workers=3)
    folding = fold(layout, group_tree(layout), closed=closed)
    job, view = StandingJob(layout), View(layout)
    seen = job.step()
    for _ in range(5):
        view.update(seen)
        seen = job.step()
    view.update(seen)
    tables = [np.frombuffer(said.numbers, dtype=np.int64).reshape(len(ROWS), -1) for _, said in seen.told.values()]
    for row, members in zip(view.rows(folding), folding.nodes):
        told = dict(zip(FIELDS, row))
        assert told["progress"] == min(table[ROWS.index("epoch"), p] for table in tables for p in members)
        assert told["low"] == min(bounds[p][0] for bounds in seen.low for p in members)
        assert told["pending"] == sum(table[ROWS.index("pending"), p] for table in tables for p in members)
        assert len(str(told["bars"])) == 3


def test_rates_are_records_by_seconds_and_survive_a_counter_that_begins_anew() -> None:
    layout = example_layout("wordcount")
    job, view = StandingJob(layout), View(layout)
    view.update(job.step(1.0))
    before = {worker: said.read for worker, (_, said) in job.told.items()}
    for _ in range(30):
        view.update(job.step(1.0))
    read = {worker: said.read for worker, (_, said) in job.told.items()}
    rate = sum(read[worker] - before[worker] for worker in read) / 30
    assert view.totals()["rate"] == pytest.approx(rate, rel=0.1)
    job._tables[:] = 0  # another process has taken over
    job.epoch = 0
    view.update(job.step(1.0))
    assert all(float(row[4]) >= 0 for row in view.rows(fold(layout, group_tree(layout))))


def test_what_is_kept_covers_as_much_as_its_least_sender_keeps() -> None:
    layout = example_layout("flights", workers=2)
    job, view = StandingJob(layout), View(layout)
    for _ in range(5):
        view.update(job.step())
    assert view.totals()["covered"] == 1.0
    seen = job.step()
    at, said = seen.told[1]
    table = np.frombuffer(said.numbers, dtype=np.int64).reshape(len(ROWS), -1).copy()
    behind = int(np.argmax([int(table[ROWS.index("epoch"), p]) - bounds[0] for p, bounds in enumerate(seen.low[1])]))
    low, epoch = seen.low[1][behind][0], int(table[ROWS.index("epoch"), behind])
    assert epoch - low > 1
    table[ROWS.index("kept_from"), behind] = epoch - 1
    view.update(replace(seen, told={**seen.told, 1: (at + 1, replaced(said, numbers=table.tobytes()))}))
    assert view.totals()["covered"] == pytest.approx(1 / (epoch - low), abs=0.01)


def test_only_what_has_changed_is_told() -> None:
    layout = wide_layout(60)
    folding = fold(layout, group_tree(layout))
    job, view = StandingJob(layout), View(layout)
    view.update(job.step())
    rows = view.rows(folding)
    assert changes(None, rows) == dict(enumerate(rows))
    view.update(replace(job.observe(), at=job.at + 1))
    assert changes(rows, view.rows(folding)) == {}
    view.update(job.step())
    after = view.rows(folding)
    assert changes(rows, after) == {node: row for node, row in enumerate(after) if row != rows[node]}


@pytest.mark.parametrize("bars", BARS)
def test_bars_compare_workers(bars: str) -> None:
    layout = wide_layout(20, workers=4)
    folding = fold(layout, group_tree(layout))
    job, view = StandingJob(layout), View(layout)
    for _ in range(4):
        view.update(job.step())
    for row in view.rows(folding, bars):
        assert set(str(row[-1])) <= set("0123456789abcdefghijklmnopqrstuvwxyz")
        assert len(str(row[-1])) == 4


def test_what_is_done_for_good_says_so() -> None:
    layout = example_layout("flights")
    job, view = StandingJob(layout), View(layout)
    job.low = tuple(tuple(everything(info.depth) for info in layout.processors) for _ in range(layout.workers))
    seen = job.observe()
    view.update(replace(seen, completed=tuple((NEVER,) * len(layout.groups) for _ in range(layout.workers))))
    for row in view.rows(fold(layout, group_tree(layout))):
        assert (row[0], row[2]) == (-1, -1)
