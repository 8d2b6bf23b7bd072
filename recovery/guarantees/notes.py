"""Notes on surprising behaviour of correct programs, made before they run."""

from __future__ import annotations

from recovery.policy.chosen import as_policy
from timely.dataflow.graph import Graph


def notes_of(graph: Graph, mates: bool = True) -> list[str]:
    """Notes on a program, run with or without `mates`.

    Sources that give all in one epoch feed eager regions: there every epoch is made durable when it is over. Where checkpoints
    are to be in the memory of mates, and there are none, all of them are durable.
    """
    standing = {
        f"{policy} has no mate to keep checkpoints in memory: each is made durable, as under Lazy(every={policy.every!r}). Run "
        "the job with --mates 1 (mates=1), or choose Lazy"
        for node in graph.nodes
        if (policy := as_policy(node.policy)).durable is not None and not mates
    }
    return sorted(standing) + [
        f"the {node} gives all that it reads as one epoch, and {as_policy(node.policy).name}() lets nothing out before an "
        "epoch is over: here, before all was read. Make epochs of it, for example with epoch_every=100"
        for node in graph.nodes
        if as_policy(node.policy).gated and getattr(node.source, "one_epoch", False)
    ]
