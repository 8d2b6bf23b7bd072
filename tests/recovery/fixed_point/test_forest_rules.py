"""Rules of the incremental solution, each broken in turn: then it is another one than from scratch, or dear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recovery.fixed_point.forest import Forest
from recovery.fixed_point.incremental import WatermarkSolver
from recovery.fixed_point.solve import PhysicalEdge
from tests.recovery.fixed_point.histories import run_history
from tests.support.mutation import GONE, Change, Rule, changed
from timely.time import Summary

SAME = Summary.identity(1)

RULES: dict[str, Rule] = {}


def rule(name: str, says: str, scenario: Callable[[], Any], right: Any, *changes: Change) -> None:
    RULES[name] = Rule(says, scenario, right, changes)


def histories() -> Any:
    """Reports in any order, alone and in batches: after each, the solution from scratch. How many go well."""
    for seed in range(150):
        run_history(seed, compiled=False, with_literal=False)
        run_history(seed, compiled=False, with_literal=False, fewest=11, most=16)
    return True


def rare_histories() -> Any:
    """Among these, one in which something follows from the limit of a processor that waits itself."""
    for seed in range(270, 300):
        run_history(seed, compiled=False, with_literal=False, fewest=11, most=16)
    return True


def behind_a_laggard() -> Any:
    """Processor 1 reports on and on, but waits for processor 0; all others have reported once more than it, and wait for it.

    What is touched by its first report, by the later ones, and when processor 0 catches up at last.
    """
    size, epochs = 60, 300
    edges = [PhysicalEdge(0, 1, SAME), *(PhysicalEdge(1, p, SAME) for p in range(2, size))]
    star = WatermarkSolver([(1, True)] * size, edges, compiled=False)
    star.tick([(p, (1,), ((0,),) if p < 2 else ()) for p in range(size)])
    star.tick([(p, (2,), ()) for p in range(2, size)])
    costs = []
    for processor, epoch in (*((1, epoch) for epoch in range(2, epochs)), (0, epochs)):
        before = star.touched
        star.report(processor, (epoch,), ((0,),))
        costs.append(star.touched - before)
    return (
        costs[0] < 10,
        max(costs[1:-1]) == 1,
        costs[-1] < 3 * size,
        star.values()
        == [
            (epochs,),
            (epochs - 1,),
            *[(2,)] * (size - 2),
        ],
    )


RISEN = "self._risen[p] = self._value[p]"
OUTSIDE = "when (p, k) arrives, re-hang it on another infeasible conclusion outside its own tree"
DETACH = "if there is none, detach its tree, re-hang what has a witness outside (spreading backwards), accept the rest"
ONCE = "each option is accepted once"
for _name, _says, _method, _old, _new in (
    ("outside its own tree", OUTSIDE, "_other_witness", "{limit}", "set()"),
    ("its own ceiling, outside its tree", OUTSIDE, "_lift", "not ceilings[-2].depends_on(...)", "True"),
    (
        "a witness for where it is",
        OUTSIDE,
        "_other_witness",
        "self._fit(...) != value",
        GONE,
    ),
    ("detached", DETACH, "_lift", "self._risen[p] = ...; self._take_down(...)", RISEN),
    ("the whole tree", DETACH, "_take_down", "waiting += node.dependents", GONE),
    ("those that may rise", DETACH, "_take_down", "ceilings[0] is node", "False"),
    ("those that wait", DETACH, "_lift", "if limit.dependents: ...", "False"),
    ("a witness outside", DETACH, "_settle", "self._limit_by(p, index, neighbour, out, queue)", GONE),
    ("spreading backwards", DETACH, "_settle", "q in risen", "False"),
    ("accepted", DETACH, "_settle", "value == before", "True"),
    ("accepted once", ONCE, "_settle", "del self._bounds[p][:at], self._discards[p][:at]", GONE),
    ("risen once", ONCE, "_settle", "risen.clear()", GONE),
):
    rule(_name, _says, histories, True, Change(Forest, _method, _old, _new))
rule(
    "what followed from its limit",
    OUTSIDE,
    rare_histories,
    True,
    Change(Forest, "_lift", "limit.hang(ceilings[-2])", "pass"),
)
for _name, _says, _old, _new in (
    ("re-hung", OUTSIDE, "few", "False"),
    ("who waits is not looked at", ONCE, "len(ceilings) > 1", "False"),
):
    rule(_name, _says, behind_a_laggard, (True,) * 4, Change(Forest, "_lift", _old, _new))


@pytest.mark.parametrize("scenario", sorted({rule.scenario.__name__ for rule in RULES.values()}))
def test_with_all_rules_the_solution_is_that_from_scratch_and_cheap(scenario: str) -> None:
    rule = next(rule for rule in RULES.values() if rule.scenario.__name__ == scenario)
    assert rule.scenario() == rule.right


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_the_solution_is_another_or_dear(name: str) -> None:
    assert not changed(RULES[name].changes, RULES[name].holds), f"nobody missed the rule: {RULES[name].says}"
