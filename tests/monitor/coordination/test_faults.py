"""Whatever dies, and whenever: nothing that was decided or promised is taken back, and the job ends.

Whole simulated jobs, judged by `falkirk.simulate.checks`: it looks at messages, journals and workers, and hears nothing of the
coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from random import Random

import pytest

from falkirk.simulate.faults import Fault
from falkirk.simulate.outside import Result
from falkirk.simulate.simulation import Simulation
from falkirk.simulate.world import World
from libraries.columns.verbs.dataflow import Dataflow
from monitor.coordination import coordinator as coordinators
from monitor.coordination.commit import GroupCommit
from monitor.coordination.coordinator import Coordinator, Settings
from monitor.coordination.effects import Persist
from monitor.coordination.options import Options
from monitor.coordination.records import KeptDecision, SavedJob
from monitor.coordination.workers import JobPhase
from recovery.layout import Layout
from recovery.place import Place
from recovery.policy import Lazy
from tests.falkirk.simulate.troubled import stall
from tests.support.profile import tries
from timely.io import Iterable

LIMIT = 20_000
"""Steps; a run without a mistake takes less than a third."""
FIRST = 150
"""The step of the first failure of a job that is interrupted."""


def firewall() -> Dataflow:
    """A front that logs and is cut at each epoch, and a stage behind it that is cut at every other one."""
    flow = Dataflow("firewall")
    with flow.region("front", policy=Lazy(every=1, log_outputs=True)):
        source = flow.source("in", Iterable(range(12), batch=2, epoch_every=3))
        counts = source.key_by(lambda n: n % 5).count(name="first").records()
    with flow.region("back", policy=Lazy(every=2)):
        counts.key_by(lambda pair: pair[1]).count(name="second").records().capture("out")
    return flow


def loop() -> Dataflow:
    """A loop with state of its own, cut at each epoch."""
    flow = Dataflow("loop")
    with flow.region("all", policy=Lazy(every=1)):
        source = flow.source("in", Iterable(range(9), batch=2, epoch_every=3))
        halves = source.iterate(
            lambda inner: inner.map(lambda n: n // 2).filter(bool).exchange(by=lambda n: n).distinct(name="new"),
            name="halve",
        )
        halves.capture("out")
    return flow


PROGRAMS = {each.__name__: each for each in (firewall, loop)}


@cache
def expected(name: str) -> Result:
    return Simulation(PROGRAMS[name], 1).expected


def faults(at: int, *whats: str) -> list[Fault]:
    """Interruptions before one step: "kill 0", "give up 1", "kill monitor", "kill job"."""
    found = []
    for what in whats:
        name, _, worker = what.rpartition(" ")
        known = worker.isdigit()
        seconds = 0.5 if name == "give up" else 0.0
        found.append(Fault("step", at, name if known else what, int(worker) if known else 0, seconds=seconds))
    return found


INTERRUPTIONS = {
    "a worker": ("kill 0",),
    "a worker that goes on": ("give up 1",),
    "all workers": ("kill 0", "kill 1"),
    "the monitor": ("kill monitor",),
    "the monitor and a worker": ("kill monitor", "kill 0"),
    "the job": ("kill job",),
}


def job(name: str, workers: int, seed: int, *scripts: list[Fault]) -> World:
    """A simulated job in which just this goes wrong."""
    return World(PROGRAMS[name], workers, seed, (), [fault for script in scripts for fault in script])


def ends_well(world: World, name: str) -> None:
    world.run(LIMIT)
    world.outside.compare(expected(name))


def phase(world: World) -> JobPhase | None:
    return world._monitor.coordinator.phase if world._monitor is not None else None


@cache
def moments(name: str, first: int) -> tuple[int, ...]:
    """The steps at which a job with one early failure comes into another phase, and its last one."""
    world = job(name, 2, 1, faults(first, "kill 1"))
    found, before = [], phase(world)
    while not world.finished:
        world.step()
        if phase(world) is not before:
            found.append(world.steps)
            before = phase(world)
    return (*found, world.steps)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "name", [*list(PROGRAMS)[:1], *(pytest.param(name, marks=pytest.mark.check) for name in list(PROGRAMS)[1:])]
)
@pytest.mark.parametrize("interruption", INTERRUPTIONS)
def test_a_death_in_any_phase_is_survived(name: str, interruption: str, everywhere: bool) -> None:
    """Phases of the start and of a round are interrupted too: a first failure comes in between. `everywhere`: at any step."""
    phases = set()
    last = moments(name, FIRST)[-1]
    for at in range(1, last + 1) if everywhere else [step + 1 for step in moments(name, FIRST)]:
        world = job(name, 2, 1, faults(FIRST, "kill 1"), faults(at, *INTERRUPTIONS[interruption]))
        while world.steps < at - 1:
            world.step()
        phases.add(phase(world))
        ends_well(world, name)
    assert phases >= set(JobPhase) - {JobPhase.OVER}


@pytest.mark.parametrize("deaths", [1, 2])
@pytest.mark.parametrize("workers", [1, 3])
def test_who_is_done_says_so_once_to_a_new_monitor(workers: int, deaths: int) -> None:
    """The others may not have joined by then, and nothing may be durable of what the new monitor has written."""
    world = job("firewall", workers, 2)
    for _ in range(deaths):
        while not all(
            process is not None and process.session is not None and process.session.done
            for process in world._processes.values()
        ):
            world.step()
        world._kill_monitor(0.0)
        while world._monitor is None:
            world.step()
    ends_well(world, "firewall")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(4))
def test_several_deaths_anywhere_are_survived(seed: int) -> None:
    random = Random(seed)
    for again in range(tries(8)):
        name, workers = random.choice(sorted(PROGRAMS)), random.randrange(1, 4)
        scripts = [
            faults(random.randrange(1, 800), *random.choice(list(INTERRUPTIONS.values())))
            for _ in range(random.randrange(2, 6))
        ]
        world = job(
            name, workers, again, *([fault for fault in script if fault.worker < workers] for script in scripts)
        )
        ends_well(world, name)


def test_numbers_of_rounds_do_not_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are reserved in time: with four at a time, one monitor leads more rounds than it had at first."""
    monkeypatch.setattr(coordinators, "ROUNDS", 4)
    world = job("firewall", 2, 1, *(faults(at, "kill 0") for at in range(100, 1500, 100)))
    ends_well(world, "firewall")
    assert sum(kind == "round" for _, kind, _ in world.log) > 8


