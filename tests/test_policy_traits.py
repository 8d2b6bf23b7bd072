"""Policies are read by their traits: outside of `recovery/policy` nobody asks for a class or a name."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from recovery.policy import POLICIES
from tests.test_architecture import modules, report, within

NAMES = {policy.__name__ for policy in POLICIES}
FRONT_DOOR = "falkirk"
"""Its lists of public names have those of policies."""


def asked(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Each place that asks for a policy's class or name: every use of a class that does not make a policy, and every name.

    Classes are those that the module imports from `recovery.policy`: others have some of the names, too.
    """
    classes, houses = set(), set()
    made = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and within(node.module or "", ["recovery.policy", "recovery", "falkirk"]):
            classes |= {alias.asname or alias.name for alias in node.names if alias.name in NAMES}
            houses |= {alias.asname or alias.name for alias in node.names if alias.name in ("policy", "policies")}
        elif isinstance(node, ast.Import):
            houses |= {
                alias.asname or alias.name.split(".")[0]
                for alias in node.names
                if alias.name.startswith(("recovery", "falkirk"))
            }
    for node in ast.walk(tree):
        if id(node) in made:
            continue
        if isinstance(node, ast.Name) and node.id in classes:
            yield node, node.id
        elif isinstance(node, ast.Attribute) and node.attr in NAMES and ast.unparse(node.value).split(".")[0] in houses:
            yield node, node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in NAMES:
            yield node, repr(node.value)


def test_nobody_asks_for_the_class_or_the_name_of_a_policy() -> None:
    problems = [
        f"{module.at(node)}: asks for {what}: give policies a trait, and read that"
        for module in modules().values()
        if module.name != FRONT_DOOR and not within(module.name, ["recovery.policy"])
        for node, what in asked(module.tree)
    ]
    assert not problems, report(problems)


@pytest.mark.parametrize(
    "text",
    [
        "from recovery.policy import Lazy\nisinstance(policy, Lazy | None)",
        "from recovery.policy.policies import Lazy as Other\ntype(policy) is Other",
        "from recovery.policy import Eager\nmatch policy:\n    case Eager():\n        pass",
        "from recovery.policy import Eager\nCOMMITS = {Eager: True}",
        "from recovery import policy\ntype(each) == policy.Batch",
        "import recovery.policy\nissubclass(each, recovery.policy.Batch)",
        "import falkirk\nisinstance(each, falkirk.Batch)",
        "info.policy in ('Ephemeral', 'AtLeastOnce')",
        "type(policy).__name__ == 'Snapshot'",
        "match info.policy:\n    case 'Eager':\n        pass",
    ],
)
def test_whatever_asks_is_found(text: str) -> None:
    assert list(asked(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "from recovery.policy import Lazy\nstream.policy(Lazy(every=1))",
        "from timely.data.batch import Batch\nisinstance(batch, Batch)",
        "policy.saves == Saves.STATE",
        "f'give it Lazy(), or {policy.name}'",
    ],
)
def test_whoever_makes_a_policy_or_reads_a_trait_does_not_ask(text: str) -> None:
    assert not list(asked(ast.parse(text)))
