"""Notes on surprising behaviour of correct programs, made before they run."""

from __future__ import annotations

from recovery.policy.chosen import as_policy
from timely.dataflow.graph import Graph


def notes_of(graph: Graph) -> list[str]:
    """Notes on a program.

    Sources that give all in one epoch feed eager regions: there every epoch is made durable when it is over.
    """
    return [
        f"the {node} gives all that it reads as one epoch, and {as_policy(node.policy).name}() lets nothing out before an "
        "epoch is over: here, before all was read. Make epochs of it, for example with epoch_every=100"
        for node in graph.nodes
        if as_policy(node.policy).gated and getattr(node.source, "one_epoch", False)
    ]
