"""Firewalls, and what is kept behind them, on small layouts like those of *Falkirk Wheel*, Figure 7."""

from __future__ import annotations

from monitor.coordination.options import Options
from monitor.coordination.workers import JobPhase
from recovery.metadata import Bound, at_epoch
from tests.monitor.coordination.world import World
from tests.recovery.layouts import FIREWALL, LINE, LOOP, layout


def after_failure(
    processors: str, edges: str, epochs: int, cut: bool, worker: int = 0
) -> tuple[World, list[Bound | None]]:
    """Run some epochs on two workers, with or without checkpoints, and kill one worker. Its decision and the other's."""
    world = World(layout(processors, edges))
    world.working = False
    world.settle(JobPhase.RUNNING)
    for _ in range(epochs):
        for w in range(2):
            for group in range(len(world.layout.groups)):
                world.work(w, group)
        for _ in range(5):
            world.store()
            for w in range(2):
                for _ in range(4):
                    world.hear(w)
                    world.receive(w)
                if cut:
                    world.persist(w)
    world.kill(worker, 100)
    while world.coordinator.phase is JobPhase.RUNNING:
        world.hear(worker)
    world.settle(JobPhase.RUNNING)
    assert world.coordinator.decision is not None
    assert world.coordinator.decision.failed == (worker,)
    return world, [bound for bounds in world.coordinator.decision.bounds for bound in bounds]


def test_a_failure_behind_a_firewall_leaves_what_is_before_it_as_it_was() -> None:
    """Worker 1: read and clean go on. Its count has got some of what clean of worker 0 will send differently, perhaps."""
    _, decision = after_failure(*FIREWALL, epochs=3, cut=True)
    assert decision == [(3,)] * 4 + [None, None, (3,), (3,)]


def test_a_failure_behind_a_firewall_without_checkpoints_behind_it() -> None:
    """Count of worker 0 has saved nothing; what it needs is logged, so nobody before it goes back."""
    processors, edges = "read source, clean chain, count chain", "read>clean, clean|count"
    world = World(layout(processors, edges))
    available = Options(world.layout)
    processes = [process for process in world.processes if process is not None]
    for process in processes:
        process.epochs = [4, 4]
    for worker in range(2):
        read, clean = (4,), (4,)
        available.chains[available.topology.flat(0, worker)] = [(read, (read,))]
        available.chains[available.topology.flat(1, worker)] = [(clean, ((0,),))]
    memory = {1: processes[1].memory()}
    assert available.decide(memory) == (((4,), (4,), (0,)), (None, None, (4,)))


def test_without_checkpoints_and_logs_everything_goes_back_together() -> None:
    _, decision = after_failure(*LINE, epochs=3, cut=False)
    assert decision == [(0,)] * 8


def test_with_a_checkpoint_everything_goes_back_to_it_together() -> None:
    """Unlogged edges force equal frontiers; the exchange in the middle joins both workers."""
    world, decision = after_failure(*LINE, epochs=3, cut=True)
    low = world.coordinator.options.watermarks
    assert set(decision) == {(3,)}
    assert low == (((3,),) * 4,) * 2


def test_a_loop_goes_back_to_the_start_of_an_epoch() -> None:
    world, decision = after_failure(*LOOP, epochs=2, cut=True)
    depths = [info.depth for info in world.layout.processors] * 2
    assert decision == [at_epoch(2, depth) for depth in depths]
