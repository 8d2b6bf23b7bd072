"""Times, frontiers and path summaries: the algebra of progress and rollback.

- `timely.time.times`: the product order, antichains, `INF`.
- `timely.time.frontier`: downward-closed sets, by what they leave out (`Frontier`).
- `timely.time.summary`: what a path does to times (`Summary`).

Enters: tuples of natural numbers. Leaves: answers about their order. Import the names from here.
"""

from timely.time.frontier import Frontier
from timely.time.summary import Summary, minimal_summaries
from timely.time.times import (
    END,
    FINITE,
    INF,
    Time,
    as_time,
    is_epoch,
    join,
    leq,
    maximal,
    minimal,
    not_before,
    visible,
)

__all__ = [
    "END",
    "FINITE",
    "INF",
    "Frontier",
    "Summary",
    "Time",
    "as_time",
    "is_epoch",
    "join",
    "leq",
    "maximal",
    "minimal",
    "minimal_summaries",
    "not_before",
    "visible",
]
