"""Whatever dies, and whenever: nothing that was decided or promised is taken back, and the job ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from monitor.coordination.commit import GroupCommit
from monitor.coordination.coordinator import Coordinator, Settings
from monitor.coordination.effects import Persist
from monitor.coordination.options import Options
from monitor.coordination.records import KeptDecision, SavedJob
from monitor.coordination.workers import JobPhase
from recovery.layout import Layout
from tests.monitor.coordination.world import World
from tests.recovery.layouts import LAYOUTS, layout


def world_of(name: str, workers: int) -> World:
    processors, edges = LAYOUTS[name]
    return World(layout(processors, edges, workers))


class AnythingHappens(RuleBasedStateMachine):
    """Steps in any order; at the end everything settles."""

    @initialize(name=st.sampled_from(sorted(LAYOUTS)), workers=st.integers(1, 3))
    def begin(self, name: str, workers: int) -> None:
        self.world = world_of(name, workers)

    @rule(turns=st.integers(1, 4))
    def everybody(self, turns: int) -> None:
        for step in itertools.islice(itertools.cycle(self.world.schedule()), turns):
            step()

    @rule(worker=st.integers(0, 2))
    def hear(self, worker: int) -> None:
        self.world.hear(worker % self.world.layout.workers)

    @rule(worker=st.integers(0, 2))
    def receive(self, worker: int) -> None:
        self.world.receive(worker % self.world.layout.workers)

    @rule(worker=st.integers(0, 2), group=st.integers(0, 3))
    def work(self, worker: int, group: int) -> None:
        self.world.work(worker % self.world.layout.workers, group)

    @rule(worker=st.integers(0, 2))
    def persist(self, worker: int) -> None:
        self.world.persist(worker % self.world.layout.workers)

    @rule()
    def store(self) -> None:
        self.world.store()

    @rule()
    def beat(self) -> None:
        self.world.beat()

    @rule(seconds=st.sampled_from([5.0, 16.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.world.wait(seconds)

    @rule(worker=st.integers(0, 2), heard=st.integers(0, 3))
    def kill(self, worker: int, heard: int) -> None:
        self.world.kill(worker % self.world.layout.workers, heard)

    @rule(written=st.booleans())
    def kill_monitor(self, written: bool) -> None:
        self.world.kill_monitor(written)

    @precondition(lambda self: self.world.coordinator.phase is not JobPhase.OVER)
    @rule(turns=st.integers(1, 5))
    def go_on(self, turns: int) -> None:
        for _ in range(turns):
            for step in self.world.schedule():
                step()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            assert self.world.failed is None, self.world.failed
            self.world.settle()
            assert self.world.finished


TestAnythingHappens = AnythingHappens.TestCase
TestAnythingHappens.settings = settings(max_examples=60, stateful_step_count=60)


def first_steps(world: World) -> Iterator[Callable[[], None]]:
    """A run without failures, step by step, as far as its end."""
    while world.coordinator.phase is not JobPhase.OVER:
        yield from world.schedule()


def kill_all(world: World) -> None:
    for worker in range(world.layout.workers):
        world.kill(worker, worker)


def kill_both(world: World) -> None:
    world.kill(0)
    world.kill_monitor(True)


INTERRUPTIONS: dict[str, Callable[[World], None]] = {
    "a worker, unheard": lambda world: world.kill(0),
    "a worker, heard to the end": lambda world: world.kill(world.layout.workers - 1, 100),
    "all workers": kill_all,
    "the monitor, its last write lost": lambda world: world.kill_monitor(False),
    "the monitor, its last write durable": lambda world: world.kill_monitor(True),
    "the monitor and a worker": kill_both,
}


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", ["firewall", "loop"])
@pytest.mark.parametrize("interruption", INTERRUPTIONS)
def test_a_death_after_any_step_is_survived(name: str, interruption: str, every: int) -> None:
    """Steps of the start and of a round are interrupted too: a first failure comes in between."""
    phases = set()
    for at in itertools.count(0, every):
        world = world_of(name, 2)
        over = True
        for number, step in enumerate(first_steps(world)):
            step()
            if number == 100:
                world.kill(1)
            if number == at:
                phases.add(world.coordinator.phase)
                INTERRUPTIONS[interruption](world)
                over = False
                break
        world.settle()
        assert world.finished
        if over:
            break
    assert phases >= {JobPhase.GATHERING, JobPhase.RUNNING}
    assert every > 1 or phases >= {JobPhase.DECIDING, JobPhase.RESTORING, JobPhase.CLOSING}


@pytest.mark.parametrize("deaths", [1, 2])
@pytest.mark.parametrize("workers", [1, 3])
def test_who_is_done_says_so_once_to_a_new_monitor(workers: int, deaths: int) -> None:
    """The others may not have joined by then, and nothing may be durable of what the new monitor has written."""
    world = world_of("line", workers)
    for step in first_steps(world):
        if all(process is not None and process.released for process in world.processes):
            break
        step()
    for _ in range(deaths):
        world.kill_monitor(written=False)
        for worker in range(workers):
            while world.processes[worker].outbox:  # type: ignore[union-attr]
                world.hear(worker)
    world.settle(rounds=20)
    assert world.finished


@pytest.mark.parametrize("seed", range(6))
def test_two_deaths_anywhere_are_survived(seed: int) -> None:
    random = Random(seed)
    for _ in range(40):
        world = world_of(random.choice(sorted(LAYOUTS)), random.randrange(1, 4))
        moments = sorted(random.sample(range(250), 3))
        for number, step in enumerate(first_steps(world)):
            step()
            if number in moments:
                INTERRUPTIONS[random.choice(list(INTERRUPTIONS))](world)
            if number == 250:
                break
        world.settle()
        assert world.finished


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(40))
def test_anything_happens_for_long(seed: int) -> None:
    for again in range(50):
        random = Random(seed * 1000 + again)
        world = world_of(random.choice(sorted(LAYOUTS)), random.randrange(1, 4))
        world.disturb(random, 3000)
        world.settle()
        assert world.finished


# ---------------------------------------------------------------------------------------------------------------------
# Mutations: without any one of the rules, the judge above must notice.


def found_by_the_judge(seeds: int = 150, steps: int = 400) -> str | None:
    for seed in range(seeds):
        random = Random(seed)
        try:
            world = world_of(random.choice(sorted(LAYOUTS)), random.randrange(1, 4))
            world.disturb(random, steps)
            world.settle(rounds=150)
        except AssertionError as error:
            return str(error)
    return None


def test_the_judge_finds_nothing_in_what_is_right() -> None:
    assert found_by_the_judge(seeds=60) is None


def _announce_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_watermarks(self: Coordinator) -> None:
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
    def catch_up(self: Coordinator, seat: object) -> None:
        """Whoever is behind may come as he is."""

    joined = Coordinator._on_join

    def on_join(self: Coordinator, seat: object, join: object) -> None:
        generation, self.generation = self.generation, 0
        try:
            joined(self, seat, join)  # type: ignore[arg-type]
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
    def drained(self: Coordinator, seat: object, message: object) -> None:
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


@pytest.mark.parametrize("mutate", MUTATIONS)
def test_a_broken_rule_is_noticed(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    monkeypatch.setattr(
        Coordinator, "check", lambda self: None
    )  # the judge needs no help of the coordinator's invariants
    assert found_by_the_judge() is not None
