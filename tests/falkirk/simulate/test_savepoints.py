"""Jobs that stop at savepoints among other faults, and go on, also with another number of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from falkirk.simulate.faults import KINDS
from falkirk.simulate.simulation import Simulation
from falkirk.simulate.world import World
from libraries.columns.verbs.dataflow import Dataflow
from monitor.coordination.options import Options
from recovery.agent.savepoint import WorkerSavepoint
from runtime.sources.driver import SourceDriver
from tests.falkirk.simulate.drawn import draw
from tests.falkirk.simulate.drawn import program as any_program
from tests.falkirk.simulate.moving import BY_HAND, program
from tests.falkirk.simulate.programs import PROGRAMS
from tests.support.profile import effort
from timely.errors import FalkirkError

CHANGES = ("savepoint", "workers")
HALF_WRITTEN = "goes on to a savepoint"


def run(build: Callable[[], Dataflow], workers: int, seed: int, kinds: Sequence[str]) -> World:
    """One job; raises FalkirkError if it does not end as without faults, or if a savepoint is none."""
    world = World(build, workers, seed, kinds)
    world.run()
    world.outside.compare(Simulation(build, workers).expected)
    return world


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_read_again_after_a_savepoint(name: str) -> None:
    """The world compares low-watermarks, and what was read, with the epoch of each savepoint."""
    stops = seed = 0
    while stops < effort(1, 4, 40):
        assert seed < 400
        stops += run(PROGRAMS[name], 2, seed, ("savepoint",)).savepoints
        seed += 1


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(effort(8, 30, 600)))
def test_drawn_programs_do_among_all_faults(seed: int) -> None:
    failure = Simulation(any_program(seed), 1 + seed % 3, (*KINDS, "savepoint")).run(7 * seed)
    assert failure is None, f"program {draw(seed)}: {failure}"


def test_survivors_beyond_the_savepoint_raise_its_epoch() -> None:
    """One has completed the end of all input, and is to hold that: the job ends, rather than wait for a cut before it."""
    assert Simulation(PROGRAMS["long loop"], 2, ("savepoint", "kill", "monitor", "network")).run(23) is None


@pytest.mark.parametrize("first", range(0, effort(12, 60, 1_500), 6))
def test_jobs_change_workers_at_savepoints(first: int) -> None:
    worlds = [run(program(seed), 1 + seed % 3, seed, (*CHANGES, "kill")) for seed in range(first, first + 6)]
    assert any(world.moves for world in worlds)


def test_a_cut_that_is_half_written_is_rolled_forward() -> None:
    """Former workers of which one has persisted more go on to a savepoint, and then the state moves."""
    half = 0
    for seed in range(300):
        world = run(BY_HAND["by hand"], 3, seed, ("workers",))
        half += any(kind == HALF_WRITTEN for _, kind, _ in world.log) and world.moves > 0
        if half == effort(2, 4, 40):
            return
    pytest.fail(f"a cut was half written {half} time(s) only")


def found(kinds: Sequence[str], seeds: Sequence[int] = range(40), workers: int = 2) -> bool:
    """True if one of these jobs does not end as it should."""
    for seed in seeds:
        try:
            run(BY_HAND["by hand"], workers, seed, kinds)
        except FalkirkError:
            return True
    return False


def test_a_common_bound_below_what_was_promised_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The greatest bound that all journals hold would have input acknowledged already, or publish outputs twice."""

    def common(self: Options) -> tuple[object, ...]:
        low, self._low = self._low, [self.topology.info(flat).nothing for flat in range(self.topology.count)]
        try:
            return honest(self)
        finally:
            self._low = low

    honest = Options.common
    monkeypatch.setattr(Options, "common", common)
    assert found(("workers",), workers=3)


def test_sources_that_read_on_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = SourceDriver._bound

    def unlimited(self: SourceDriver, *args: object) -> int:
        until, self.until = self.until, 1 << 60
        found = bound(self, *args)  # type: ignore[arg-type]
        self.until = until
        return found

    monkeypatch.setattr(SourceDriver, "_bound", unlimited)
    monkeypatch.setattr("runtime.sources.reader.Reader.hold", lambda self, chunk: None)
    assert found(("savepoint",))


def test_workers_that_settle_too_early_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerSavepoint, "_safe", lambda self, epoch: True)
    assert found(("savepoint",))