# ---------------------------------------------------------------------------------------------------------------------
# Mutations: without any one of the rules, the judge must notice.


def slowly_decided(name: str) -> World:
    """A job whose decision takes long to become durable; meanwhile a worker dies, and another process takes its place."""
    world = job(name, 2, 1, faults(FIRST, "kill 1"))
    while world.steps < FIRST or (phase(world) is not JobPhase.DECIDING and world.steps < 10 * FIRST):
        world.step()
    survivor = world._processes[Place(0)]
    if world._monitor is not None and survivor is not None:
        stall(world.disk, world._monitor.owner, 2.0)
        world._kill(survivor, "killed")
    return world


def judged() -> Iterator[tuple[str, World]]:
    """Jobs that are interrupted as each phase begins, within it, and while a decision is on its way to the journal."""
    name = "firewall"
    begins = moments(name, FIRST)
    yield name, slowly_decided(name)
    for at in [step + 1 for step in begins]:
        yield name, job(name, 2, 1, faults(FIRST, "kill 1"), faults(at, "kill monitor", "kill 0"))
    for at in [sum(pair) // 2 for pair in pairwise(begins)]:
        yield name, job(name, 2, 1, faults(FIRST, "kill 1"), faults(at, "kill monitor"))


def found_by_the_judge() -> str | None:
    """The first mistake in any of these jobs."""
    try:
        for name, world in judged():
            ends_well(world, name)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def test_the_judge_finds_nothing_in_what_is_right() -> None:
    assert found_by_the_judge() is None


def _announce_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_watermarks(self: Coordinator, by: float = 0.0) -> None:
        if self.phase is JobPhase.RUNNING and self.options.raise_watermarks():
            self._announce(self.options.watermarks)

    monkeypatch.setattr(Coordinator, "_raise_watermarks", raise_watermarks)


def decide_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = Coordinator._decide

    def hasty(self: Coordinator) -> None:
        waits = self.phase is JobPhase.GATHERING
        decide(self)
        if waits and self.phase is JobPhase.DECIDING:
            self._decided(next(each for each in self.commit.unwritten if isinstance(each, KeptDecision)))

    monkeypatch.setattr(Coordinator, "_decide", hasty)


def _many_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    take = GroupCommit.take

    def hasty(self: GroupCommit) -> Persist | None:
        self._under_way = None
        return take(self)

    monkeypatch.setattr(GroupCommit, "take", hasty)


def _do_not_cut_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    def catch_up(self: Coordinator, status: object) -> None:
        """Whoever is behind may come as he is."""

    joined = Coordinator._on_join

    def on_join(self: Coordinator, status: object, join: object) -> None:
        generation, self.generation = self.generation, 0
        try:
            joined(self, status, join)  # type: ignore[arg-type]
        finally:
            self.generation = max(generation, self.generation)

    monkeypatch.setattr(Coordinator, "_catch_up", catch_up)
    monkeypatch.setattr(Coordinator, "_on_join", on_join)


def _keep_old_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Options, "cut", lambda self, decided: None)


