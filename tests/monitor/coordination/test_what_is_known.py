"""Knowledge of the options, by hand: possible bounds, the end, cuts that loops have, and the epoch in which sources go on."""

from __future__ import annotations

import pytest

from libraries.columns.verbs.dataflow import Dataflow
from monitor.coordination.options import Options, _is_bound
from recovery.epoch_ends import EpochEnds
from recovery.layout import GroupInfo, Layout, lay_out
from recovery.metadata import MORE, NEVER, Bound
from recovery.policy import AtLeastOnce
from recovery.protocol import InMemory
from tests.monitor.coordination.coordinators import checkpoint, memory
from tests.recovery.layouts import FIREWALL, LINE, LOOP, layout
from timely.dataflow.plan import compile_plan
from timely.io import Callback, Iterable
from timely.time import INF


@pytest.mark.parametrize(
    "bound",
    [(0,), (3,), (NEVER,), (3, 7), (3, INF), (NEVER, 0), (3, 7, MORE, 5), (3, 7, MORE, 7), (3, 7, 1, MORE, 5, 2)],
)
def test_bounds_that_can_be(bound: Bound) -> None:
    depth = bound.index(MORE) if MORE in bound else len(bound)
    assert _is_bound(bound, depth)


@pytest.mark.parametrize(
    ("bound", "depth"),
    [
        ((), 1),
        ((3,), 2),
        ((3, 7), 1),
        ((-2,), 1),
        ((3, -2), 2),
        ((NEVER, 1), 2),
        ((NEVER + 1,), 1),
        ((MORE, 7), 2),
        ((3, MORE, 5), 2),
        ((3, 7, MORE), 2),
        ((3, 7, MORE, 0), 2),
        ((3, 7, MORE, 8), 2),
        ((3, 7, MORE, -2), 2),
        ((3, 7, MORE, 5, MORE, 6), 2),
    ],
)
def test_bounds_that_cannot_be(bound: Bound, depth: int) -> None:
    """None, too short or too long, below or above everything; steps of nothing, or further than the one before."""
    assert not _is_bound(bound, depth)


def test_a_job_has_ended_when_every_group_has_on_every_worker() -> None:
    options = Options(layout(*FIREWALL))
    for worker, upto, ended in (
        (0, ((NEVER,), (NEVER,)), False),
        (1, ((NEVER,), (5,)), False),
        (1, ((NEVER,), (NEVER,)), True),
    ):
        options.complete(worker, upto)
        assert options.ended == ended


def test_the_first_worker_and_its_first_processor_may_tell_of_ends_too() -> None:
    options = Options(layout(*LINE))
    plan = options.layout
    options.memory(0, memory(2, plan), [EpochEnds(0, 0, 0, 2)])
    options.memory(1, memory(2, plan), [EpochEnds(1, 0, 0, 0)])


def test_of_loops_the_last_checkpoints_are_known_as_cuts_and_of_all_else_nothing() -> None:
    options = Options(layout(*LOOP, groups=GroupInfo(1, None, 2)))
    plan = options.layout
    for worker, at in ((0, (3, 7)), (1, (2, 5))):
        options.durable(worker, 0, at, checkpoint(plan, 0, at))
    assert options.saved_cuts() == [[(2, 5), (3, 7)]]
    by_epochs = Options(layout(*LOOP))
    by_epochs.durable(0, 0, (3,), checkpoint(by_epochs.layout, 0, (3,)))
    assert by_epochs.saved_cuts() == [[]]


# The epoch in which sources that are AtLeastOnce go on


def anew() -> Layout:
    """Such a source, what it sends to in its region, and a chain and something that keeps nothing behind that."""
    flow = Dataflow("anew")
    with flow.region("front", policy=AtLeastOnce()):
        numbers = flow.source("in", Iterable(range(10)))
    numbers.distinct(name="new").capture("out")
    numbers.exchange(by=abs, name="free").to(Callback(lambda epoch, batch: None), name="told")
    return lay_out(compile_plan(flow.graph, 2))


def held(plan: Layout, upto: int, notified: int) -> list[InMemory]:
    """The memory of a worker all of whose processors have completed this, and acted on that."""
    return [
        InMemory((upto,), (notified,), each.delivered, each.discards, each.since, each.kept)
        for each in memory(upto, plan)
    ]


def test_sources_go_on_behind_what_is_complete_saved_or_was_acted_on_anywhere_behind() -> None:
    plan = anew()
    options = Options(plan)
    assert options.current_epoch({}) == 0
    for worker in (0, 1):
        options.complete(worker, tuple((4,) for _ in plan.groups))
    group = next(info.group for info in plan.processors if info.name == "new")
    options.durable(1, group, (3,), checkpoint(plan, group, (3,)))
    saved = options.current_epoch({})
    assert saved == 4
    for upto, notified in ((6, 5), (5, 6)):
        living = held(plan, upto, notified)
        assert options.current_epoch({0: living}) == 6
        assert options.current_epoch({0: living, 1: held(plan, 2, 2)}) == 6
        everybody = {(p, 0) for p in range(len(plan.processors))}
        assert options.current_epoch({0: living}, everybody) == saved


def test_under_a_new_monitor_they_go_on_behind_what_is_saved() -> None:
    """Nobody has told it of anything completed."""
    plan = anew()
    options = Options(plan)
    group = next(info.group for info in plan.processors if info.name == "new")
    for worker in (0, 1):
        assert options.join(worker, checkpoint(plan, group, (5,))) is None
    assert options.current_epoch({}) == 5


def test_behind_an_epoch_that_a_loop_has_begun_they_go_on_in_the_next() -> None:
    flow = Dataflow("anew")
    with flow.region("front", policy=AtLeastOnce()):
        numbers = flow.source("in", Iterable(range(10)))
    numbers.iterate(lambda inner: inner.map(abs).distinct(name="new"), name="round").capture("out")
    plan = lay_out(compile_plan(flow.graph, 2))
    options = Options(plan)
    living = held(plan, 3, 3)
    assert options.current_epoch({0: living, 1: living}) == 3
    inside = next(p for p, info in enumerate(plan.processors) if info.name == "new")
    living[inside] = InMemory(
        (3, 7), (3, 7), living[inside].delivered, living[inside].discards, (0, 0), living[inside].kept
    )
    assert options.current_epoch({0: living, 1: living}) == 4


def test_at_the_end_of_all_input_they_send_what_they_sent_where_they_sent_it() -> None:
    plan = anew()
    options = Options(plan)
    assert options.current_epoch({0: held(plan, NEVER, 3)}) == 0
    assert options.current_epoch({0: held(plan, 3, NEVER), 1: held(plan, 4, 4)}) == 0


def test_without_such_sources_there_is_no_such_epoch() -> None:
    options = Options(layout(*LINE))
    assert options.current_epoch({0: held(options.layout, 5, 5)}) == 0
