"""Rules for regions with state lost in a failure of their worker.

What cannot be in one is refused with the user's line. Their times are epochs, and all that an operator remembers is in its
state: so its loss is known, and the times that lack something can be named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recovery.policy.traits import Policy
from timely.dataflow.graph import Node
from timely.dataflow.plan import Plan
from timely.errors import GraphError
from timely.operators.base import Operator


def check_gaps(plan: Plan, policies: Sequence[Policy], operators: Mapping[int, Operator]) -> None:
    """Raise GraphError for nodes with losses unknown to anybody."""
    for processor, policy in zip(plan.processors, policies):
        for node in processor.nodes if policy.gap else ():
            _check_member(node, policy.name, operators)


def _check_member(node: Node, name: str, operators: Mapping[int, Operator]) -> None:
    if node.scope.depth > 1:
        raise GraphError(
            f"the {node} is {name}, and in {node.scope}: loops and nested scopes cannot be. Give them a region of their "
            "own, with Lazy(every=...)"
        )
    if node.holds:
        raise GraphError(
            f"the {node} is {name}, and may keep capabilities or start jobs, of which nobody would know that they are lost: "
            "make it with holds=False, or give it Lazy()"
        )
    operator = operators.get(node.index)
    if operator is not None and operator.state is None and node.stateful:
        raise GraphError(
            f"the {node} is {name}, and may keep something outside of a State, of which nobody would know that it is lost: "
            "keep it in its state, or say that it keeps nothing, by stateful=False"
        )
