"""True if two layouts are those of one job, and what changed if not.

Where an operator stands in the user's file, and how often it is checkpointed, may change between runs.
"""

from __future__ import annotations

from recovery.layout import Layout
from timely.dataflow.fingerprint import differences, read_outline

_FIELDS = {
    "policy": "its policy",
    "kind": "its kind",
    "region": "its region",
    "role": "its role",
    "chain": "whether it persists anything",
    "history": "whether it persists its history",
    "depth": "the number of scopes around it",
    "group": "what it is checkpointed together with",
}


def layout_changes(before: Layout, after: Layout) -> list[str]:
    """The changes that make `after` another job than `before`, a sentence each; empty when nothing does."""
    lines = []
    if before.workers != after.workers:
        lines.append(
            f"it was run by {before.workers} worker(s) and is now by {after.workers}: another -w without a savepoint is "
            f"not possible, because state is where its keys were; run it with -w {before.workers}"
        )
    lines += differences(read_outline(before.outline), read_outline(after.outline))
    old = {info.name: info for info in before.processors}
    for info in after.processors:
        was = old.pop(info.name, None)
        if was is None:
            lines.append(f"operator {info.name!r} is new, or is fused with others in another way")
            continue
        lines += [
            f"operator {info.name!r}: {words} was {getattr(was, name)!r} and is {getattr(info, name)!r}"
            for name, words in _FIELDS.items()
            if getattr(was, name) != getattr(info, name)
        ]
    lines += [f"operator {name!r} is gone, or is fused with others in another way" for name in old]
    if not lines and [info.name for info in before.processors] != [info.name for info in after.processors]:
        lines.append("its operators are in another order")
    if not lines:
        lines += _edge_changes(before, after)
    if not lines and before.fingerprint != after.fingerprint:
        lines.append(f"its fingerprint was {before.fingerprint} and is {after.fingerprint}")
    return lines


def _edge_changes(before: Layout, after: Layout) -> list[str]:
    """Of layouts with equal processors: which edge is of another kind, above all logged or not."""
    lines = []
    for old, new in zip(before.edges, after.edges):
        if old != new:
            names = [info.name for info in after.processors]
            if not all(0 <= end < len(names) for end in (new.source, new.target)):  # it comes from another process
                return ["an edge leads to an operator that it does not have"]
            ends = f"{names[new.source]!r} to {names[new.target]!r}"
            what = "is of another kind"
            if old.logged != new.logged:
                what = "is now logged" if new.logged else "is no longer logged"
            lines.append(f"the edge from {ends} {what}")
    if len(before.edges) != len(after.edges):
        lines.append(f"it had {len(before.edges)} edges and has {len(after.edges)}")
    return lines
