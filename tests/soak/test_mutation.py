"""A fixed sample of mutants that must be killed; and tables that speak of what is there. `make soak` tries all mutants."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from falkirk.simulate.outside import Result
from falkirk.simulate.simulation import Simulation
from falkirk.simulate.world import World
from tests.falkirk.simulate.programs import PROGRAMS
from tests.monitor.coordination import test_options
from tests.recovery.rollback import test_received_before
from tests.soak import mutation, simulated_coverage
from tests.soak.mutants import ROOT, Mutant, applied, code_of, mutants

LIMIT = 8_000
"""Steps; a run without a mistake takes less than half."""


@cache
def expected(name: str) -> Result:
    return Simulation(PROGRAMS[name], 1).expected


def job(name: str, workers: int) -> Callable[[], None]:
    """A few simulated jobs."""

    def run() -> None:
        right = expected(name)
        for seed in range(1, 13):
            world = World(PROGRAMS[name], workers, seed)
            world.run(LIMIT)
            world.outside.compare(right)

    return run


SAMPLE: dict[tuple[str, str], Callable[[], Any]] = {
    (
        "recovery/rollback/orders.py",
        "RollbackPlanner.orders: None if known else checkpoint.positions if checkpoint is not None else () -> None",
    ): job("logged_exchange", 1),
    ("recovery/agent/collection.py", "Collection.let_go: if own.alive -> if not own.alive"): job("logged_exchange", 2),
    (
        "recovery/memory/records.py",
        "LogEntry.content: self.batch if self.batch is not None else decode_batch(self.header, self.payload) -> self.batch",
    ): job("logged_exchange", 1),
    ("monitor/coordination/coordinator.py", "Coordinator._finish: self._effects.append(Finished()) -> pass"): job(
        "mixed", 1
    ),
    ("monitor/coordination/coordinator.py", "Coordinator._on_stored: self._decided(record) -> pass"): job("mixed", 1),
    ("monitor/coordination/cuts.py", "Cuts.durable: cut != group.cut -> cut == group.cut"): job("mixed", 2),
    (
        "monitor/coordination/options.py",
        "Options.join: all((bound != low for bound, _ in chain)) -> any((bound != low for bound, _ in chain))",
    ): test_options.test_a_store_with_checkpoints_above_what_w_needs_only_is_named,
    (
        "monitor/coordination/options.py",
        "Options._option: lost if edge.logged else union(lost, image(edge.discarding, xi.bound)) -> lost",
    ): test_options.test_a_checkpoint_that_says_it_discarded_less_than_its_frontier_is_taken_to_have_discarded_that,
    (
        "recovery/memory/channels.py",
        "Channels._settle: for number, time in known.items() if holds(bound, time) -> for number, time in known.items()",
    ): test_received_before.test_what_lies_before_a_restored_or_collected_bound_is_not_taken_again,
    (
        "timely/worker/restoring.py",
        "_begin: set(range(worker.plan.workers)) - {worker.index} -> set(range(worker.plan.workers)) + {worker.index}",
    ): job("mixed", 2),
}


def named(file: str, name: str) -> Mutant:
    return next(mutant for mutant in mutants(file) if mutant.name == name)


@pytest.mark.parametrize(("file", "name"), SAMPLE)
def test_a_mutant_of_the_sample_is_killed(file: str, name: str) -> None:
    probe = SAMPLE[file, name]
    mutant = named(file, name)
    assert code_of(mutant) is not None
    if probe.__name__ == "run":
        for program in ("mixed", "logged_exchange"):
            expected(program)  # what is right, by the product as it is
    with applied(mutant), pytest.raises(BaseException):  # noqa: B017  # it may break anything
        probe()


def test_every_file_has_mutants_that_can_be_made() -> None:
    for file in simulated_coverage.FILES:
        for mutant in mutants(file)[::25]:
            code_of(mutant)


def test_what_is_explained_is_there() -> None:
    assert not mutation.stale(mutation.survivors(), simulated_coverage.FILES + mutation.MORE_FILES)
    assert not simulated_coverage.stale(simulated_coverage.explained())


def test_a_result_belongs_to_the_text_of_its_function(tmp_path: Path) -> None:
    mutant = mutants("recovery/rollback/queues.py")[0]
    fates = mutation.Fates(tmp_path / "results")
    fates.add(mutant, {"killed": True, "by": "a test", "tries": 1, "seconds": 0.1})
    known = mutation.Fates(tmp_path / "results")
    assert known.of(replace(mutant, line=mutant.line + 7)) is not None
    assert known.of(replace(mutant, text="another")) is None


def test_what_was_tried_of_whole_functions_is_written_down(tmp_path: Path) -> None:
    """Of a function with a mutant that nobody has tried nothing is said."""
    file, tried = "recovery/rollback/queues.py", tmp_path / "tried"
    first, second = "as_sent", "owed"
    fates = mutation.Fates(tmp_path / "results", tried)
    known = [mutant for mutant in mutants(file) if mutant.function in (first, second)]
    lives, missing = known[0], known[-1]
    assert (lives.function, missing.function) == (first, second)
    for mutant in known[:-1]:
        fates.add(mutant, {"killed": mutant != lives, "by": "a test", "tries": 1, "seconds": 0.1})
    fates.record([file])
    again = mutation.Fates(tmp_path / "nothing", tried)
    found = [again.of(mutant) for mutant in known if mutant.function == first]
    assert [fate is not None and fate["killed"] for fate in found] == [mutant != lives for mutant in known][
        : len(found)
    ]
    assert again.of(missing) is None


PROBES = """
import sys
import pytest
from tests.soak import mutation

