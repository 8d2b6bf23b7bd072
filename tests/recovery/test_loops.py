"""Cuts between the iterations of a loop: where they may be, when they are made, and what goes wrong without their rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import recovery.checkpoint.checkpoints
import recovery.rollback.queues
from falkirk.simulate.faults import Rates
from libraries.columns.verbs.columns import Stream
from libraries.columns.verbs.dataflow import Dataflow
from monitor.coordination.cuts import Cuts
from monitor.coordination.options import Options
from recovery.agent.completion import GroupInputs
from recovery.checkpoint.saved_events import SavedEvents
from recovery.layout import EdgeInfo, GroupInfo, Layout, lay_out
from recovery.metadata import MORE, Bound
from recovery.policy import Batch, Ephemeral, Lazy, LogHistory, Policy
from recovery.protocol import InMemory
from recovery.rollback.queues import goes_again
from tests.recovery.jobs import Faults, simulated
from tests.support.mutation import Change, Instead, changed
from timely.dataflow.plan import compile_plan
from timely.io import Iterable, Memory
from timely.operators.base import Context, Operator
from timely.time import Time

# Where cuts may be

LOGS = Lazy(every=1.0, log_outputs=True)


class _Asks(Operator):
    def on_batch(self, ctx: Context, port: int, time: Time, batch: Any) -> None:
        ctx.notify_at((time[0], time[1] + 3))

    def on_notify(self, ctx: Context, time: Time) -> None:
        ctx.send([1])


def looped(
    policy: Policy = LOGS, body: Callable[[Stream], Stream] = lambda inner: inner, before: Policy | None = None
) -> Layout:
    """A source, a loop in a region, and an output behind it."""
    flow = Dataflow("looped")
    with flow.region("before", policy=before or Lazy()):
        source = flow.source("in", Iterable(range(10)))
    with flow.region("loop", policy=policy):
        out = source.iterate(lambda inner: body(inner.distinct(name="new")), name="round")
    out.to(Memory(), name="out")
    return lay_out(compile_plan(flow.graph, 2))


def depth_of(layout: Layout, name: str) -> int:
    """The coordinates of the cuts of an operator's group."""
    return next(layout.groups[info.group].depth for info in layout.processors if info.name == name)


@pytest.mark.parametrize("before", [Lazy(), Ephemeral(), Batch(log_outputs=True)])
@pytest.mark.parametrize("policy", [LOGS, LogHistory(log_outputs=True)])
def test_a_loop_that_logs_its_outputs_is_cut_between_iterations(policy: Policy, before: Policy) -> None:
    layout = looped(policy, before=before)
    assert depth_of(layout, "new") == depth_of(layout, "round-leave") == 2
    assert depth_of(layout, "out") == 1
    (back,) = [edge for edge in layout.edges if layout.processors[edge.source].kind == "feedback"]
    assert back.ahead
    assert layout.processors[back.source].chain
    assert depth_of(layout, "in") == (1 if before == Batch(log_outputs=True) else 2)


def entering_anywhere(flow: Dataflow) -> None:
    source = flow.source("in", Iterable(range(10)))
    scope = flow.scope("anywhere")
    with flow.region("loop", policy=LOGS):
        inside = source.enter(scope, at=lambda n: n).distinct(name="new").leave()
    inside.to(Memory(), name="out")


def two_at_once(flow: Dataflow) -> None:
    with flow.region("loops", policy=LOGS):
        source = flow.source("in", Iterable(range(10)))
        one = source.iterate(lambda inner: inner.distinct(name="new"), name="one")
        two = source.iterate(lambda inner: inner.distinct(name="other"), name="two")
    one.to(Memory(), name="first")
    two.to(Memory(), name="second")


def output_inside(flow: Dataflow) -> None:
    def body(inner: Stream) -> Stream:
        new = inner.distinct(name="new")
        new.capture("seen")
        return new

    with flow.region("loop", policy=LOGS):
        out = flow.source("in", Iterable(range(10))).iterate(body)
    out.to(Memory(), name="out")


