"""`falkirk simulate` and the fixture `simulate`, as users meet them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from falkirk import Dataflow, Iterable
from falkirk.simulate.faults import KINDS, kinds_of
from falkirk.simulate.simulation import Simulation, SimulationFailed
from timely.errors import FalkirkError

pytest_plugins = ["falkirk.simulate.fixtures"]

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = '''
from falkirk import Dataflow, FileSink, Iterable, Listen, Operator


def build(records=60):
    flow = Dataflow("totals")
    numbers = flow.source("numbers", Iterable(range(records), batch=3, epoch_every=6))
    numbers.key_by(lambda n: n % 5).sum(name="sum").records().to(FileSink("never-written", format="jsonl"), name="totals")
    return flow


class Total(Operator):
    """Keeps its total, and says that no result depends on it."""

    transient = ("total",)

    def __init__(self):
        self.total = 0
        self.now = {}

    def on_batch(self, ctx, port, time, batch):
        self.now[time] = self.now.get(time, 0) + sum(batch)
        ctx.notify_at()

    def on_notify(self, ctx, time):
        self.total += self.now.pop(time)
        ctx.send([self.total])


def forgetful():
    flow = Dataflow("forgetful")
    numbers = flow.source("numbers", Iterable(range(60), batch=3, epoch_every=6))
    numbers.exchange(by=lambda n: 0).unary("total", Total).capture("totals")
    return flow


class First(Operator):
    def on_batch(self, ctx, port, time, batch):
        ctx.send([len(batch)])


def racy():
    flow = Dataflow("racy")
    numbers = flow.source("numbers", Iterable(range(90), batch=2, epoch_every=9))
    numbers.exchange(by=lambda n: n).unary("first", First).capture("sizes")
    return flow


def deaf():
    flow = Dataflow("deaf")
    flow.source("numbers", Listen(0, epoch_lines=1)).capture("out")
    return flow
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(PROGRAM)
    return tmp_path


def falkirk(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    command = [sys.executable, "-m", "falkirk", *words]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_a_sound_program_passes_and_its_sinks_are_left_alone(folder: Path) -> None:
    done = falkirk("simulate", "app.py", "--seeds", "15", "--arg", "records=40", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "all well" in done.stdout
    assert "15 runs" in done.stdout
    assert not (folder / "never-written").exists()


def test_a_failing_seed_is_told_with_a_line_that_shows_it_again(folder: Path) -> None:
    done = falkirk("simulate", "app.py:forgetful", "--seeds", "50", "--faults", "kill,disk", cwd=folder)
    assert done.returncode == 1
    first, replay, *rest = done.stdout.splitlines()
    assert "'totals' gave at time" in first
    assert rest
    assert replay.startswith("replay: falkirk simulate app.py:forgetful")
    again = falkirk(*shlex.split(replay.removeprefix("replay: falkirk ")), cwd=folder)
    assert again.returncode == 1
    assert again.stdout.splitlines()[0] == first


def test_a_program_that_is_not_deterministic_is_told_so(folder: Path) -> None:
    done = falkirk("simulate", "app.py:racy", "--seeds", "5", cwd=folder)
    assert done.returncode == 1
    assert "not deterministic" in done.stderr
    assert "'sizes'" in done.stderr


def test_a_source_that_cannot_be_read_again_is_an_error_that_names_it(folder: Path) -> None:
    done = falkirk("simulate", "app.py:deaf", "--seeds", "5", cwd=folder)
    assert done.returncode == 1
    assert "'numbers'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--faults", "meteor"], "there is no kind of fault 'meteor'"),
        (["--keep", "1"], "--seeds 1"),
        (["--keep", "x", "--seeds", "1"], "a list of numbers"),
        (["--keep", "900", "--seeds", "1"], "no 900"),
    ],
)
def test_wrong_usage_says_what_is_right(folder: Path, words: list[str], says: str) -> None:
    done = falkirk("simulate", "app.py", *words, cwd=folder)
    assert done.returncode in (1, 2)
    assert says in done.stderr + done.stdout


def sound() -> Dataflow:
    flow = Dataflow("sound")
    numbers = flow.source("numbers", Iterable(range(40), batch=3, epoch_every=6))
    numbers.key_by(lambda n: n % 5).count().records().capture("out")
    return flow


def test_the_fixture_runs_seeds_and_says_what_they_met(simulate: Any) -> None:
    tally = simulate(sound, seeds=8, workers=2)
    assert tally.runs == 8
    assert tally.faults


def test_the_fixture_fails_a_test_with_a_call_that_shows_it_again(tmp_path: Path) -> None:
    test = PROGRAM + "\npytest_plugins = ['falkirk.simulate.fixtures']\n"
    test += "\n\ndef test_it(simulate):\n    simulate(forgetful, seeds=40)\n"
    (tmp_path / "test_app.py").write_text(test)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_app.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "'totals' gave at time" in done.stdout
    assert "replay: simulate(forgetful, seeds=1, first_seed=" in done.stdout


def test_a_program_that_fails_by_itself_is_told_from_one_that_is_not_recovered() -> None:
    def build() -> Dataflow:
        flow = Dataflow("broken")
        flow.source("numbers", Iterable(range(3))).map(lambda n: 1 // (n - 1), name="divide").capture("out")
        return flow

    with pytest.raises(FalkirkError, match="'divide'"):
        Simulation(build).run(0)


def test_an_output_that_depends_on_the_schedule_is_found() -> None:
    said: list[int] = []

    def build() -> Dataflow:
        said.append(0)
        flow = Dataflow("odd")
        flow.source("numbers", Iterable([len(said) // 2])).capture("out")
        return flow

    with pytest.raises(SimulationFailed, match=r"'out' gives at time \(0,\)"):
        Simulation(build, 2).run(0)


def test_kinds_are_read_from_a_text() -> None:
    assert kinds_of("kill, disk,kill") == ("kill", "disk")
    for wrong in ("", ",", "kill,meteor"):
        with pytest.raises(FalkirkError, match="there are:") as caught:
            kinds_of(wrong)
        assert all(kind in str(caught.value) for kind in KINDS)
