"""A fixed sample of mutants that must be killed; and tables that speak of what is there. `make soak` tries all mutants."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from falkirk.simulate.outside import Result
from falkirk.simulate.simulation import Simulation
from falkirk.simulate.world import World
from tests.falkirk.simulate.programs import PROGRAMS
from tests.monitor.coordination import test_options
from tests.recovery.rollback import test_received_before
from tests.soak import mutation, simulated_coverage
from tests.soak.mutants import Mutant, applied, applies, mutants

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
    ("recovery/agent.py", "Agent._let_go: if self.alive -> if not self.alive"): job("logged_exchange", 2),
    (
        "recovery/recorder.py",
        "LogEntry.content: self.batch if self.batch is not None else decode_batch(self.header, self.payload) -> self.batch",
    ): job("logged_exchange", 1),
    ("monitor/coordination/coordinator.py", "Coordinator._finish: self._effects.append(Finished()) -> pass"): job(
        "mixed", 1
    ),
    ("monitor/coordination/coordinator.py", "Coordinator.stored: then() -> pass"): job("mixed", 1),
    ("monitor/coordination/cuts.py", "Cuts.durable: cut != group.cut -> cut == group.cut"): job("mixed", 2),
    (
        "monitor/coordination/options.py",
        "Options.join: all((bound != low for bound, _ in chain)) -> any((bound != low for bound, _ in chain))",
    ): test_options.test_a_store_with_checkpoints_above_what_w_needs_only_is_named,
    (
        "monitor/coordination/options.py",
        "Options._option: max(lost, image(edge.discarding, xi.bound)) -> lost",
    ): test_options.test_a_checkpoint_that_says_it_discarded_less_than_its_frontier_is_taken_to_have_discarded_that,
    (
        "recovery/recorder.py",
        "WorkerRecorder.collect: time < bound -> time <= bound",
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
    assert applies(mutant)
    if probe.__name__ == "run":
        for program in ("mixed", "logged_exchange"):
            expected(program)  # what is right, by the product as it is
    with applied(mutant), pytest.raises(BaseException):  # noqa: B017  # it may break anything
        probe()


def test_every_file_has_mutants_that_can_be_made() -> None:
    for file in simulated_coverage.FILES:
        for mutant in mutants(file)[::25]:
            assert applies(mutant) in (True, False)


def test_what_is_explained_is_there() -> None:
    assert not mutation.stale(mutation.survivors(), simulated_coverage.FILES)
    assert not simulated_coverage.stale(simulated_coverage.explained())


def test_lines_and_branches_that_are_missed_have_names() -> None:
    name = "recovery/rollback/replay.py"
    source = simulated_coverage.Source.read(name)
    line = next(at for at, text in enumerate(source.lines, 1) if "if held" in text)
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
