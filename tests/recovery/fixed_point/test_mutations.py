"""Without any one of the constraints and rules the answer is another, and an inconsistent one."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import recovery.fixed_point.solve
import recovery.fixed_point.solve as solving
import recovery.rollback.orders
import recovery.rollback.queues
import recovery.store.reading
from recovery.fixed_point.solve import LIVE, AnyFrontier, CheckpointChain, Live, PhysicalEdge, Restorable, solve
from recovery.fixed_point.solve import AnyFrontier as Stateless
from recovery.metadata import everything, to_frontier
from tests.recovery.fixed_point import literal
from tests.recovery.fixed_point.literal import ALL, DELIVERED, DISCARDED, HELD, NOTIFIED, PROJECTED, WITHIN
from tests.recovery.fixed_point.systems import Graph, as_bounds, graph, literal_system, restorable
from tests.recovery.fixed_point.times import SequenceFrontier, image, projection
from tests.support.mutation import GONE, Change, Rules
from timely.time import Frontier, Summary

SAME = Summary.identity(1)


def differs_somewhere(constraint: str) -> bool:
    """True if some random system tells the literal fixed point without a constraint from the production solver."""
    for seed in range(2_000):
        random = Random(seed)
        g = graph(random, random.randrange(2, 6))
        processors = [restorable(random, g, p, live=True) for p in range(len(g.depths))]
        system = literal_system(g, processors)
        found = literal.greatest(system, ALL - {constraint})
        if as_bounds(found) != solve(g.edges, processors):
            broken = literal.violations(system, found)
            assert any(each.startswith(constraint) for each in broken), broken
            return True
    return False


@pytest.mark.parametrize("constraint", [DISCARDED, HELD, DELIVERED, NOTIFIED, PROJECTED, WITHIN])
def test_every_constraint_is_needed(constraint: str) -> None:
    assert differs_somewhere(constraint)


def test_what_a_live_receiver_does_not_surely_hold_is_sent_again() -> None:
    """A failed sender discarded up to 5; the receiver, at ⊤, is only sure of 3: the rest may have been on its way."""
    edges = [PhysicalEdge(0, 1, SAME)]

    def processors(held: int) -> list[Restorable]:
        return [AnyFrontier((5,)), Live((held,), {0: (5,)}, (3,), (), ())]

    assert solve(edges, processors(3)) == [(3,), (3,)]
    assert solve(edges, processors(5)) == [(5,), LIVE]
    system = literal_system(Graph([1, 1], edges), processors(3))
    assert as_bounds(literal.greatest(system)) == [(3,), (3,)]
    assert as_bounds(literal.greatest(system, ALL - {HELD})) == [(5,), LIVE]


def test_a_stateless_processor_offers_only_what_it_has_reported() -> None:
    """Live source -> failed stateless q -> live r: any frontier for q answers ⊤ everywhere, and q's inbox is lost."""
    edges = [PhysicalEdge(0, 1, SAME), PhysicalEdge(1, 2, SAME)]
    source = Live((4,), {}, (4,), ((6,),), (False,))
    target = Live((4,), {1: (4,)}, (4,), (), ())
    assert solve(edges, [source, AnyFrontier((4,)), target]) == [(4,), (4,), LIVE]
    assert solve(edges, [source, AnyFrontier(everything(1)), Live(everything(1), {1: (4,)}, (4,), (), ())])[0] is LIVE


