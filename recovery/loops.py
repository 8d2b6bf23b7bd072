"""Loops cut between iterations, to keep finished iterations of a long epoch.

A cut of a group lies between epochs, or before iteration i of epoch e. Then all that is in the loop keeps epoch e up to that
iteration, and everything outside the loop keeps the epoch whole: what leads into the loop has entered. What goes round is sent
in one iteration for the next, so what crosses a cut is persisted with it, and nothing else of what goes round.

What has left the loop in epoch e belongs to an epoch that is not over behind it. Nobody there keeps it, so it must be logged: a
loop can be cut within epochs if it is in a region that logs its outputs. (If what is behind it is in its group all the same,
by another way, the epoch is over there when it is over in the loop, and there are no such cuts.) See Isard and Abadi, *Falkirk
Wheel*, Figure 7(c), where a loop is restored in the midst of an epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

from timely.dataflow.graph import Node
from timely.dataflow.plan import Plan
from timely.operators.borders import Enter
from timely.worker.processor import build_operator

WITHIN = 2
"""Coordinates of times in a loop within no other."""


def cut_within_epochs(plan: Plan, group: Collection[int], sending: Set[int], bare: Sequence[bool]) -> bool:
    """True if the cuts of a group may lie between iterations.

    Args:
        group: its processors.
        sending: the processors of the dataflow that send on an edge which is not logged.
        bare: for each processor, whether its policy saves nothing.
    """
    nodes = {p: plan.processors[p].node for p in group}
    inside = {p for p, node in nodes.items() if node.shift.depth >= WITHIN}
    outside = nodes.keys() - inside
    if len({nodes[p].scope.path()[1] for p in inside}) != 1:
        return False  # none, or several loops that are not in step
    return (
        not any(p in sending for p in inside if nodes[p].shift.result_depth < WITHIN)
        and not any(_enters_anywhere(plan, p) for p in outside)
        and not any(_unfit(nodes[p], bare[p]) for p in inside)
    )


def _enters_anywhere(plan: Plan, p: int) -> bool:
    """True if it brings records into a loop at later iterations than the first."""
    processor = plan.processors[p]
    if processor.node.kind != "enter":
        return False
    operator = build_operator(processor, [])
    assert isinstance(operator, Enter)
    return operator.at is not None


def _unfit(node: Node, bare: bool) -> bool:
    """True if a processor rules out cuts between iterations.

    It hands over outputs in the midst of a loop, or may keep something from one iteration to the next unsaved.
    """
    if node.kind == "capture":
        return True
    if node.kind == "feedback":
        return bare
    asks = node.kind in ("unary", "binary") and (node.notifies or node.holds)
    return asks and (bare or not node.ahead)
