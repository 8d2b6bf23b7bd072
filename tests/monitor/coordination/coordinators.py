"""A coordinator by itself, and what workers say to it: of two workers with one plan, where nothing else is said."""

from __future__ import annotations

import msgspec

from monitor.coordination.coordinator import Settings
from monitor.coordination.effects import Effect, Persist
from monitor.coordination.records import KeptEvent, SavedJob
from monitor.coordination.supervision import TimelineEvent
from monitor.coordination.workers import JobPhase
from recovery.layout import Layout
from recovery.metadata import NEVER, Bound, Xi, at_cut, at_epoch, image, nothing
from recovery.place import Place
from recovery.protocol import Completed, Drained, Durable, InMemory, Join, Released, Restored
from tests.monitor.coordination.driven import DrivenCoordinator
from tests.recovery.layouts import layout

PLAN = layout("read source, count chain", "read=>count")
GROUND = ((0,), (0,))


def settings(**values: object) -> Settings:
    return msgspec.convert(values, Settings)


def join(worker: int, incarnation: int = 1, generation: int = 0, alive: bool = False, **values: object) -> Join:
    more = {"layout": PLAN, "durable": (), **values}
    return Join(Place(worker), incarnation, generation, alive, **more)  # type: ignore[arg-type]


def xis(epoch: int) -> tuple[Xi, ...]:
    return Xi(0, (epoch,), ((epoch,),)), Xi(1, (epoch,), ())


def without_events(coordinator: DrivenCoordinator) -> list[Effect]:
    """The effects without those for the timeline; and of records without the events that come with them."""
    found: list[Effect] = []
    for effect in coordinator.take():
        if isinstance(effect, Persist):
            records = tuple(each for each in effect.records if not isinstance(each, KeptEvent))
            if not records:
                continue
            effect = Persist(effect.ticket, records)
        if not isinstance(effect, TimelineEvent):
            found.append(effect)
    return found


def write(coordinator: DrivenCoordinator) -> Persist:
    """The next write, acknowledged."""
    found: Persist | None = None
    for effect in coordinator.take():
        if isinstance(effect, Persist):
            found = effect
    assert found is not None
    coordinator.stored(found.ticket)
    return found


def write_all(coordinator: DrivenCoordinator) -> None:
    """Acknowledge one write after the other until there is none."""
    while writes := [effect for effect in coordinator.take() if isinstance(effect, Persist)]:
        for each in writes:
            coordinator.stored(each.ticket)


def running(saved: SavedJob | None = None, plan: Layout = PLAN, **values: object) -> DrivenCoordinator:
    coordinator = DrivenCoordinator(plan, saved, settings(**values))
    for worker in range(plan.workers):
        coordinator.hear(join(worker, layout=plan), 0.0)
    while coordinator.phase is not JobPhase.RESTORING:
        write(coordinator)
    for worker in range(plan.workers):
        coordinator.hear(Restored(Place(worker), coordinator.generation), 0.0)
    assert coordinator.phase is JobPhase.RUNNING
    coordinator.take()
    return coordinator


def _discards(plan: Layout, processor: int, bound: Bound) -> tuple[Bound, ...]:
    """The bounds of what a processor has sent, and not logged, for all before `bound`."""
    edges = [plan.edges[index] for index in plan.outgoing()[processor]]
    return tuple(nothing(edge.summary.result_depth) if edge.logged else image(edge.discarding, bound) for edge in edges)


def checkpoint(plan: Layout, group: int, at: Bound) -> tuple[Xi, ...]:
    """The cut of a group at `at` on one worker."""
    bounds = {p: at_cut(at, plan.processors[p].depth) for p in plan.members(group) if plan.processors[p].chain}
    return tuple(Xi(p, bound, _discards(plan, p, bound)) for p, bound in bounds.items())


def memory(epoch: int = 0, plan: Layout = PLAN) -> tuple[InMemory, ...]:
    """The memory of a living worker that has completed the epochs before this one, and has begun it."""
    held = []
    for p, info in enumerate(plan.processors):
        upto = at_epoch(epoch, info.depth)
        begun = upto if epoch == NEVER else at_epoch(epoch + 1, info.depth)
        held.append(InMemory(upto, upto, (begun,) * len(plan.incoming()[p]), _discards(plan, p, begun)))
    return tuple(held)


def respawned(coordinator: DrivenCoordinator, incarnation: int, at: float = 1.0) -> None:
    """Worker 0 dies; its next process joins, and worker 1 drains its links."""
    coordinator.lost(0, incarnation - 1, at, "killed")
    coordinator.hear(join(0, incarnation, coordinator.generation), at)
    coordinator.hear(Drained(Place(1), coordinator.round, memory()), at)


def life(coordinator: DrivenCoordinator) -> None:
    """A whole job of two workers: its start, cuts, the death of worker 0 and the round that follows, its end."""
    for worker in range(2):
        coordinator.hear(join(worker), 0.0)
    write_all(coordinator)
    for worker in range(2):
        coordinator.hear(Restored(Place(worker), 1), 0.5)
    for worker in range(2):
        coordinator.hear(Completed(Place(worker), 1, ((3,),)), 1.0)
    for worker in range(2):
        coordinator.hear(Durable(Place(worker), 1, 0, (3,), xis(3)), 1.5)
    write_all(coordinator)
    for worker in range(2):
        coordinator.hear(Completed(Place(worker), 1, ((5,),)), 2.0)
    coordinator.hear(Durable(Place(0), 1, 0, (5,), xis(5)), 2.5)
    coordinator.lost(0, 1, 3.0, "killed")
    coordinator.hear(join(0, 2, 1, durable=(*xis(3), *xis(5))), 3.5)
    coordinator.hear(Drained(Place(1), coordinator.round, memory(5)), 3.5)
    write_all(coordinator)
    for worker in (1, 0):
        coordinator.hear(Restored(Place(worker), 2), 4.0)
    for worker in range(2):
        coordinator.hear(Completed(Place(worker), 2, ((NEVER,),)), 4.5)
    for worker in range(2):
        coordinator.hear(Durable(Place(worker), 2, 0, (NEVER,), xis(NEVER)), 5.0)
    write_all(coordinator)
    for worker in range(2):
        coordinator.hear(Released(Place(worker)), 5.5)
    write_all(coordinator)
    assert coordinator.phase is JobPhase.OVER
