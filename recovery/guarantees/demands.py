"""Demands, `to(sink, require="precise")`, checked before a program starts.

A program whose outputs do not promise what it requires of them does not start.
"""

from __future__ import annotations

from collections.abc import Iterable

from recovery.guarantees.promises import Grade, Promise
from timely.dataflow.graph import Graph, Node
from timely.errors import GraphError


def check_demands(graph: Graph, promises: Iterable[Promise]) -> None:
    """Raise GraphError for an output below its required grade, or an unknown grade."""
    for promise in promises:
        node = graph.node_named(promise.output)
        if node.require is None:
            continue
        wanted = _grade(node)
        if promise.any < wanted:
            cause = promise.causes[0]
            who = "it" if cause.name == node.name else f"{cause.kind} {cause.name!r} ({cause.site})"
            reason = cause.reason if who == "it" else f"{who}: {cause.reason}"
            raise GraphError(
                f"the {node} requires {wanted}, and can promise no more than {promise.any}, for {reason}; to mend it, "
                f"{cause.mend}, or require less (falkirk explain says more)"
            )


def _grade(node: Node) -> Grade:
    for grade in Grade:
        if node.require == str(grade):
            return grade
    names = ", ".join(map(str, reversed(Grade)))
    raise GraphError(f"the {node} requires {node.require!r}; it must be one of {names}")