class Probes:
    def pytest_runtestloop(self, session):
        print([mutation.test_probe(item).run() for item in session.items])
        return True

pytest.main(["-qs", "-p", "no:cacheprovider", "--rootdir", sys.argv[1], sys.argv[1]], plugins=[Probes()])
"""
"""Not in the process of the tests: a session within a session takes the handler of crashes from it."""


def test_a_probe_gives_its_test_all_that_it_asks_for(tmp_path: Path) -> None:
    """A test that has a folder is no test that fails as it is."""
    (tmp_path / "test_it.py").write_text("def test_it(tmp_path, monkeypatch): assert tmp_path.is_dir()")
    command = [sys.executable, "-c", PROBES, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "[True]" in done.stdout, done.stdout + done.stderr


def test_an_explanation_may_be_a_pattern() -> None:
    assert mutation.matches(r"~ f: .* -> pass", "f: x = 1 -> pass")
    assert not mutation.matches(r"~ f: .* -> pass", "f: x = 1 -> pass  (number 2)")
    assert mutation.matches("f: [x] -> pass", "f: [x] -> pass")


def test_a_mutant_that_does_not_end_or_dies_gives_nothing() -> None:
    assert mutation.forked(lambda: 7, 20.0) == 7
    assert mutation.forked(lambda: os.kill(os.getpid(), signal.SIGPROF), 20.0) is None
    assert mutation.forked(lambda: time.sleep(60), 0.2) is None


def test_texts_and_the_timeline_are_not_mutated() -> None:
    names = [mutant.name for mutant in mutants("monitor/coordination/coordinator.py")]
    assert not [name for name in names if "self._note(" in name.partition(" -> ")[0] and name.endswith("-> pass")]
    assert not [mutant for file in mutation.MORE_FILES for mutant in mutants(file) if "__repr__" in mutant.function]


def test_lines_and_branches_that_are_missed_have_names() -> None:
    name = "recovery/rollback/carry_out.py"
    source = simulated_coverage.Source.read(name)
    line = next(at for at, text in enumerate(source.lines, 1) if "if order.held" in text)
    report = {"executed_lines": [], "missing_lines": [], "executed_branches": [], "missing_branches": []}
    simulated = {
        **report,
        "executed_lines": [line],
        "missing_lines": [line + 1],
        "missing_branches": [[line, line + 1]],
    }
    share = simulated_coverage.share(name, simulated, report)
    assert share.missed == ((line + 1, source.line_item(line + 1)),)
    assert (share.executed, share.all) == (1, 3)
