"""Passive standby as a model: histories come out right, and without any rule some do not."""

from __future__ import annotations

import pytest

from tests.recovery.rollback.passive import Wrong, check
from tests.support.profile import effort


def test_histories_with_failures_are_right() -> None:
    models = [check(seed) for seed in range(effort(60, 300, 5_000))]
    assert sum(model.brought for model in models) > 5, "no mate brought what no disk had"
    assert sum(model.pairs for model in models) > 20, "no worker died without a mate that had all"


RULES = {
    "W counts memory": 10,
    "acknowledged by mates": 27,
    "coverage": 10,
    "suppression": 0,
    "all since the last durable": 227,
    "all for a new mate": 586,
}
"""By rule that is left out, a history that needs it."""


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str) -> None:
    check(RULES[rule])
    with pytest.raises(Wrong):
        check(RULES[rule], without=rule)
