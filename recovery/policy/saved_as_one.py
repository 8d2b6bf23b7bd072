"""Rules for regions saved as one.

What cannot be in one, or lead into one, is refused with the user's line.

Of an *eager* region each worker cuts the groups by itself, so no unlogged edge in them leads from another worker: the engine
puts a gate (`timely.operators.borders`) in front of every exchange in such a region, as it does where something leaves it, and
what passes a gate is logged. A *snapshot* is a cut of all of its region, at one epoch on all workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recovery.policy.chosen import as_policy
from recovery.policy.traits import Policy, Saves
from recovery.reachability import EdgeEnds
from timely.dataflow.graph import Node, Region
from timely.dataflow.plan import Plan
from timely.errors import GraphError


def check_saved_as_one(plan: Plan, policies: Sequence[Policy], edges: Iterable[EdgeEnds]) -> None:
    """Raise GraphError for nodes unfit for a region saved as one, or to feed it.

    Only an eager region restricts its inputs.
    """
    for processor, policy in zip(plan.processors, policies):
        node = processor.node
        around = as_policy(node.region.policy if node.region else None)
        if policy.as_one or policy.logs_inputs:
            if node.kind != "gate":
                _check_region(node, policy)
        elif node.region is not None and around.as_one:
            raise GraphError(
                f"the {node} has the policy {policy.name} in the {_called(around)} region {node.region.name!r}, which is "
                "persisted as one: make it outside of `with flow.region(...)`"
            )
    for edge in edges:
        policy = policies[edge.source]
        source, target = plan.processors[edge.source].node, plan.processors[edge.target].node
        if policy.saves == Saves.NOTHING and policies[edge.target].commits_per_worker:
            assert target.region is not None
            raise GraphError(
                f"the {source} is {policy.name}, and sends to the {target} in the eager region "
                f"{target.region.name!r}: what comes to such a region is logged. Give it Batch(), or put it into the region"
            )


def check_own_intervals(plan: Plan, policies: Sequence[Policy], members: Sequence[Iterable[int]]) -> None:
    """Raise GraphError for a snapshot sharing its cuts with another region.

    It would be cut at that one's interval.

    Parts in front that log nothing belong to the group of what follows; two such groups become one by them.

    Args:
        members: the processors of each group, without those that the program gave no policy.
    """
    for group in members:
        given = [(plan.processors[p].node, policies[p]) for p in group]
        region = next((node.region for node, policy in given if policy.saved_together), None)
        if region is None:
            continue
        saved = (node for node, policy in given if policy.every is not None)
        other = next((node for node in saved if node.region is not region), None)
        if other is None:
            continue
        # Whatever else comes to a snapshot, or leaves it, is logged.
        bare, policy = next(each for each in given if each[1].saves == Saves.NOTHING)
        raise GraphError(
            f"the {bare} is {policy.name} and logs nothing, so the snapshot region {region.name!r} and the {other} "
            "would be saved together, at the shorter of their intervals: give it Batch(), or put it into one of the two regions"
        )


def _called(policy: Policy) -> str:
    """Adjective for a region with such a policy."""
    return (
        "eager"
        if policy.commits_per_worker
        else "snapshot"
        if policy.saved_together
        else "gated"
        if policy.gated
        else "bordered"
    )


def _check_region(node: Node, policy: Policy) -> None:
    region, name = node.region, policy.name
    if region is None or region.policy is not node.policy:
        what = "saved by snapshots" if policy.saved_together else _called(policy)
        raise GraphError(
            f"the {node} has a policy {name}() of its own: what is {what} is a region, "
            f"`with flow.region(name, policy={name}())`"
        )
    if policy.commits_per_worker or policy.gated:
        _check_member(node, region, _called(policy))


def _check_member(node: Node, region: Region, called: str) -> None:
    if node.scope.depth > 1:
        raise GraphError(
            f"the {node} is in {node.scope}, in the {called} region {region.name!r}: loops and nested scopes cannot be in one. "
            "Give them a region of their own, with Lazy(every=...)"
        )
    if node.holds:
        raise GraphError(
            f"the {node} may keep capabilities or start jobs, which an {called} region ({region.name!r}) cannot persist "
            "at once: make it with holds=False, or outside of the region"
        )
    if node.sink is not None and not getattr(node.sink, "exactly_once", False):
        raise GraphError(
            f"the {node} is told at least once, and would hear of what the {called} region {region.name!r} has not persisted: "
            "make it outside of the region"
        )
