"""Rules for regions with resends in the current epoch.

What cannot be in one, or lead into one, is refused with the user's line.

Only a source can send its input again in another epoch. So all input of such a region comes from its own sources,
and no message in it goes to another worker: it would be sent again at its own time, which may be over for
receivers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recovery.policy.traits import Policy
from recovery.reachability import EdgeEnds, behind
from timely.dataflow.graph import Node
from timely.dataflow.plan import Plan
from timely.errors import GraphError


def check_at_least_once(plan: Plan, policies: Sequence[Policy], edges: Iterable[EdgeEnds]) -> None:
    """Raise GraphError for nodes unable to resend anew, or to feed such nodes."""
    nodes = [processor.node for processor in plan.processors]
    for node, policy in zip(nodes, policies):
        if policy.anew:
            _check_member(node, policy.name)
    for edge in edges:
        source, target = nodes[edge.source], nodes[edge.target]
        before, policy = policies[edge.source], policies[edge.target]
        if policy.anew and not before.anew:
            raise GraphError(
                f"the {target} is {policy.name}, and is fed by the {source}, which is {before.name}: what comes from "
                "there cannot be read again in another epoch. Put its sources into the region, or give it Ephemeral()"
            )
        if policy.anew and edge.spread:
            raise GraphError(
                f"the {target} is {policy.name}, and so is the {source}, which sends to it on other workers: records can be "
                "sent again in another epoch only where they were read. End the region before the exchange"
            )


def _check_member(node: Node, name: str) -> None:
    if node.source is not None and not getattr(node.source, "rereadable", True):
        raise GraphError(
            f"the {node} is {name}, and cannot be read again after a failure, so records that were under way would be "
            "lost: put a file or a queue in between, or say that whoever sends will retry, by .policy(Ephemeral())"
        )
    if node.scope.depth > 1:
        raise GraphError(
            f"the {node} is {name}, and in {node.scope}: loops and nested scopes cannot be. Give them a region of their "
            "own, with Lazy(every=...)"
        )
    if node.holds:
        raise GraphError(
            f"the {node} is {name}, and may keep capabilities or start jobs, which nobody would remember: make it with "
            "holds=False, or give it Lazy()"
        )


def sending_anew(policies: Sequence[Policy], keeps: Sequence[bool], edges: Sequence[EdgeEnds]) -> set[int]:
    """Processors sending redone work anew, in the current epoch.

    They are those whose policy does, and what keeps nothing and is given only what such processors of its worker send.
    """
    found = {p for p, policy in enumerate(policies) if policy.anew}
    into: list[list[EdgeEnds]] = [[] for _ in policies]
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


def given_anew(anew: set[int], edges: Iterable[EdgeEnds]) -> set[int]:
    """Processors `anew` and all behind them: redone work gets other input."""
    return anew | behind(((edge.source, edge.target) for edge in edges), anew)
