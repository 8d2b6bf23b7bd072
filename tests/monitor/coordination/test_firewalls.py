"""Firewalls, and what is kept behind them, on small layouts like those of *Falkirk Wheel*, Figure 7."""

from __future__ import annotations

from monitor.coordination.options import Options
from recovery.metadata import Bound, at_epoch
from recovery.place import Place
from recovery.protocol import Completed, Drained, Durable
from tests.monitor.coordination.coordinators import checkpoint, join, memory, running, write_all
from tests.monitor.coordination.driven import DrivenCoordinator
from tests.recovery.layouts import FIREWALL, LINE, LOOP, layout


def after_failure(processors: str, edges: str, epochs: int, cut: bool) -> tuple[DrivenCoordinator, list[Bound | None]]:
    """Two workers complete some epochs, with or without checkpoints, and worker 0 dies. The decision for both."""
    plan = layout(processors, edges)
    coordinator = running(plan=plan)
    for worker in range(2):
        coordinator.hear(Completed(Place(worker), 1, ((epochs,),) * len(plan.groups)), 1.0)
    cuts = [(group, (epochs,)) for group in range(len(plan.groups)) if cut]
    for worker in range(2):
        for group, at in cuts:
            coordinator.hear(Durable(Place(worker), 1, group, at, checkpoint(plan, group, at)), 1.0)
    write_all(coordinator)
    coordinator.lost(0, 1, 2.0, "killed")
    saved = tuple(xi for group, at in cuts for xi in checkpoint(plan, group, at))
    coordinator.hear(join(0, 2, 1, layout=plan, durable=saved), 2.0)
    coordinator.hear(Drained(Place(1), 2, memory(epochs, plan)), 2.0)
    write_all(coordinator)
    assert coordinator.decision is not None
    assert coordinator.decision.failed == (0,)
    return coordinator, [bound for bounds in coordinator.decision.bounds for bound in bounds]


def test_a_failure_behind_a_firewall_leaves_what_is_before_it_as_it_was() -> None:
    """Worker 1: read and clean go on. Its count has got some of what clean of worker 0 will send differently, perhaps."""
    _, decision = after_failure(*FIREWALL, epochs=3, cut=True)
    assert decision == [(3,)] * 4 + [None, None, (3,), (3,)]


def test_a_failure_behind_a_firewall_without_checkpoints_behind_it() -> None:
    """Count of worker 0 has saved nothing; what it needs is logged, so nobody before it goes back."""
    processors, edges = "read source, clean chain, count chain", "read>clean, clean|count"
    plan = layout(processors, edges)
    options = Options(plan)
    for worker in range(2):
        read, clean = (4,), (4,)
        options.chains[options.topology.flat(0, worker)] = [(read, (read,))]
        options.chains[options.topology.flat(1, worker)] = [(clean, ((0,),))]
    assert options.decide({1: memory(4, plan)}) == (((4,), (4,), (0,)), (None, None, (4,)))


def test_without_checkpoints_and_logs_everything_goes_back_together() -> None:
    _, decision = after_failure(*LINE, epochs=3, cut=False)
    assert decision == [(0,)] * 8


def test_with_a_checkpoint_everything_goes_back_to_it_together() -> None:
    """Unlogged edges force equal frontiers; the exchange in the middle joins both workers."""
    coordinator, decision = after_failure(*LINE, epochs=3, cut=True)
    low = coordinator.options.watermarks
    assert set(decision) == {(3,)}
    assert low == (((3,),) * 4,) * 2


def test_a_loop_goes_back_to_the_start_of_an_epoch() -> None:
    coordinator, decision = after_failure(*LOOP, epochs=2, cut=True)
    depths = [info.depth for info in coordinator.layout.processors] * 2
    assert decision == [at_epoch(2, depth) for depth in depths]
