"""Whole jobs with recovery under seeded schedules and faults: their outputs are those of one worker that never fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import falkirk.simulate.world
import recovery.agent.agent
import recovery.layout
from falkirk.simulate.faults import KINDS
from falkirk.simulate.judging import same
from falkirk.simulate.outside import Result, Violation
from falkirk.simulate.simulation import Simulation, report
from falkirk.simulate.world import World
from libraries.columns.verbs.dataflow import Dataflow
from monitor.coordination.effects import Answer
from monitor.explain.what_if import OpenQuestions
from recovery.checkpoint import checkpoints, pace, processor_checkpoints
from recovery.guarantees.promises import Alike
from recovery.rollback.orders import RollbackPlanner
from runtime.session.session import Session
from tests.falkirk.simulate.often import often
from tests.falkirk.simulate.programs import PROGRAMS, Clocked
from tests.support.profile import effort
from timely.io.memory import rows_of

ROOT = Path(__file__).resolve().parents[3]
EACH = effort(1, 3, 350)
"""The number of seeds for each program."""
CHUNK = 22
"""The number of seeds in one test: small enough to be spread over processes."""


def chunks() -> list[Any]:
    """In `make test` one seed for every third program, with two workers or three."""
    return [
        pytest.param(
            name,
            range(first, min(first + CHUNK, skipped + EACH)),
            id=f"{name}-{first}",
            marks=[pytest.mark.check] * (EACH == 1 and number % 6 > 1),
        )
        for number, name in enumerate(PROGRAMS)
        for skipped in [1 + number % 2 if EACH == 1 else 0]
        for first in range(skipped, skipped + EACH, CHUNK)
    ]


@cache
def simulation(name: str, workers: int) -> Simulation:
    return Simulation(PROGRAMS[name], workers)


@pytest.mark.parametrize(("name", "seeds"), chunks())
def test_outputs_after_any_faults_are_those_of_a_run_without(name: str, seeds: range) -> None:
    for seed in seeds:
        workers = 1 + seed % 3
        failure = simulation(name, workers).run(seed)
        if failure is not None:
            failure = simulation(name, workers).shrink(failure)
            program = f"tests/falkirk/simulate/programs.py:{name}"
            again = f"falkirk simulate {program} -w {failure.workers} --first-seed {seed} --seeds 1"
            kept = "" if failure.keep is None else f" --keep {','.join(map(str, failure.keep)) or 'none'}"
            pytest.fail(report(failure, again + kept), pytrace=False)


def alone(build: Callable[[], Dataflow]) -> Result:
    """The captures of one worker, without stores, monitor or chance."""
    flow = build()
    found: Result = {}
    with Session(flow) as session:
        session.run()
        for node in flow.graph.of_kind("capture"):
            for time, batch in session.captured(node.name):
                found.setdefault((node.name, time), []).extend(rows_of(batch))
    return {key: sorted(rows, key=repr) for key, rows in found.items()}


@pytest.mark.check
@pytest.mark.parametrize("name", PROGRAMS)
def test_without_failures_any_number_of_workers_gives_what_one_without_recovery_gives(name: str) -> None:
    right = alone(PROGRAMS[name])
    for workers in (1, 2, 3):
        given = simulation(name, workers).expected
        captures = {output for output, _ in right}
        given = {key: sorted(rows, key=repr) for key, rows in given.items() if key[0] in captures}
        assert given.keys() == right.keys()
        assert all(same(given[key], right[key]) for key in right)


@pytest.mark.soak
def test_the_seeds_meet_every_kind_of_fault() -> None:
    """Simulations that meet nothing prove nothing."""
    runs = Simulation(PROGRAMS["acyclic"], 3)
    for seed in range(60):
        assert runs.run(seed) is None
    tally = runs.tally
    met = {"kill", "kill monitor", "kill job", "give up", "stall link", "stall worker", "cut off", "bad disk"}
    assert met <= tally.faults.keys(), tally
    assert tally.survivors > 100
    assert tally.spared > 10
    assert tally.repeated > 10
    assert tally.rounds > 60


AGAIN = """
import sys
from falkirk.simulate.world import World
from examples.mixed_policies import build
from tests.falkirk.simulate.programs import PROGRAMS
for name, seed in (("mixed", 3), ("by the clock", 3), ("loop", 12), ("columns", 5), ("jobs", 8))[:MANY]:
    world = World(PROGRAMS.get(name, build), 3, seed)
    world.run()
    print(name, world.digest, world.steps, len(world.log), [str(fault) for fault in world.injector.happened])
    for entry in world.log:
        print(entry)
