"""Mates among simulated processes: whatever dies, outputs are those of a run without failures, and mates are of use."""

from __future__ import annotations

from typing import Any

import pytest

from falkirk.simulate.mates import SimulatedMate, SimulatedMates
from falkirk.simulate.simulation import Simulation, report
from recovery.checkpoint.processor_checkpoints import Loaded, ProcessorCheckpoints
from recovery.checkpoint.records import Piece, record_of
from recovery.metadata import to_frontier
from recovery.store.interface import NotThere
from recovery.store.segments import Unread, size_of
from tests.falkirk.simulate.programs import PROGRAMS
from tests.support.profile import effort
from timely.io.memory import rows_of
from timely.state.interface import Run, State
from timely.time import Frontier
from timely.worker.processor import build_operator

EACH = effort(1, 3, 200)
"""The number of seeds for each program."""


def rows(state: State, upto: Frontier) -> list[str]:
    """What a state holds, in any order."""
    state.compact(upto)
    runs: list[Run] = state.snapshot(upto, Frontier.empty(upto.depth))
    return sorted(repr((run.part, run.slot, row)) for run in runs for row in rows_of(run.batch))


def check_loaded(mate: SimulatedMate) -> int:
    """What a mate has loaded is what a new operator reads from the store; returns how many operators could be compared."""
    following, compared = mate.following, 0
    waiting = [
        size_of(section.payload)
        for _, sections in following.segments.values()
        for section in sections
        if isinstance(record := record_of(section.head), Piece) and record.processor in following.loaded
        if not isinstance(section.payload, Unread)
    ]
    assert sum(waiting) == following.kept <= following.kept_limit
    progress = following.progress
    assert progress.left >= 0
    assert progress.behind <= 1 or not following.caught_up, "it keeps one checkpoint behind, and no more"
    for p, loaded in following.loaded.items():
        if loaded.at is None or loaded.within is not None:
            continue
        saved = following.found.of(p).at(loaded.at[0])
        if saved is None or saved.identity != loaded.at:
            continue
        state = build_operator(mate.plan.processors[p], []).state
        assert state is not None
        assert loaded.operator.state is not None
        try:
            state.restore(following.found.of(p).runs(saved.bound, lambda _: True, last=False))
        except NotThere:  # its worker has let go of that since
            continue
        compared += 1
        upto = to_frontier(saved.bound)
        assert rows(loaded.operator.state, upto) == rows(state, upto), following
    return compared


def run(simulation: Simulation, seed: int) -> None:
    failure = simulation.run(seed)
    assert failure is None, report(failure, f"seed {seed} with mates")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", PROGRAMS)
def test_outputs_are_those_without_failures(name: str) -> None:
    simulation = Simulation(PROGRAMS[name], 2, mates=1)
    for seed in range(EACH):
        run(simulation, seed)


@pytest.mark.check
def test_mates_take_over_with_what_a_new_process_would_read(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    take = SimulatedMates.take

    def checked(self: SimulatedMates, worker: int) -> SimulatedMate | None:
        mate = take(self, worker)
        if mate is not None:
            compared.append(check_loaded(mate))
        return mate

    monkeypatch.setattr(SimulatedMates, "take", checked)
    for name in ("acyclic", "columns"):
        simulation = Simulation(PROGRAMS[name], 2, ("kill", "job", "monitor"), mates=1)
        for seed in range(6):
            run(simulation, seed)
        assert simulation.tally.takeovers > 5
        assert simulation.tally.ahead > 0, "no operator was restored with what a mate had loaded"
    assert sum(compared) > 10


@pytest.mark.check
def test_what_is_loaded_is_used_only_where_it_leads_to_what_was_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    def rest(self: Loaded, chain: Any) -> Any:
        return [(saved, 0) for saved in chain if self.at is None or saved.bound > self.at[0]]

    monkeypatch.setattr(Loaded, "rest", rest)
    simulation = Simulation(PROGRAMS["acyclic"], 2, ("kill", "job", "monitor"), mates=1)
    assert any(simulation.run(seed) is not None for seed in range(40))


@pytest.mark.check
def test_what_is_loaded_is_not_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def runs(self: ProcessorCheckpoints, bound: Any, wanted: Any, last: bool, loaded: Any = None) -> Any:
        return real(self, bound, wanted, last)

    real = ProcessorCheckpoints.runs
    monkeypatch.setattr(ProcessorCheckpoints, "runs", runs)
    simulation = Simulation(PROGRAMS["acyclic"], 2, ("kill", "job", "monitor"), mates=1)
    assert any(simulation.run(seed) is not None for seed in range(40))


def test_without_mates_nothing_follows() -> None:
    simulation = Simulation(PROGRAMS["acyclic"], 2, ("kill",))
    run(simulation, 3)
    assert simulation.tally.takeovers == simulation.tally.ahead == 0