@pytest.mark.parametrize(
    ("summary", "at", "unsafe"),
    [(Summary.egress(2), (3, 5), True), (Summary.feedback(2), (3, 5), False)],
    ids=["egress: φ is too small", "feedback: φ is no less than ↓σ"],
)
def test_what_an_unlogged_processor_discarded_is_not_its_projection(
    summary: Summary, at: tuple[int, ...], unsafe: bool
) -> None:
    """D̄(e, g) = ↓σ(g): an egress that keeps half an epoch has let messages of that epoch out."""
    g = to_frontier(at)
    really, projected = image(summary, g), projection(summary, g)
    assert (really <= projected) is not unsafe
    top = Frontier.top(2)
    target_depth = summary.result_depth
    kept = projected  # a receiver that keeps no more than φ
    target = literal.Processor([literal.Option(kept, Frontier.empty(target_depth))], Frontier.top(target_depth))

    def answer(lost: literal.Met) -> literal.Choice:
        options = [
            literal.Option(Frontier.empty(2), Frontier.empty(2)),
            literal.Option(g, Frontier.empty(2), {}, {0: lost}),
        ]
        return literal.greatest(
            literal.System([literal.Processor(options, top), target], [literal.Edge(0, 1, summary)])
        )

    assert answer(projected).frontiers[0] == g
    assert (answer(really).frontiers[0] == g) is not unsafe


def test_notification_frontiers_pass_through_processors_that_count() -> None:
    """φ of a frontier that is none of the processor's own is that of the largest within, not ∅."""
    one = Frontier.lexicographic((0,))
    none = Frontier.empty(1)
    saved = [
        literal.Option(none, none, projected={0: SequenceFrontier.of({"e": 0})}),
        literal.Option(one, one, projected={0: SequenceFrontier.of({"e": 3})}),
    ]
    p = literal.Processor(saved, Frontier.top(1))
    nothing = SequenceFrontier.of({"e": 0})
    counted = [
        literal.Option(nothing, nothing, projected={1: none}),
        literal.Option(SequenceFrontier.of({"e": 2}), nothing, {0: SequenceFrontier.of({"e": 2})}, projected={1: one}),
        literal.Option(None, nothing, {0: SequenceFrontier.of({"e": 3})}, projected={1: Frontier.top(1)}),
    ]
    q = literal.Processor(counted, SequenceFrontier.top(["e"]), failed=False)
    x = literal.Processor([literal.Option(none, none), literal.Option(one, one, {1: one})], Frontier.top(1))
    system = literal.System([p, q, x], [literal.Edge(0, 1), literal.Edge(1, 2)])
    found = literal.greatest(system)
    # f_n(q) is 3 messages, which is no option of q; φ of 2 messages lets x keep its notification of epoch 0.
    assert found.notifications[1] == SequenceFrontier.of({"e": 3})
    assert found.frontiers == [one, None, one]
    assert literal.violations(system, found) == []


RULES = Rules()
rule = RULES.add


def half_an_epoch() -> Any:
    """A living loop, complete up to (3, 5), whose egress leads to one that has only epochs before 3."""
    inside = Live((3, 5), {}, (3, 5), ((4,),), (False,))
    return solve([PhysicalEdge(0, 1, Summary.egress(2))], [inside, CheckpointChain([((3,), ())])])


rule(
    "kept by an egress",
    "σ⁻¹(h) of an egress leaves out (a, 0)",
    half_an_epoch,
    [(3, 0), (3,)],
    Change(recovery.fixed_point.solve._Descent, "_spread", "inverse(edge.backwards, held)", "self.bound[r]"),
)


def on_its_way() -> Any:
    return solve([PhysicalEdge(0, 1, SAME)], [Stateless((5,)), Live((3,), {0: (5,)}, (3,), (), ())])


rule(
    "surely held",
    "on an edge whose sender failed, D̄(e, f(src)) ⊆ f(dst) is read with C(d) in place of ⊤",
    on_its_way,
    [(3,), (3,)],
    Change(recovery.fixed_point.solve._Descent, "_spread", "held = processors[p].upto", "continue"),
)


def round_and_round() -> Any:
    """A stateless cycle of two that have completed a million iterations of epoch 3: each keeps no more than the other."""
    descent = recovery.fixed_point.solve._Descent(
        [PhysicalEdge(0, 1, Summary.feedback(2)), PhysicalEdge(1, 0, Summary.identity(2))],
        [Stateless((3, 10_000)), Stateless((3, 10_000))],
    )
    descent.run()
    return descent.bound, max(descent._lowered) < 100