def one_output_unlogged(flow: Dataflow) -> None:
    with flow.region("loop", policy=LOGS):
        out = flow.source("in", Iterable(range(10))).iterate(lambda inner: inner.distinct(name="new"))
        out.to(Memory(), name="within")
    out.to(Memory(), name="out")


def one_of_two_outputs_unlogged(flow: Dataflow) -> None:
    early: list[Stream] = []

    def body(inner: Stream) -> Stream:
        new = inner.distinct(name="new")
        early.append(new.leave())
        return new

    with flow.region("loop", policy=LOGS):
        out = flow.source("in", Iterable(range(10))).iterate(body)
        out.to(Memory(), name="within")
    early[0].to(Memory(), name="out")


def asking(flow: Dataflow, **of: Any) -> None:
    with flow.region("loop", policy=LOGS):
        numbers = flow.source("in", Iterable(range(10)))
        asks = Ephemeral() if of.pop("ephemeral", False) else None

        def body(inner: Stream) -> Stream:
            made = inner.distinct(name="new").unary("asks", _Asks, **of)
            return made.policy(asks) if asks else made

        out = numbers.iterate(body)
    out.to(Memory(), name="out")


@pytest.mark.parametrize(
    "build",
    [entering_anywhere, two_at_once, output_inside, one_output_unlogged, one_of_two_outputs_unlogged],
)
def test_loops_whose_iterations_are_not_all_there_is_to_a_cut_are_cut_between_epochs(
    build: Callable[[Dataflow], None],
) -> None:
    flow = Dataflow("other")
    build(flow)
    assert depth_of(lay_out(compile_plan(flow.graph, 2)), "new") == 1


@pytest.mark.parametrize("policy", [Lazy(), LogHistory(), Batch(log_outputs=False)])
def test_a_loop_that_logs_nothing_is_cut_between_epochs(policy: Policy) -> None:
    if isinstance(policy, Batch):
        flow = Dataflow("stateless")
        with flow.region("loop", policy=policy):
            flow.source("in", Iterable(range(10))).iterate(lambda inner: inner.filter(bool, name="new")).capture("out")
        assert depth_of(lay_out(compile_plan(flow.graph, 2)), "new") == 1
    else:
        assert depth_of(looped(policy), "new") == 1


@pytest.mark.parametrize(("stateful", "depth"), [(True, 2), (False, 1)])
def test_an_operator_that_may_wait_for_later_iterations_must_say_so(stateful: bool, depth: int) -> None:
    layout = looped(body=lambda inner: inner.unary("asks", _Asks, stateful=stateful))
    assert depth_of(layout, "new") == depth


@pytest.mark.parametrize(("ephemeral", "depth"), [(False, 2), (True, 1)])
def test_an_ephemeral_operator_that_asks_for_notifications_may_forget_them_within_an_epoch(
    ephemeral: bool, depth: int
) -> None:
    def body(inner: Stream) -> Stream:
        asks = inner.unary("asks", _Asks, stateful=not ephemeral)
        return asks.policy(Ephemeral()) if ephemeral else asks

    assert depth_of(looped(body=body), "new") == depth


@pytest.mark.parametrize(
    ("of", "depth"),
    [
        ({"stateful": False, "notifies": False, "holds": False}, 2),
        ({"stateful": False, "notifies": False, "holds": True}, 1),
        ({"stateful": True, "notifies": False, "holds": True}, 2),
        ({"stateful": True, "ephemeral": True}, 1),
    ],
)
def test_an_operator_that_asks_for_nothing_has_nothing_to_say(of: dict[str, bool], depth: int) -> None:
    flow = Dataflow("asking")
    asking(flow, **of)
    assert depth_of(lay_out(compile_plan(flow.graph, 2)), "new") == depth


# When they are made


