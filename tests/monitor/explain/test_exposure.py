"""Exposure held to what then happens: never less goes back, nor more is done again, than was said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from falkirk.simulate.world import World
from monitor.coordination.workers import JobPhase
from monitor.explain.exposure import Fate, Reduced, fate
from recovery.metadata import Bound, within
from recovery.protocol import Observe, Observed
from recovery.recorder import KEPT_BYTES
from tests.monitor.explain.test_what_if import CountingWorld, agents, coordinator, go_on, stand_still
from tests.recovery.jobs import RULE_PROGRAMS

PROGRAMS = ("tight", "keeping", "by_chance", "logs", "stateless", "ahead", "rounds", "ordered", "holding", "long_loop",
            "fed_loop", "two_loops", "pipelined_loop", "delayed_loops", "order_ahead", "eagerly", "entered")  # fmt: skip


class Roomy(CountingWorld):
    """A job with room for all messages that survivors need: none is forgotten after the last look."""

    def _open(self, process: Any) -> None:
        super()._open(process)
        if process.recovery is not None:
            process.recovery.agent.recorder.shipments.budget = KEPT_BYTES


def look(world: World) -> dict[int, Observed]:
    """What each worker says of itself now."""
    told = {}
    for process in world._processes:
        assert process is not None
        assert process.recovery is not None
        observer = process.recovery._observer
        observer._measure()
        told[process.recovery.agent.index] = observer._look(Observe(1.0, 10.0, sampled=True))
    return told


def supposed(world: World, failed: list[int], told: dict[int, Observed]) -> Fate:
    leads = coordinator(world)
    held = (leads.decision.held or leads.decision.bounds) if leads.decision is not None else ()
    return fate(Reduced(leads.layout), leads.options, failed, told, held)


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
        told = look(world)
        expected = supposed(world, [victim], told)
        leads, before = coordinator(world), coordinator(world).generation
        process = world._processes[victim]
        assert process is not None
        world._kill(process, "killed")
        while coordinator(world).generation == before and not world.finished:
            world.step()
        if stand:
            go_on(world)
        if leads is coordinator(world) and not world.finished and leads.decision.failed == (victim,):
            yield world, [victim], expected, told, before
        victim = (victim + 1) % workers


def holds_at_least(actual: Bound | None, expected: Bound | None) -> bool:
    return actual is None or (expected is not None and within(expected, actual))


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("program", PROGRAMS)
def test_no_processor_goes_further_back_than_was_expected(program: str, workers: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(3):
        for world, failed, expected, _, _ in struck(program, workers, seed, 120 + 40 * seed):
            decided = coordinator(world).decision.bounds
            layout_ = coordinator(world).layout
            for worker, (bounds, guessed) in enumerate(zip(decided, expected.bounds)):
                for p, (actual, guess) in enumerate(zip(bounds, guessed)):
                    name = layout_.processors[p].name
                    assert holds_at_least(actual, guess), (seed, failed, worker, name, actual, guess)
                    seen["exact" if actual == guess else "less"] += 1
    assert seen["exact"]
    print(program, workers, dict(seen))
