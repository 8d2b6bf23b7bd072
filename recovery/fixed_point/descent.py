"""Shortcut for descents round a cycle of unlogged edges.

In a loop whose edges log nothing, a processor may keep σ⁻¹ of what its receiver keeps, and round the loop that is one
iteration less than it keeps itself. Going round once for every iteration would take as long as the loop ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recovery.metadata import Bound, inverse, project, union
from timely.time import Summary


@dataclass(frozen=True, slots=True)
class Step:
    """Constraint on one processor by another's bound: φ of it, or σ⁻¹ if `backwards`.

    `least`: whatever the other has, the constraint admits all of this.
    """

    source: int
    summary: Summary
    backwards: bool
    least: Bound | None = None

    def __call__(self, bound: Bound) -> Bound:
        """Largest bound admitted by the constraint, given the other's bound."""
        most = inverse(self.summary, bound) if self.backwards else project(self.summary, bound)
        return most if self.least is None else union(most, self.least)


def beneath(steps: Sequence[Step], bound: Bound) -> Bound:
    """Largest x ⊆ `bound` with x ⊆ F(x), or a larger one below `bound`.

    It is less than `bound` unless `bound` is its own limit.

    F is all `steps` in turn, round a cycle. Each either moves the coordinate that changes by a constant, but not below
    0 (or its `least`), or sets it. So F(i) is max(i + w, c) in that coordinate: where it decreases once, it decreases down
    to c, which a binary search finds.

    >>> back = Step(0, Summary.feedback(2), backwards=True)
    >>> beneath([back], (3, 1_000_000)), beneath([back, Step(0, Summary.feedback(2), backwards=False)], (3, 9))
    ((3, 0), (3, 9))
    """
    once = _round(steps, bound)
    if once >= bound:
        return bound
    at = next(i for i, (x, y) in enumerate(zip(once, bound)) if x != y)
    rest = (0,) * (len(bound) - at - 1)

    def holds(number: int) -> bool:
        x = (*bound[:at], number, *rest)
        return x <= _round(steps, x)

    low, high = 0, once[at] + 1
    if not holds(low):
        return once
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    if high > once[at]:
        return once
    return min(once, _round(steps, (*bound[:at], high, *rest)))


def _round(steps: Sequence[Step], bound: Bound) -> Bound:
    for step in steps:
        bound = step(bound)
    return bound
