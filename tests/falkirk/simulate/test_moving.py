"""Jobs that go on with another number of workers, among other faults: outputs are those of a run without any."""

from __future__ import annotations

import pytest

from falkirk.simulate.faults import KINDS, Fault, kinds_of
from falkirk.simulate.simulation import Simulation, report
from falkirk.simulate.world import World
from recovery.moving import successors
from recovery.moving.former import FormerWorker
from recovery.moving.successors import Successors
from tests.falkirk.simulate.moving import BY_HAND, draw, program
from tests.falkirk.simulate.programs import PROGRAMS
from tests.support.profile import effort

ALL = (*KINDS, "workers")
EACH = effort(2, 4, 4)

STAYING = ("loop", "eager", "snapshots", "sent again", "mixed")
"""Programs that cannot go on with another number of workers."""


def search(simulation: Simulation, seeds: range, what: str) -> int:
    """Run these seeds; returns how often the number of workers changed."""
    for seed in seeds:
        failure = simulation.run(seed)
        if failure is not None:
            pytest.fail(report(simulation.shrink(failure), what), pytrace=False)
    return simulation.tally.moves


@pytest.mark.parametrize("first", range(0, effort(EACH, 40, 2_000), EACH))
def test_drawn_programs_go_on_with_other_numbers_of_workers(first: int) -> None:
    for seed in range(first, first + EACH):
        simulation = Simulation(program(seed), 1 + seed % 3, ALL)
        search(simulation, range(1_001 * seed, 1_001 * seed + 2), f"moving program {seed}: {draw(seed)}")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", BY_HAND)
def test_programs_with_operators_of_the_users_do(name: str) -> None:
    simulation = Simulation(BY_HAND[name], 2, ALL)
    assert search(simulation, range(effort(6, 40, 1_000)), name) > 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["logged_exchange", "columns", "column_join", "sessions", "jobs"])
def test_programs_written_for_other_faults_do(name: str) -> None:
    search(Simulation(PROGRAMS[name], 2, ALL), range(effort(3, 20, 300)), name)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", STAYING)
def test_who_cannot_move_stays_and_ends_as_without_faults(name: str) -> None:
    """The reasons name an operator and its line; nothing of the store has changed."""
    for seed in range(3, 5):
        world = World(PROGRAMS[name], 2, seed, ("workers",))
        world.run()
        told = [data["why"] for _, kind, data in world.log if kind == "stays"]
        assert world.moves == 0
        assert all("programs.py:" in why for why in told)


def test_the_kind_of_fault_is_drawn_only_where_it_is_asked_for() -> None:
    assert kinds_of("kill,workers") == ("kill", "workers")
    assert "workers" not in KINDS


def found_in(name: str, seeds: range) -> bool:
    """True if one of these seeds ends otherwise than it should."""
    simulation = Simulation(BY_HAND[name], 2, ("kill", "job", "workers"))
    return any(simulation.run(seed) is not None for seed in seeds)


SEEDS = range(60)


def test_messages_that_keep_their_receivers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_before(self: Successors, former: int, entry: object) -> None:
        sender, receiver = former % self._layout.workers, entry.receiver % self._layout.workers  # type: ignore[attr-defined]
        self._messages[sender].append((entry.edge, receiver, entry.event, entry.time, entry.content()))  # type: ignore[attr-defined]

    monkeypatch.setattr(Successors, "_take_message", as_before)
    assert found_in("by hand", SEEDS)


def test_messages_sent_ahead_that_are_forgotten_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FormerWorker, "messages", lambda self: [])
    assert found_in("by hand", SEEDS)


def test_requests_that_stay_behind_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    divide = Successors._divide
    monkeypatch.setattr(Successors, "_divide", lambda self, worker, p: divide(self, worker, p) and set())
    assert found_in("timers", SEEDS)


def test_state_that_is_read_by_number_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new worker has what the former one of its number had."""

    class ByNumber(successors.Division):
        def of(self, state: object, run: object) -> list[object]:  # type: ignore[override]
            return [run if worker == self.index else None for worker in range(self.workers)]

    monkeypatch.setattr(successors, "Division", ByNumber)
    assert found_in("by hand", SEEDS)


def test_outputs_published_under_new_names_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a former worker may have published already comes out once more, under another worker's name."""
    outputs = FormerWorker.outputs

    def renamed(self: FormerWorker) -> list[object]:
        found = outputs(self)
        self.worker.index += 1
        return [*found]

    monkeypatch.setattr(FormerWorker, "outputs", renamed)
    assert found_in("by hand", SEEDS)


def test_outputs_that_are_not_published_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """All die when each worker has written a cut, and none has heard that it is safe."""
    written: list[int] = []
    note = World.note

    def noted(self: World, kind: str, **data: object) -> None:
        if kind == "checkpoint":
            written.append(self.steps)
        note(self, kind, **data)

    with monkeypatch.context() as while_calm:
        while_calm.setattr(World, "note", noted)
        World(BY_HAND["by hand"], 2, 0, ("workers",), []).run()
    outputs = FormerWorker.outputs
    monkeypatch.setattr(FormerWorker, "outputs", lambda self: outputs(self) and [])
    simulation = Simulation(BY_HAND["by hand"], 2, ("workers",))
    assert any(simulation.scripted(0, [Fault("step", at + 2, "workers", other=3)])[0] for at in reversed(written))