def test_an_epoch_that_is_over_is_cut_at_its_end_and_one_that_lasts_within() -> None:
    cuts = Cuts([GroupInfo(None, 1.0, 2)], [[(0, 0), (0, 0)]], 0.0)
    assert cuts.due([(0, 4)], 0.9) == []
    assert cuts.due([(0, 4)], 1.0) == [(0, (0, 4), [0, 1])]
    assert cuts.durable(0, 0, (0, 4)) is None
    assert cuts.durable(0, 1, (0, 4)) == 1.0
    assert cuts.due([(0, 4)], 9.0) == []
    assert cuts.due([(1, 7)], 9.0) == [(0, (1, 0), [0, 1])]


def test_cuts_by_a_number_of_epochs_are_between_epochs() -> None:
    cuts = Cuts([GroupInfo(1, None, 2)], [[(3, 0)]], 0.0)
    assert cuts.due([(3, 99)], 9999.0) == []
    assert cuts.due([(4, 1)], 9999.0) == [(0, (4, 0), [0])]


# What they are good for, and what they need

KILLS = Faults(Rates(until=2.0, kill=0.008))
PROGRAMS = ("long_loop", "fed_loop", "two_loops")
RUNS = [(program, workers, seed) for program in PROGRAMS for workers in (1, 2) for seed in range(7)]


def tally(runs: Sequence[tuple[str, int, int]], faults: Faults = KILLS) -> tuple[Counter[str], list[str]]:
    """The events in the midst of epochs, those at sets that are no prefixes, and what went wrong."""
    found: Counter[str] = Counter()
    durable, decide = Options.durable, Options.decide

    def counting(self: Options, worker: int, group: int, at: Bound, xis: Any, held: bool = False) -> None:
        found["cuts"] += any(at[1:])
        found["sets"] += MORE in at
        durable(self, worker, group, at, xis, held)

    def watching(self: Options, memory: Mapping[int, Sequence[InMemory]], failed: Any = (), **known: Any) -> Any:
        decided = decide(self, memory, failed, **known)
        found["restored"] += any(
            bound is not None and any(bound[1:]) and worker not in memory
            for worker, bounds in enumerate(decided)
            for bound in bounds
        )
        found["sets restored"] += any(
            bound is not None and MORE in bound and worker not in memory
            for worker, bounds in enumerate(decided)
            for bound in bounds
        )
        found["sets kept"] += any(bound is not None and MORE in bound for worker in memory for bound in decided[worker])
        found["safe"] += any(
            any(bound[1:]) and info.kind == "leave"
            for bounds in self.watermarks
            for info, bound in zip(self.layout.processors, bounds)
        )
        return decided

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Options, "durable", counting)
        patch.setattr(Options, "decide", watching)
        wrong = [what for run in runs if (what := simulated(*run, faults)) is not None]
    return found, wrong


def test_iterations_before_a_failure_are_kept_and_nothing_is_lost() -> None:
    found, wrong = tally(RUNS)
    assert not wrong
    assert found["cuts"] > 200
    assert found["safe"] > 20
    assert found["restored"] > 10


@pytest.mark.check
def test_loops_with_delays_are_cut_between_iterations_too() -> None:
    found, wrong = tally([("delayed_loops", workers, seed) for workers in (2, 3) for seed in range(2)])
    assert not wrong
    assert found["cuts"] > 10
    assert found["restored"] > 1


PIPELINED = replace(KILLS, in_flight=6)
AT_ONCE = [
    (program, workers, seed)
    for program in ("pipelined_loop", "two_loops", "delayed_loops")
    for workers in (2, 3)
    for seed in range(40)
]


@pytest.mark.check
def test_where_several_epochs_go_round_at_once_cuts_are_sets() -> None:
    found, wrong = tally([("pipelined_loop", 2, 1), ("two_loops", 2, 0)], PIPELINED)
    assert not wrong
    assert found["sets"] > 20
    assert found["sets restored"] > 2


@pytest.mark.soak
def test_sets_are_kept_through_all_kinds_of_failures() -> None:
    found, wrong = tally(AT_ONCE, PIPELINED)
    assert not wrong
    assert found["sets"] > 3000
    assert found["sets restored"] > 100
    assert found["sets kept"] > 100


