"""A coordinator by itself, of two workers with one plan, and what workers say to it."""

from __future__ import annotations

import msgspec

from monitor.coordination.coordinator import Settings
from monitor.coordination.effects import Effect, Persist, TimelineEvent
from monitor.coordination.records import SavedJob
from monitor.coordination.workers import JobPhase
from recovery.metadata import Xi
from recovery.protocol import Drained, InMemory, Join, Restored
from tests.monitor.coordination.driven import DrivenCoordinator
from tests.monitor.coordination.world import World
from tests.recovery.layouts import layout

PLAN = layout("read source, count chain", "read=>count")
GROUND = ((0,), (0,))


def settings(**values: object) -> Settings:
    return msgspec.convert(values, Settings)


def join(worker: int, incarnation: int = 1, generation: int = 0, alive: bool = False, **values: object) -> Join:
    return Join(worker, incarnation, generation, alive, PLAN, **{"durable": (), **values})  # type: ignore[arg-type]


def xis(epoch: int) -> tuple[Xi, ...]:
    return Xi(0, (epoch,), ((epoch,),)), Xi(1, (epoch,), ())


def without_events(coordinator: DrivenCoordinator) -> list[Effect]:
    return [effect for effect in coordinator.take() if not isinstance(effect, TimelineEvent)]


def write(coordinator: DrivenCoordinator) -> Persist:
    """The next write, acknowledged."""
    found: Persist | None = None
    for effect in coordinator.take():
        if isinstance(effect, Persist):
            found = effect
    assert found is not None
    coordinator.stored(found.ticket)
    return found


def running(saved: SavedJob | None = None, **values: object) -> DrivenCoordinator:
    coordinator = DrivenCoordinator(PLAN, saved, settings(**values))
    for worker in range(2):
        coordinator.hear(join(worker), 0.0)
    while coordinator.phase is not JobPhase.RESTORING:
        write(coordinator)
    for worker in range(2):
        coordinator.hear(Restored(worker, coordinator.generation), 0.0)
    assert coordinator.phase is JobPhase.RUNNING
    coordinator.take()
    return coordinator


def memory(epoch: int = 0) -> tuple[InMemory, ...]:
    """The memory of a living worker that has completed the epochs before this one."""
    process = World(PLAN).processes[1]
    assert process is not None
    process.epochs = [epoch]
    return process.memory()


def respawned(coordinator: DrivenCoordinator, incarnation: int, at: float = 1.0) -> None:
    """Worker 0 dies; its next process joins, and worker 1 drains its links."""
    coordinator.lost(0, incarnation - 1, at, "killed")
    coordinator.hear(join(0, incarnation, coordinator.generation), at)
    coordinator.hear(Drained(1, coordinator.round, memory()), at)