def _forget_w(monkeypatch: pytest.MonkeyPatch) -> None:
    init = Options.__init__

    def forgetful(self: Options, layout: object, watermarks: object = None, decided: object = None) -> None:
        init(self, layout, None, decided)  # type: ignore[arg-type]

    monkeypatch.setattr(Options, "__init__", forgetful)


def _do_not_wait_for_the_living(monkeypatch: pytest.MonkeyPatch) -> None:
    def drained(self: Coordinator, status: object, message: object) -> None:
        """Nobody is heard."""

    monkeypatch.setattr(Coordinator, "_on_drained", drained)


def _begin_while_deciding(monkeypatch: pytest.MonkeyPatch) -> None:
    lose = Coordinator._lose

    def hasty(self: Coordinator, losses: object, respawn: bool = True) -> None:
        deciding = self.phase is JobPhase.DECIDING
        lose(self, losses, respawn)  # type: ignore[arg-type]
        if deciding and self.phase is JobPhase.DECIDING:
            self._begin()

    monkeypatch.setattr(Coordinator, "_lose", hasty)


def _same_round_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Coordinator, "_next_round", lambda self: max(1, self.round))


def _resume_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Coordinator, "_begin", lambda self: setattr(self, "phase", JobPhase.GATHERING))


def _use_numbers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    init = Coordinator.__init__

    def forgetful(self: Coordinator, layout: Layout, saved: SavedJob | None, settings: Settings, now: float) -> None:
        init(self, layout, replace(saved, rounds=0) if saved else None, settings, now)

    monkeypatch.setattr(Coordinator, "__init__", forgetful)


MUTATIONS = [
    _use_numbers_again,
    _announce_at_once,
    decide_at_once,
    _many_writes,
    _do_not_cut_chains,
    _keep_old_reports,
    _forget_w,
    _do_not_wait_for_the_living,
    _begin_while_deciding,
    _same_round_again,
    _resume_without_asking,
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mutate", MUTATIONS)
def test_a_broken_rule_is_noticed(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    moments("firewall", FIRST), expected("firewall")  # as it is right
    mutate(monkeypatch)
    monkeypatch.setattr(
        Coordinator, "check", lambda self: None
    )  # the judge needs no help of the coordinator's invariants
    assert found_by_the_judge() is not None