def test_a_cut_at_the_end_of_an_epoch_leaves_out_nothing_that_is_older_than_an_interval() -> None:
    cuts = Cuts([GroupInfo(None, 1.0, 2)], [[(3, 0), (3, 0)]], 0.0)
    assert cuts.due([(3, 7, MORE, 5)], 1.0) == [(0, (3, 7, MORE, 5), [0, 1])]
    assert [cuts.durable(0, worker, (3, 7, MORE, 5)) for worker in (0, 1)] == [None, 1.0]
    assert cuts.due([(4, 6, MORE, 2)], 2.0) == [
        (0, (4, 6, MORE, 2), [0, 1])
    ]  # (4, 0) does not hold what was there before
    assert [cuts.durable(0, worker, (4, 6, MORE, 2)) for worker in (0, 1)] == [None, 2.0]
    assert cuts.due([(6, 3)], 3.0) == [(0, (6, 0), [0, 1])]


def test_a_cut_waits_until_it_holds_what_each_worker_has_or_lies_within() -> None:
    cuts = Cuts([GroupInfo(None, 1.0, 2)], [[(3, 7, MORE, 5), (3, 2)]], 0.0)
    assert cuts.due([(3, 8, MORE, 4)], 1.0) == []
    assert cuts.due([(3, 8, MORE, 5)], 1.1) == [(0, (3, 8, MORE, 5), [0, 1])]
    cuts = Cuts([GroupInfo(None, 1.0, 2)], [[(3, 7, MORE, 5), (3, 2)]], 0.0)
    assert cuts.due([(3, 6, MORE, 1)], 1.0) == [(0, (3, 6, MORE, 1), [1])]


def test_a_cut_waits_for_a_processor_that_has_more_than_others_of_its_worker() -> None:
    cuts = Cuts([GroupInfo(None, 1.0, 2)], [[(3, 2), (3, 2)]], 0.0, [[(3, 7, MORE, 5)]])
    assert cuts.due([(3, 8, MORE, 4)], 1.0) == []
    assert cuts.due([(3, 8, MORE, 5)], 1.1) == [(0, (3, 8, MORE, 5), [0, 1])]


RULES: dict[str, tuple[str, tuple[Change | Instead, ...]]] = {
    "what goes round is persisted where it crosses a cut": (
        "wrong",
        (Change(SavedEvents, "_save_logs", "if fresh: ...", "fresh and (not edge.feedback)"),),
    ),
    "what goes round is sent again": (
        "wrong",
        (
            Instead(
                recovery.rollback.queues,
                "goes_again",
                lambda edge, *rest: not edge.feedback and goes_again(edge, *rest),
            ),
        ),
    ),
    "what comes from another loop comes before all iterations of this one": (
        "wrong",
        (
            Change(
                GroupInputs,
                "__init__",
                "summary if self.depth > 1 else None",
                "None",
            ),
        ),
    ),
    "outside the loop the epoch is kept whole": (
        "never",
        (
            Change(
                recovery.checkpoint.checkpoints,
                "at_cut",
                "cut[0] + (len(steps(cut)) if any(cut[1:]) else 0)",
                "cut[0]",
            ),
        ),
    ),
    "what is logged where it crosses a cut is not discarded": (
        "never",
        (Change(EdgeInfo, "discarding", "self.ahead", "False"),),
    ),
}
"""Each with how its loss is seen: runs go wrong, or nothing in the midst of an epoch is ever safe."""


def missed(how: str) -> bool:
    """True if somebody misses the rule."""
    found, wrong = tally(RUNS if how == "wrong" else [("long_loop", 2, seed) for seed in range(8)])
    return bool(wrong) if how == "wrong" else not found["safe"]


@pytest.mark.check
@pytest.mark.parametrize(
    "says", [pytest.param(each, marks=[pytest.mark.soak] * (RULES[each][0] == "wrong")) for each in RULES]
)
def test_without_the_rule_runs_go_wrong_or_nothing_is_gained(says: str) -> None:
    how, changes = RULES[says]
    assert changed(changes, partial(missed, how)), f"nobody missed the rule: {says}"
