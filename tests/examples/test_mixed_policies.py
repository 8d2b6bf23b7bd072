"""The example with a policy for each region: against networkx, and under kills, which must not show in what comes out."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import networkx as nx
import pytest

from falkirk.simulate.faults import Faults, drawn
from falkirk.simulate.world import World
from recovery.layout import lay_out
from timely.dataflow import Dataflow
from timely.drivers.program import Program
from timely.io import Callback
from timely.plan import compile_plan
from timely.run import run

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import mixed_policies  # noqa: E402

DAYS, CALLS = 12, 300


def circles_of(day: int, calls: int) -> list[tuple[int, str]]:
    """The circles of a day: how many people, and the first of them."""
    friends = nx.Graph(
        pair
        for number in range(day * calls, (day + 1) * calls)
        for pair in mixed_policies.friends(mixed_policies.line(number))
    )
    return [(len(circle), min(circle)) for circle in nx.connected_components(friends)]


def expected_news(days: int, calls: int) -> dict[int, str]:
    news: dict[int, str] = {}
    before, streak = "", 0
    for day in range(days):
        size, first = max(circles_of(day, calls))
        streak = streak + 1 if first == before else 1
        before = first
        row = f", for {streak} days in a row" if streak > 1 else ""
        news[day] = f"{size} people are in the circle of {first}{row}"
    return news


def expected_tally(days: int, calls: int) -> dict[int, dict[str, int]]:
    tally = Counter[str]()
    changes = {}
    for day in range(days):
        firsts = [first for _, first in circles_of(day, calls)]
        tally.update(firsts)
        changes[day] = {first: tally[first] for first in firsts}
    return changes


def tally_in(folder: Path) -> dict[int, dict[str, int]]:
    """What the files of all workers say, by day."""
    found: dict[int, dict[str, int]] = {}
    for file in sorted(folder.glob("epoch-*.jsonl")):
        rows = [json.loads(text) for text in file.read_text().splitlines()]
        changes = found.setdefault(int(file.name.split("-")[1]), {})
        for row in rows:
            assert row["person"] not in changes, f"{file.name}: twice in one day"
            changes[row["person"]] = row["days"]
    return found


@pytest.mark.parametrize("workers", [1, 2])
def test_without_a_store_it_finds_the_circles_that_networkx_finds(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, workers: int
) -> None:
    args = {"days": DAYS, "calls": CALLS, "per_second": 1e6, "folder": str(tmp_path)}
    run(Program(path=str(EXAMPLES / "mixed_policies.py"), args=args), workers)
    expected = expected_news(DAYS, CALLS)
    assert capfd.readouterr().out.splitlines() == [f"day {day}: {text}" for day, text in expected.items()]
    assert any("in a row" in text for text in expected.values()), "otherwise nothing is remembered from day to day"
    assert tally_in(tmp_path) == expected_tally(DAYS, CALLS)


def test_each_region_gets_what_its_policy_says(tmp_path: Path) -> None:
    layout = lay_out(compile_plan(mixed_policies.build(folder=tmp_path).graph, 2))
    of = {info.name: info for info in layout.processors}
    assert {name: of[name].policy for name in ("parse", "pairs", "circle-enter", "days-at-the-head", "streaks")} == {
        "parse": "Ephemeral",
        "pairs": "Batch",
        "circle-enter": "Lazy",
        "days-at-the-head": "Lazy",
        "streaks": "LogHistory",
    }
    assert [name for name, info in of.items() if info.history] == ["streaks"]
    logged = {layout.processors[edge.source].name for edge in layout.edges if edge.logged}
    assert logged == {"pairs"}
    assert of["lines"].group == of["pairs"].group != of["circle-enter"].group == of["streaks"].group


class News:
    """What the console was told: the same day again, but never anything else about it."""

    def __init__(self) -> None:
        self.of: dict[int, list[Any]] = {}
        self.repeated = 0

    def hear(self, day: int, batch: Any) -> None:
        self.repeated += day in self.of
        assert self.of.setdefault(day, batch) == batch


@pytest.mark.parametrize("seed", range(6))
def test_kills_do_not_show_in_the_tally_and_at_most_repeat_the_news(tmp_path: Path, seed: int) -> None:
    days, calls, news = 8, 120, News()

    def build() -> Dataflow:
        return mixed_policies.build(days, calls, 1e9, tmp_path, Callback(news.hear))

    faults = Faults() if seed == 0 else Faults(until=2.0, kill_worker=0.01, kill_at_io=0.005, kill_monitor=0.002)
    world = World(build, 1 + seed % 3, seed, faults)
    world.run()
    assert tally_in(tmp_path) == expected_tally(days, calls)
    assert {day: "".join(batch) for day, batch in sorted(news.of.items())} == expected_news(days, calls)
    if seed == 0:
        assert (world.killed, news.repeated) == (0, 0)
    else:
        assert world.killed


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 200))
def test_many_kills_do_not_show_either(tmp_path: Path, seed: int) -> None:
    days, calls, news = 10, 120, News()
    world = World(
        lambda: mixed_policies.build(days, calls, 1e9, tmp_path, Callback(news.hear)),
        1 + seed % 3,
        seed,
        drawn(Random(seed)),
    )
    world.run()
    assert tally_in(tmp_path) == expected_tally(days, calls)
    assert {day: "".join(batch) for day, batch in news.of.items()} == expected_news(days, calls)
