"""Bound of a move to other workers: one an operator, and never below what a worker has promised."""

from __future__ import annotations

from random import Random

import pytest

from monitor.coordination.options import Options
from recovery.errors import NoSolutionError
from recovery.fixed_point.solve import AnyFrontier, CheckpointChain, solve
from recovery.layout import Layout
from recovery.metadata import within
from tests.monitor.coordination.coordinators import checkpoint
from tests.recovery.layouts import LAYOUTS, LINE, layout
from tests.support.profile import tries

APART = ("read source, keep chain", "read>keep")
"""Workers that send each other nothing."""


def cut(options: Options, plan: Layout, worker: int, epoch: int) -> None:
    for group in range(len(plan.groups)):
        options.durable(worker, group, (epoch,), checkpoint(plan, group, (epoch,)))


def started(plan: Layout, upto: int = 9) -> Options:
    options = Options(plan)
    for worker in range(plan.workers):
        options.complete(worker, tuple((upto,) for _ in plan.groups))
    return options


def test_a_worker_whose_w_is_ahead_makes_a_move_impossible_until_the_other_has_written_its_cut() -> None:
    plan = layout(*APART, 2)
    options = started(plan)
    for worker in range(2):
        cut(options, plan, worker, 3)
    options.raise_watermarks()
    assert options.common() == ((3,), (3,))
    cut(options, plan, 0, 5)
    assert options.common() == ((3,), (3,))  # nobody has heard that it is safe
    assert options.raise_watermarks()
    assert [options.low(flat) for flat in range(4)] == [(5,), (3,), (5,), (3,)]  # W as ever: nobody waits
    with pytest.raises(NoSolutionError):
        options.common()
    cut(options, plan, 1, 5)
    assert options.common() == ((5,), (5,))


def test_an_exchange_without_a_log_keeps_workers_at_one_bound_already() -> None:
    plan = layout(*LINE, 2)
    options = started(plan)
    cut(options, plan, 0, 4)
    options.raise_watermarks()
    assert {bound[0] for bound in options.common()} == {0}


@pytest.mark.parametrize("name", LAYOUTS)
def test_it_holds_every_w_and_is_the_largest_or_there_is_none(name: str) -> None:
    """Cuts are announced at one epoch for all workers, the next when all have written the last; each writes when it may."""
    found = none = 0
    for seed in range(tries(15)):
        random = Random(seed)
        plan = layout(*LAYOUTS[name], random.randrange(2, 4))
        options = started(plan, 99)
        workers = range(plan.workers)
        at = [0 for _ in plan.groups]
        missing: list[set[int]] = [set() for _ in plan.groups]
        for _ in range(40):
            group = random.randrange(len(plan.groups))
            if not missing[group]:
                at[group] += random.randrange(1, 4)
                missing[group] = set(workers)
            worker = random.choice(sorted(missing[group]))
            missing[group].discard(worker)
            cut_at = (at[group],)
            options.durable(worker, group, cut_at, checkpoint(plan, group, cut_at))
            if random.random() < 0.7:
                options.raise_watermarks()
            try:
                bounds = options.common()
            except NoSolutionError:
                none += 1
                assert any(missing)  # else all have the same
                continue
            found += 1
            flats = [bounds[flat // plan.workers] for flat in range(options.topology.count)]
            assert all(within(options.low(flat), bound) for flat, bound in enumerate(flats))
            assert flats == solve(
                [*options.topology.edges, *options.topology.same()],
                [
                    CheckpointChain([option for option in options.chains[flat] if within(option[0], bound)], 1)
                    if options.topology.info(flat).chain
                    else AnyFrontier(bound)
                    for flat, bound in enumerate(flats)
                ],
            )
    assert found > 50