rule(
    "cycles",
    "stateless cycles would descend once an iteration: contract them",
    round_and_round,
    ([(3, 0), (3, 0)], True),
    Change(recovery.fixed_point.solve._Descent, "_lower", "count >= 4", "False"),
)


def dead_worker(repeats: int, coverage: int) -> Any:
    """x, which failed, sends to y, and y to z, each on another worker; z sends to x. All but x live and are complete to 5."""
    ring = [PhysicalEdge(p, (p + 1) % 3, SAME, suppressed=True) for p in range(3)]
    y, z = (Live((5,), {p - 1: (6,)}, (5,), ((6,),), (False,), kept={p: (coverage if p == 2 else 0,)}) for p in (1, 2))
    return solve(ring, [CheckpointChain([((2,), ((2,),))]), y, z], None, [(repeats,), (9,), (9,)])


rule(
    "survivors",
    "a living sender stays where a receiver goes back, and a receiver where a sender does",
    lambda: dead_worker(9, 0),
    [(2,), (5,), (5,)],
    Change(solving, "_remembers", "within(sender.kept[index], held)", "False"),
)
rule(
    "ahead",
    "f(r) is not within φ(e)(f(s)) where what s does again is not sent twice",
    lambda: dead_worker(9, 2),
    [(2,), (5,), (5,)],
    Change(solving._RepeatingDescent, "_is_ahead", "self._edges[index].suppressed or ...", "False"),
)
rule(
    "beyond the budget",
    "what is not kept any more takes its sender back with the receiver",
    lambda: dead_worker(9, 3),
    [(2,), (5,), (2,)],
    Change(solving, "_remembers", "within(sender.kept[index], held)", "True"),
)
rule(
    "not the same again",
    "behind what is not repeated nobody is ahead, however far behind",
    lambda: dead_worker(3, 0),
    [(2,), (3,), (3,)],
    Change(solving._RepeatingDescent, "_spread", "union(self.bound[p], repeats)", "everything(1)"),
)


def fallen_by_its_receiver() -> Any:
    """y falls because z, with whom it shares a worker, came back from its checkpoint; and then x, beside it too, limits it."""
    edges = [PhysicalEdge(0, 1, SAME), PhysicalEdge(1, 2, SAME)]
    x, z = AnyFrontier((3,)), CheckpointChain([((3,), ()), ((4,), ())])
    return solve(edges, [x, Live((6,), {}, (3,), ((5,),), (False,)), z], None, [(9,)] * 3)


rule(
    "fallen",
    "what has a bound only now heeds those that it did not have to heed at ⊤",
    fallen_by_its_receiver,
    [(3,), (3,), (3,)],
    Change(solving._RepeatingDescent, "_fall", "for index in self._incoming[p]: ...", "()"),
)


def fallen_with_its_sender() -> Any:
    """x and y live, on one worker; y falls because z, elsewhere, came back at 5, which is all that y has completed. Of epoch 5
    y forgets what x has sent it, and x has thrown that away: so x falls too."""
    edges = [PhysicalEdge(0, 1, SAME), PhysicalEdge(2, 1, SAME)]
    x, y = Live((5,), {}, (5,), ((6,),), (False,)), Live((5,), {0: (6,), 1: (6,)}, (5,), (), ())
    return solve(edges, [x, y, CheckpointChain([((5,), ((5,),))])])


rule(
    "fallen, and its senders",
    "a survivor that goes back to what it has completed takes back who sent it more than that",
    fallen_with_its_sender,
    [(5,), (5,), (5,)],
    Change(solving._Descent, "_fall", "self._wake(p)", GONE),
)


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_the_scenario_comes_out_otherwise(name: str) -> None:
    RULES[name].check()
