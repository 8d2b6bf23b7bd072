"""Policy chosen for a region or an operator."""

from __future__ import annotations

from recovery.policy.policies import DEFAULT, POLICIES
from recovery.policy.traits import Policy, Saves
from timely.dataflow.graph import Node
from timely.errors import GraphError


class _Unknown(Policy):
    """Policy of unknown type: it promises least, and no job with a store accepts it."""

    saves = Saves.EVENTS


_UNKNOWN = _Unknown()

_NEEDS = {
    "gated": ("log_outputs",),
    "commits_per_worker": ("logs_inputs", "gated"),
    "saved_together": ("logs_inputs", "log_outputs"),
}
"""Traits required by other traits.

What crosses the border of a region that has cuts of its own is sent again by a log.
"""


def as_policy(given: object) -> Policy:
    """Policy as traits: the default for None, the least promising for no policy."""
    if given is None:
        return DEFAULT
    return given if isinstance(given, Policy) else _UNKNOWN


def policy_of(node: Node) -> Policy:
    """Policy of a node; raise GraphError for an invalid one."""
    policy = as_policy(node.policy)
    if policy is _UNKNOWN:
        names = ", ".join(each.__name__ for each in POLICIES)
        raise GraphError(f"the policy of {node} is {node.policy!r}; it must be one of {names}")
    for trait, needed in _NEEDS.items():
        lacking = [each for each in needed if getattr(policy, trait) and not getattr(policy, each)]
        if lacking:
            raise GraphError(
                f"the policy {policy!r} of {node} has the trait {trait}, which needs {' and '.join(lacking)}"
            )
    return policy
