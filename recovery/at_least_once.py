"""The rules for regions that send again in the current epoch: what cannot be in one, or lead into one, is refused by line.

Only who reads input can send it again in another epoch. So what such a region is given it reads itself, and no message in it
goes to another worker: it would be sent again at its own time, which may be over for those behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from recovery.edges import behind
from recovery.policies import AtLeastOnce, Policy
from timely.dataflow.graph import Node
from timely.dataflow.plan import Plan
from timely.errors import GraphError

if TYPE_CHECKING:
    from recovery.layout import EdgeInfo


def check_at_least_once(plan: Plan, policies: Sequence[Policy], edges: Iterable[EdgeInfo]) -> None:
    """Raise GraphError for what cannot be AtLeastOnce, or cannot lead to what is."""
    nodes = [processor.node for processor in plan.processors]
    names = [type(policy).__name__ for policy in policies]
    for node, policy in zip(nodes, policies):
        if isinstance(policy, AtLeastOnce):
            _check_member(node)
    for edge in edges:
        source, target = nodes[edge.source], nodes[edge.target]
        if not isinstance(policies[edge.target], AtLeastOnce):
            continue
        if not isinstance(policies[edge.source], AtLeastOnce):
            raise GraphError(
                f"the {target} is AtLeastOnce, and is fed by the {source}, which is {names[edge.source]}: what comes from "
                "there cannot be read again in another epoch. Put its sources into the region, or give it Ephemeral()"
            )
        if edge.spread:
            raise GraphError(
                f"the {target} is AtLeastOnce, and so is the {source}, which sends to it on other workers: records can be "
                "sent again in another epoch only where they were read. End the region before the exchange"
            )


def _check_member(node: Node) -> None:
    if node.source is not None and not getattr(node.source, "rereadable", True):
        raise GraphError(
            f"the {node} is AtLeastOnce, and cannot be read again after a failure, so records that were under way would be "
            "lost: put a file or a queue in between, or say that whoever sends will retry, by .policy(Ephemeral())"
        )
    if node.scope.depth > 1:
        raise GraphError(
            f"the {node} is AtLeastOnce, and in {node.scope}: loops and nested scopes cannot be. Give them a region of their "
            "own, with Lazy(every=...)"
        )
    if node.holds:
        raise GraphError(
            f"the {node} is AtLeastOnce, and may keep capabilities or start jobs, which nobody would remember: make it with "
            "holds=False, or give it Lazy()"
        )


def sending_anew(policies: Sequence[Policy], keeps: Sequence[bool], edges: Sequence[EdgeInfo]) -> set[int]:
    """The processors that are AtLeastOnce, and what keeps nothing and is given only what such processors of its worker send."""
    found = {p for p, policy in enumerate(policies) if isinstance(policy, AtLeastOnce)}
    into: list[list[EdgeInfo]] = [[] for _ in policies]
    for edge in edges:
        into[edge.target].append(edge)
    while True:
        more = {
            p
            for p, given in enumerate(into)
            if p not in found and not keeps[p] and all(e.source in found and not e.spread for e in given)
        }
        if not more:
            return found
        found |= more


def given_anew(anew: set[int], edges: Iterable[EdgeInfo]) -> set[int]:
    """The processors `anew`, and all that is behind one: done again, they are given something else than before."""
    return anew | behind(((edge.source, edge.target) for edge in edges), anew)
