"""The page that helps to choose a policy names each of them, and its table is that of the program that measures them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from recovery.policy import POLICIES, PassiveStandby

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "programs"))

import policies as measured  # noqa: E402

PAGE = (ROOT / "docs" / "choosing_a_policy.md").read_text()


def test_decision_tree_leads_to_each_policy() -> None:
    tree = PAGE.partition("```mermaid")[2].partition("```")[0]
    leaves = re.findall(r'\["(\w+)\(', tree)
    assert set(leaves) == {policy.__name__ for policy in POLICIES}


def test_table_has_what_is_measured() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE) == list(measured.POLICIES)


def test_every_policy_is_measured() -> None:
    assert {type(policy) for pair in measured.POLICIES.values() for policy in pair} == {
        policy
        for policy in POLICIES
        if policy is not PassiveStandby  # with mates: `falkirk bench takeover`
    }
