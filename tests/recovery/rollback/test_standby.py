"""Regions that go on empty, and state that senders make again: histories come out right, and without any rule some do not."""

from __future__ import annotations

import pytest

from tests.recovery.rollback.standby import NEVER, Shape, Wrong, check
from tests.support.profile import effort

SHAPES = [
    Shape(policy, lasts, spread, totals)
    for policy in ("amnesia", "upstream")
    for lasts in (0, 3, NEVER)
    for spread in (False, True)
    for totals in (False, True)
    if (policy, lasts) != ("upstream", NEVER)
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_was_not_declared_is_as_without_failures(shape: Shape) -> None:
    other = [check(shape, seed) for seed in range(effort(4, 12, 2_000))]
    assert shape.policy == "amnesia" or not any(other)


def test_something_is_lost_by_those_who_go_on_empty() -> None:
    """Otherwise nothing is shown by gaps that are right."""
    assert any(check(Shape("amnesia", NEVER, spread=True), seed) for seed in range(20))


RULES = {
    "no concern": (Shape("amnesia", 0, spread=False), 12),
    "state": (Shape("amnesia", 3, spread=False), 0),
    "messages": (Shape("amnesia", 0, spread=False), 12),
    "survivors": (Shape("amnesia", 0, spread=False), 0),
    "ends": (Shape("amnesia", 3, spread=False), 0),
    "needs": (Shape("upstream", 3, spread=False), 0),
    "replay": (Shape("upstream", 3, spread=False), 0),
    "silence": (Shape("upstream", 3, spread=False), 0),
    "unfinished": (Shape("upstream", 3, spread=False), 38),
    "positions": (Shape("upstream", 0, spread=False), 214),
}
"""By rule that is left out, a history that needs it."""


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str) -> None:
    shape, seed = RULES[rule]
    check(shape, seed)
    with pytest.raises(Wrong):
        check(shape, seed, without=rule)
