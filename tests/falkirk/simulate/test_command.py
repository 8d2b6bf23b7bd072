"""`falkirk simulate` and the fixture `simulate`, as users meet them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from falkirk import Dataflow, Iterable
from falkirk.simulate.command import simulate_command
from falkirk.simulate.faults import KINDS, kinds_of
from falkirk.simulate.reference import SimulationFailed
from falkirk.simulate.simulation import Counterexample, Simulation
from runtime.program import Program
from timely.errors import FalkirkError

pytest_plugins = ["falkirk.simulate.fixtures"]

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = '''
import os

from falkirk import Dataflow, FileSink, Iterable, Listen, Operator, Tumbling


def build(records=60):
    flow = Dataflow("totals")
    numbers = flow.source("numbers", Iterable(range(records), batch=3, epoch_every=6))
    keyed = numbers.key_by(lambda n: n % 5)
    keyed.sum(name="sum").records().to(FileSink("never-written", format="jsonl"), name="totals")
    tens = keyed.window(Tumbling(10), time=lambda n: n).count(name="tens")  # the last ones come at the end of time
    tens.values().to(FileSink("never-written", format="jsonl", name="tens"), name="counts")
    return flow


class Total(Operator):
    """Keeps its total, and says that no result depends on it."""

    transient = ("total",)
    repeats_over = "time"

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
    repeats_over = "time"

    def on_batch(self, ctx, port, time, batch):
        ctx.send([len(batch)])


def racy():
    flow = Dataflow("racy")
    numbers = flow.source("numbers", Iterable(range(90), batch=2, epoch_every=9))
    numbers.exchange(by=lambda n: n).unary("first", First).capture("sizes")
    return flow


WORDS = ["to", "be", "or", "not", "that", "is", "the", "question"] * 4
THING = object()


def hashes():
    flow = Dataflow("hashes")
    words = flow.source("words", Iterable(WORDS, batch=4, epoch_every=8))
    # all of the order: the first of a few is the same one under two seeds of hashes once in a while
    picked = words.exchange(by=len).map(lambda word: " ".join({word, *"some other words".split(), *"abcdef"}), name="pick")
    picked.key_by(lambda word: word).count(name="count").records().capture("out")
    return flow


def processes():
    flow = Dataflow("processes")
    words = flow.source("words", Iterable(WORDS, batch=4, epoch_every=8))
    words.map(lambda word: (word, os.getpid()), name="stamp").capture("out")
    return flow


def objects():
    flow = Dataflow("objects")
    words = flow.source("words", Iterable(WORDS, batch=4, epoch_every=8))
    words.map(lambda word: (word, id(THING)), name="name").capture("out")
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
    done = falkirk("simulate", "app.py", "--seeds", "6", "--arg", "records=40", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "all well" in done.stdout
    assert "6 runs" in done.stdout
    assert not (folder / "never-written").exists()


@pytest.mark.check
def test_mates_die_and_take_over_among_the_simulated_processes(folder: Path) -> None:
    words = "simulate", "app.py", "--seeds", "6", "--arg", "records=40", "--faults", "kill"
    done = falkirk(*words, "--mates", "1", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = re.search(r"15 runs.*; (\d+) take-overs by mates", done.stdout)
    assert found is not None, done.stdout
    assert int(found[1]) > 0
    assert "take-overs" not in falkirk(*words, cwd=folder).stdout


@pytest.mark.check
def test_a_failing_seed_is_told_with_a_line_that_shows_it_again(folder: Path) -> None:
    done = falkirk("simulate", "app.py:forgetful", "--seeds", "50", "--faults", "kill,disk", cwd=folder)
    assert done.returncode == 1
    first, replay, *rest = done.stdout.splitlines()
    assert "'totals' is promised to be precise, and is gap" in first or "unary 'total' of worker" in first
    assert rest
    assert replay.startswith("replay: falkirk simulate app.py:forgetful")
    again = falkirk(*shlex.split(replay.removeprefix("replay: falkirk ")), cwd=folder)
    assert again.returncode == 1
    assert again.stdout.splitlines()[0] == first


@pytest.mark.check
def test_a_program_that_is_not_deterministic_is_told_so(folder: Path) -> None:
    done = falkirk("simulate", "app.py:racy", "--seeds", "5", cwd=folder)
    assert done.returncode == 1
    assert "not deterministic" in done.stderr
    assert "'sizes'" in done.stderr


@pytest.mark.parametrize(
    ("program", "operator"),
    [
        pytest.param("hashes", "pick", marks=pytest.mark.check),
        ("processes", "stamp"),
        pytest.param("objects", "name", marks=pytest.mark.check),
    ],
)
def test_a_program_that_depends_on_its_process_is_told_so(folder: Path, program: str, operator: str) -> None:
    done = falkirk("simulate", f"app.py:{program}", "--seeds", "2", cwd=folder)
    assert done.returncode == 1
    assert "not deterministic" in done.stderr
    assert "'out' gives at time" in done.stderr
    assert re.search(rf"first that sends something else is the .*'{operator}'.* \(.*app.py:\d+\)", done.stderr)


@pytest.mark.check
def test_the_fixture_finds_a_program_that_depends_on_the_hashes_of_texts(simulate: Any) -> None:
    def build() -> Dataflow:
        flow = Dataflow("hashes")
        words = flow.source("words", Iterable([f"w{n}" for n in range(20)], epoch_every=5))
        words.map(lambda word: (word, hash(word)), name="hash").capture("out")
        return flow

    with pytest.raises(SimulationFailed, match=r"another process, |in another one, with PYTHONHASHSEED"):
        simulate(build, seeds=1)
    assert simulate(build, seeds=1, elsewhere=False).runs == 1


@pytest.mark.check
def test_a_failing_seed_is_told_before_it_is_made_shorter(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = Program(str(folder / "app.py"), "forgetful")
    said = []

    def shrink(self: Simulation, failure: Counterexample, **_: Any) -> Counterexample:
        said.append((failure, capsys.readouterr().err))
        raise KeyboardInterrupt  # whoever runs it is content with what it says by now

    monkeypatch.setattr(Simulation, "shrink", shrink)
    assert simulate_command(program, 50, 0, ("kill", "disk"), 2, None, quiet=True) == 1
    [(failure, before)] = said
    assert f"seed {failure.seed} on 2 workers fails: {failure.error}" in before
    assert "replay: falkirk simulate" in before
    assert str(failure.error) in capsys.readouterr().out


@pytest.mark.check
def test_making_a_failure_shorter_says_how_far_it_is(folder: Path) -> None:
    runs = Simulation(Program(str(folder / "app.py"), "forgetful").build, 2, ("kill", "disk"))
    failure = next(found for seed in range(50) if (found := runs.run(seed)) is not None)
    steps: list[tuple[int, int]] = []
    shortest = runs.shrink(failure, progress=lambda best, tries: steps.append((len(best.faults), tries)))
    assert steps
    assert steps == sorted(steps, reverse=True)
    assert steps[-1][0] == len(shortest.faults)


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
        pytest.param(["--keep", "900", "--seeds", "1"], "no 900", marks=pytest.mark.check),
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


@pytest.mark.check
def test_the_fixture_runs_seeds_and_says_what_they_met(simulate: Any) -> None:
    tally = simulate(sound, seeds=8, workers=2)
    assert tally.runs == 8
    assert tally.faults


@pytest.mark.check
def test_the_fixture_fails_a_test_with_a_call_that_shows_it_again(tmp_path: Path) -> None:
    test = PROGRAM + "\npytest_plugins = ['falkirk.simulate.fixtures']\n"
    test += "\n\ndef test_it(simulate):\n    simulate(forgetful, seeds=40)\n"
    (tmp_path / "test_app.py").write_text(test)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_app.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "unary 'total' of worker" in done.stdout
    assert "when it did this again" in done.stdout
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


@pytest.mark.check
def test_a_program_that_does_not_run_in_another_process_is_told_why(simulate: Any) -> None:
    here = os.getpid()

    def build() -> Dataflow:
        if os.getpid() != here:
            print("much is said " * 50_000, file=sys.stderr)
            raise ValueError("not here")
        return sound()

    with pytest.raises(SimulationFailed, match=r"another process .*ValueError: not here"):
        simulate(build, seeds=1)
