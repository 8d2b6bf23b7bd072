"""The model of a move: right with all rules, and wrong without each of them."""

from __future__ import annotations

import pytest

from tests.recovery.moving.model import RULES, wrong
from tests.support.profile import effort


def test_outputs_are_those_of_a_run_without_failures() -> None:
    found, moves = wrong(range(effort(400, 2_000, 40_000)))
    assert found == 0
    assert moves > 100


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_needed(rule: str) -> None:
    found, _ = wrong(range(200), (rule,))
    assert found > 0, RULES[rule]
