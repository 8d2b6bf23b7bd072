"""The rules for eager regions: what cannot be in one, or lead into one, is refused with the user's line.

Each worker cuts the groups of an eager region by itself, so no unlogged edge in them leads from another worker: the engine puts
a gate (`timely.operators.gate`) in front of every exchange in such a region, as it does where something leaves it, and what
passes a gate is logged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from recovery.policies import AtLeastOnce, Eager, Ephemeral, Policy
from timely.dataflow.graph import Node
from timely.dataflow.plan import Plan
from timely.errors import GraphError

if TYPE_CHECKING:
    from recovery.layout import EdgeInfo


def check_eager(plan: Plan, policies: Sequence[Policy], edges: Iterable[EdgeInfo]) -> None:
    """Raise GraphError for what cannot be in an eager region, or cannot lead into one."""
    for processor, policy in zip(plan.processors, policies):
        node = processor.node
        if isinstance(policy, Eager):
            if node.kind != "gate":
                _check_member(node)
        elif node.region is not None and isinstance(node.region.policy, Eager):
            raise GraphError(
                f"the {node} has the policy {type(policy).__name__} in the eager region {node.region.name!r}, which is "
                "persisted as one: make it outside of `with flow.region(...)`"
            )
    for edge in edges:
        policy = policies[edge.source]
        source, target = plan.processors[edge.source].node, plan.processors[edge.target].node
        if isinstance(policy, Ephemeral | AtLeastOnce) and isinstance(policies[edge.target], Eager):
            assert target.region is not None
            raise GraphError(
                f"the {source} is {type(policy).__name__}, and sends to the {target} in the eager region "
                f"{target.region.name!r}: what comes to such a region is logged. Give it Batch(), or put it into the region"
            )


def _check_member(node: Node) -> None:
    region = node.region
    if region is None or region.policy is not node.policy:
        raise GraphError(
            f"the {node} has a policy Eager() of its own: what is eager is a region, `with flow.region(name, policy=Eager())`"
        )
    if node.scope.depth > 1:
        raise GraphError(
            f"the {node} is in {node.scope}, in the eager region {region.name!r}: loops and nested scopes cannot be in one. "
            "Give them a region of their own, with Lazy(every=...)"
        )
    if node.holds:
        raise GraphError(
            f"the {node} may keep capabilities or start jobs, which an eager region ({region.name!r}) cannot persist at once: "
            "make it with holds=False, or outside of the region"
        )
    if node.sink is not None and not getattr(node.sink, "exactly_once", False):
        raise GraphError(
            f"the {node} is told at least once, and would hear of what the eager region {region.name!r} has not persisted: "
            "make it outside of the region"
        )
