"""The example with a policy for each region: against networkx, and under kills, which must not show in what comes out."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from falkirk.simulate.world import World
from libraries.columns.verbs.dataflow import Dataflow
from recovery.layout import lay_out
from runtime.program import Program
from runtime.run import run
from runtime.supervisor.supervisor import Job
from tests.support.beside import run_beside
from tests.support.processes import monitor_pid
from timely.dataflow.plan import compile_plan

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
    """The content of the files of all workers, by day."""
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


class Disturbed:
    """A job of real processes, some of which are killed on the way."""

    def __init__(self, folder: Path, **args: Any) -> None:
        program = Program(path=str(EXAMPLES / "mixed_policies.py"), args={**args, "folder": str(folder / "circles")})
        self.restored = 0
        self.job = Job(program, 2, folder / "store", on_event=self.hear)
        self.folder = folder / "circles"

    def hear(self, kind: str, at: float, data: dict[str, Any]) -> None:
        self.restored += kind == "restored"

    def wait(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not what():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def disturb(self) -> None:
        """Kill each worker and the monitor, one after the other, each when output has come since."""
        for victim in ("worker 0", "monitor", "worker 1"):
            self.wait_for_output()
            restored = self.restored
            pid = monitor_pid(self.job) if victim == "monitor" else self.job.pids[int(victim[-1])]
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            if victim != "monitor":
                self.wait(lambda restored=restored: self.restored > restored)

    def wait_for_output(self) -> None:
        before = len(list(self.folder.glob("epoch-*")))
        self.wait(lambda: len(list(self.folder.glob("epoch-*"))) > before)


@pytest.mark.check
def test_killed_processes_do_not_show_in_the_tally_and_at_most_repeat_the_news(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    days, calls = 200, 200
    disturbed = Disturbed(tmp_path, days=days, calls=calls, per_second=12_000)
    run_beside(disturbed.job.run, disturbed.disturb)
    assert disturbed.restored >= 3, "the beginning, and two workers that were killed"
    assert tally_in(disturbed.folder) == expected_tally(days, calls)
    said = capfd.readouterr().out.splitlines()
    assert set(said) == {f"day {day}: {text}" for day, text in expected_news(days, calls).items()}


@pytest.mark.check
def test_simulated_failures_do_not_show_either(tmp_path: Path) -> None:
    days, calls, failures = 8, 120, 0

    def build() -> Dataflow:
        return mixed_policies.build(days, calls, 1e9, tmp_path)

    for seed in range(9):
        workers = 1 + seed % 3
        calm, stormy = (
            World(build, workers, seed, kinds=()),
            World(build, workers, seed, kinds=("kill", "monitor", "job")),
        )
        calm.run()
        expected = calm.outside.result()
        news = [texts for (name, _), texts in expected.items() if name == "news"]
        assert news == [[text] for text in expected_news(days, calls).values()]
        stormy.run()
        stormy.outside.compare(expected)
        failures += len(stormy.injector.happened)
    assert failures > 20