"""


@pytest.mark.check
def test_a_seed_gives_the_same_run_in_every_process() -> None:
    def once(hash_seed: str) -> str:
        env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", AGAIN.replace("MANY", str(effort(2, 5, 5)))],
            env=env,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    first = once("1")
    assert first == once("2")
    assert len(first.splitlines()) > 100


def test_seeds_differ() -> None:
    digests = set()
    for seed in range(5):
        world = World(PROGRAMS["acyclic"], 2, seed)
        world.run()
        digests.add(world.digest)
    assert len(digests) == 5


def test_a_run_by_its_own_faults_is_the_run_itself() -> None:
    for seed in range(6):
        drawn = World(PROGRAMS["acyclic"], 2, seed)
        drawn.run()
        scripted = World(PROGRAMS["acyclic"], 2, seed, (), drawn.injector.happened)
        scripted.run()
        assert scripted.digest == drawn.digest


def test_a_failing_seed_is_made_shorter_and_still_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        RollbackPlanner, "_resend", lambda self, decision, remembers: ([], [])
    )  # logs are of no use then
    runs = Simulation(PROGRAMS["logged_exchange"], 2)
    failure = next(found for seed in range(100) if (found := runs.run(seed)) is not None)
    shorter = runs.shrink(failure)
    assert len(shorter.faults) <= min(4, len(failure.faults))
    smaller = Simulation(PROGRAMS["logged_exchange"], shorter.workers)
    again = smaller.run(shorter.seed, shorter.keep)
    assert again is not None
    assert str(again.error) == str(shorter.error)
    assert (again.faults, again.log) == (shorter.faults, shorter.log)
    text = report(shorter, "the command")
    assert str(shorter.error) in text
    assert "replay: the command" in text
    assert all(str(fault) in text for fault in shorter.faults)


def by_a_clock() -> Dataflow:
    """A program whose epochs depend on the schedule, and that says so."""
    flow = Dataflow("by a clock")
    flow.source("in", Clocked([range(12)], 0.02)).capture("out")
    return flow


def test_outputs_that_are_alike_by_luck_need_not_be_so_after_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("falkirk.simulate.simulation.SCHEDULES", (-1, -1))
    simulation = Simulation(by_a_clock, 1)
    assert all(simulation.run(seed) is None for seed in range(4))
    assert simulation.alike == {"out": Alike.RECORDS}
    monkeypatch.setattr("falkirk.simulate.simulation.MORE_SCHEDULES", ())
    simulation = Simulation(by_a_clock, 1)
    assert any(simulation.run(seed) is not None for seed in range(4))


@pytest.mark.check
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_faults_can_be_chosen(kind: str) -> None:
    allowed = {
        "kill": {"kill"},
        "monitor": {"kill monitor"},
        "job": {"kill job"},
        "network": {"stall link", "stall worker", "cut off"},
        "zombie": {"give up", "zombie"},
        "disk": {"bad disk"},
    }
    runs = Simulation(PROGRAMS["sparse"], 2, (kind,))
    for seed in range(24):
        assert runs.run(seed) is None
    assert set() < set(runs.tally.faults) <= allowed[kind]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("program", ["sparse", "order_ahead"])
def test_questions_are_answered_in_the_midst_of_failures_and_change_nothing(program: str) -> None:
    answered = 0
    for seed in range(3):
        world = World(PROGRAMS[program], 1 + seed % 3, seed)
        world.curious = 0.03
        world.run()
        world.outside.compare(simulation(program, 1).expected)
        answered += sum(isinstance(each.answer, Answer) for each in world.answers)
    assert answered > 3


def test_a_question_that_goes_wrong_or_has_no_answer_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("cost")

    def asking() -> None:
        world = World(PROGRAMS["sparse"], 2, 1, ())
        world.curious = 0.2
        world.run()

    asking()
    with monkeypatch.context() as patch:
        patch.setattr(recovery.agent.agent, "cost", broken)
        with pytest.raises(Violation, match=r"cannot answer: KeyError: 'cost'"):
            asking()
    monkeypatch.setattr(OpenQuestions, "ask", lambda *_: [])
    monkeypatch.setattr(falkirk.simulate.world, "PATIENCE_SECONDS", 0.01)
    with pytest.raises(Violation, match=r"question [0-9]+ is not answered"):
        asking()


def test_nothing_overtakes_what_is_sent_again() -> None:
    """On an edge without a queue, as on one worker, what is sent again waits all the same, and new records come behind it."""
    for seed in (11, 51, 59, 67, 107):
        world = World(PROGRAMS["order_ahead"], 1, seed)
        world._events = 1
        world.run()
        world.outside.compare(simulation("order_ahead", 1).expected)


def test_a_survivor_goes_back_below_what_it_was_restored_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory holds one run for all times up to there, and sources know no earlier position: both come from the store."""
    monkeypatch.setattr(processor_checkpoints, "SMALL", -1)  # save whole states often
    below = 0
    restore = RollbackPlanner._restore

    def watched(self: RollbackPlanner, p: int, bound: Any, remembers: bool, lowest: bool) -> Any:
        nonlocal below
        below += self._remembers and bound < self._recorder.since[p]
        return restore(self, p, bound, remembers, lowest)

    monkeypatch.setattr(RollbackPlanner, "_restore", watched)
    monkeypatch.setattr(recovery.layout, "_repeating", lambda *_: set())  # else survivors seldom go back at all
    for name, seeds in (("logged_exchange", (42,)), ("acyclic", (23, 27))):
        for seed in seeds:
            world = often(PROGRAMS[name], 3, seed)
            world.run()
            world.outside.compare(simulation(name, 3).expected)
    assert below > 5


@pytest.mark.check
def test_state_that_is_saved_anew_over_many_cuts_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_checkpoints, "SMALL", -1)
    monkeypatch.setattr(processor_checkpoints, "SCAN_PIECES", 1)
    monkeypatch.setattr(pace, "PIECE_ROWS", 1)
    ended = 0
    end = checkpoints.Checkpoints._end

    def watched(self: checkpoints.Checkpoints, p: int, saved: Any, pieces: Any) -> None:
        nonlocal ended
        scanning = self._of[p].scan is not None and self._of[p].scan_since < saved.bound
        end(self, p, saved, pieces)
        ended += scanning and self._of[p].scan is None

    monkeypatch.setattr(checkpoints.Checkpoints, "_end", watched)
    for name, seeds in (("logged_exchange", range(4)), ("acyclic", range(4))):
        runs = Simulation(PROGRAMS[name], 2)
        for seed in seeds:
            assert runs.run(seed) is None
    assert ended > 2
