"""Incomplete times of outputs: losses of failures, for good. Pure.

A processor that comes back without its state, or that does not make again for a receiver what it had sent, leaves a *gap*: what
follows from it may be wrong from then on. Behind what keeps state that never ends; elsewhere it ends with the lost times.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from recovery.layout import Layout
from recovery.metadata import NEVER

OUTPUTS = ("sink", "output", "capture")
"""Roles of processors with output to the outside."""


class Gap(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Incomplete epochs at a processor, from `begin` to before `end`.

    An `end` of NEVER: for ever.
    """

    processor: int
    begin: int
    end: int = NEVER


def merged(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Union of gaps, in order.

    >>> merged([Gap(1, 5, 7), Gap(1, 2, 5), Gap(0, 9), Gap(1, 8, 8)])
    (Gap(processor=0, begin=9, end=9223372036854775808), Gap(processor=1, begin=2, end=7))
    """
    found: list[Gap] = []
    for gap in sorted(gap for gap in gaps if gap.begin < gap.end):
        last = found[-1] if found else None
        if last is not None and last.processor == gap.processor and gap.begin <= last.end:
            found[-1] = Gap(last.processor, last.begin, max(last.end, gap.end))
        else:
            found.append(gap)
    return tuple(found)


def at_outputs(layout: Layout, lacking: Iterable[Gap]) -> tuple[Gap, ...]:
    """Gaps of the outputs behind processors without some input, or their state."""
    behind: list[set[int]] = [set() for _ in layout.processors]
    for edge in layout.edges:
        behind[edge.source].add(edge.target)
    found: set[Gap] = set()
    todo = [gap for gap in lacking if gap.begin < gap.end]
    while todo:
        gap = todo.pop()
        if layout.processors[gap.processor].remembers:
            gap = Gap(gap.processor, gap.begin)
        if gap not in found:
            found.add(gap)
            todo += [Gap(p, gap.begin, gap.end) for p in behind[gap.processor]]
    return merged(gap for gap in found if layout.processors[gap.processor].role in OUTPUTS)
