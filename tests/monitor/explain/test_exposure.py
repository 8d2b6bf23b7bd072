"""Exposure held to what then happens: never less goes back, nor more is done again, than was said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from falkirk.simulate.world import World
from monitor.coordination.options import Options
from monitor.coordination.workers import JobPhase
from monitor.explain.exposure import Danger, Fate, Reduced, danger, fate
from recovery.agent.rounds import Rounds
from recovery.memory.channels import KEPT_BYTES
from recovery.memory.recorder import WorkerRecorder
from recovery.metadata import NEVER, Bound
from recovery.place import Place
from recovery.protocol import END, Decision, Observe, Observed
from recovery.rollback.exposed import MOST_EPOCHS, exposed
from recovery.rollback.queues import undone
from tests.monitor.explain.test_what_if import CountingWorld, agents, coordinator, go_on, stand_still
from tests.monitor.history.drawn import layout_of, options_at
from tests.recovery.jobs import RULE_PROGRAMS
from tests.recovery.layouts import LOOP, layout
from timely.time import INF

PROGRAMS = ("tight", "keeping", "by_chance", "logs", "stateless", "ahead", "rounds", "ordered", "holding", "long_loop",
            "fed_loop", "two_loops", "pipelined_loop", "order_ahead", "eagerly", "entered")  # fmt: skip


class Roomy(CountingWorld):
    """A job with room for all messages that survivors need: none is forgotten after the last look."""

    def _open(self, process: Any) -> None:
        super()._open(process)
        if process.recovery is not None:
            process.recovery.agent.recorder.shipments.budget = KEPT_BYTES


def look(world: World, sampled: bool = True) -> dict[int, Observed]:
    """What each worker says of itself now."""
    samples = {}
    for process in world._processes.values():
        assert process is not None
        assert process.recovery is not None
        observer = process.recovery._observer
        observer._measure()
        samples[process.recovery.agent.index] = observer._look(Observe(1.0, 10.0, sampled=sampled))
    return samples


def supposed(world: World, failed: list[int], samples: dict[int, Observed]) -> Fate:
    leads = coordinator(world)
    held = leads.decision.returned() if leads.decision is not None else ()
    return fate(Reduced(leads.layout), leads.options, failed, samples, held)


def running(world: World, workers: int) -> bool:
    there = agents(world)
    return coordinator(world).phase is JobPhase.RUNNING and len(there) == workers and all(a.running for a in there)


def struck(
    program: str, workers: int, seed: int, every: int, stand: bool = False
) -> Iterator[tuple[World, list[int], Fate, dict[int, Observed], int]]:
    """After each death of a worker: the job, who died, what was expected, and the generation before.

    `stand`: nothing was under way at the death.
    """
    world = Roomy(RULE_PROGRAMS[program], workers, seed, ())
    world.outside.check_acknowledged = lambda: None  # type: ignore[method-assign]
    victim = seed % workers
    steps = 0
    while not world.finished:
        world.step()
        steps += 1
        if steps < every or world.finished or not running(world, workers):
            continue
        if stand:
            stand_still(world)
            if not running(world, workers):
                go_on(world)
                continue
        steps = 0
        samples = look(world)
        expected = supposed(world, [victim], samples)
        leads, before = coordinator(world), coordinator(world).generation
        process = world._processes[Place(victim)]
        assert process is not None
        world._kill(process, "killed")
        while coordinator(world).generation == before and not world.finished:
            world.step()
        if stand:
            go_on(world)
        if leads is coordinator(world) and not world.finished and leads.decision.failed == (victim,):
            yield world, [victim], expected, samples, before
        victim = (victim + 1) % workers


def first_out(bound: Bound | None) -> float:
    """First epoch that a frontier leaves out, at least in part."""
    return float("inf") if bound is None else bound[0]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_processor_goes_back_to_an_earlier_epoch_than_was_expected(program: str, workers: int) -> None:
    seen: Counter[bool] = Counter()
    for seed in range(2):
        for world, failed, expected, _, _ in struck(program, workers, seed, 60 + 40 * workers + 80 * seed):
            leads = coordinator(world)
            for worker, (bounds, guessed) in enumerate(zip(leads.decision.bounds, expected.bounds)):
                for info, actual, guess in zip(leads.layout.processors, bounds, guessed):
                    assert first_out(actual) >= first_out(guess), (seed, failed, worker, info.name, actual, guess)
                    seen[actual == guess] += 1
    assert seen


@pytest.mark.sampled(3)
@pytest.mark.parametrize("program", ["tight", "logs", "stateless", "rounds", "eagerly"])
def test_no_more_is_done_again_than_was_expected_if_nothing_was_under_way(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: dict[int, int] = {}
    memory = Rounds.decide

    def watched(rounds: Rounds, decision: Decision) -> None:
        own = rounds._own
        redone = undone(own.recorder, decision.bounds[own.index], 0.0) if own.alive else ()
        done[decision.generation] = done.get(decision.generation, 0) + sum(part.records for part in redone)
        memory(rounds, decision)

    monkeypatch.setattr(Rounds, "decide", watched)
    exact = rounds = 0
    for seed in range(2):
        done.clear()
        for world, failed, expected, samples, _ in struck(program, 2, seed, 150, stand=True):
            found = danger(failed[0], expected, samples, None)
            assert found.records is not None
            dead = np.array(
                [[END if w not in failed else each for each in row] for w, row in enumerate(expected.epochs)]
            )
            of_dead = danger(failed[0], Fate(expected.bounds, dead), samples, None).records
            assert of_dead is not None
            for _ in range(200):  # the last of the living hears the decision later
                world.step()
            living = done.get(coordinator(world).generation, 0)
            assert found.records >= of_dead
            assert found.records - of_dead >= living, (seed, failed)
            exact += found.records - of_dead == living
            rounds += 1
            done.clear()
    assert rounds
    assert exact


def test_the_table_counts_what_is_handled_from_an_epoch_on() -> None:
    recorder = WorkerRecorder(layout(*LOOP), 0)
    random = np.random.default_rng(5)
    for p, handled in enumerate(recorder.handled):
        for epoch in range(p, 40 + p):
            handled[epoch, 0] = int(random.integers(1, 100))
    recorder.handled[1][INF, 0] = 7
    recorder.records = 100
    found = exposed(recorder, [4, 9, 200, NEVER], 5.0)
    assert found.each == 0.05
    assert len(found.begins) <= MOST_EPOCHS
    assert {0, 4, 9, 44, 45} <= set(found.begins)
    table = np.frombuffer(found.records, np.int64).reshape(len(found.begins), -1)
    for row, begin in zip(table, found.begins):
        for p, handled in enumerate(recorder.handled):
            assert row[p] == sum(count for time, count in handled.items() if time[0] >= begin)
    many = exposed(recorder, range(100), 5.0)
    assert len(many.begins) <= MOST_EPOCHS


def test_a_cost_is_unknown_if_a_worker_has_not_said_what_it_has_done() -> None:
    plan = layout_of(100, 2)
    options = Options.of_record(plan, options_at(plan, 10))
    found = fate(Reduced(plan), options, [1], {})
    assert danger(1, found, {}, 0.5) == Danger(1, None, None, 0.5, found.back)
    assert danger(1, found, {}, 0.5).seconds is None
    assert Danger(1, 5, 0.25, None).seconds is None
    assert Danger(1, 5, 0.25, 0.5).as_json()["seconds"] == 0.75


@pytest.mark.parametrize(("operators", "most"), [(100, 400), (1000, 3200)])
def test_a_job_is_solved_for_two_workers_however_many_it_has(operators: int, most: int) -> None:
    sizes = {len(Reduced(layout_of(operators, workers)).edges) for workers in (2, 4, 8)}
    assert len(sizes) == 1
    assert sizes.pop() <= most / 4
