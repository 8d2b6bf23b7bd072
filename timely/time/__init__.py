"""Times, frontiers and path summaries: the small algebra that progress tracking and rollback share.

- `timely.time.times`: the product order, antichains, `INF`.
- `timely.time.frontier`: downward-closed sets, by what they leave out (`Frontier`) or reach (`MaximalTimes`).
- `timely.time.summary`: what a path does to times (`Summary`); its edge projection and its inverse.
- `timely.time.sequence`: the other domain, per-edge counts of messages (`SequenceFrontier`).

Enters: tuples of natural numbers. Leaves: answers about their order. Import the names from here.
"""

from timely.time.frontier import Frontier, MaximalTimes
from timely.time.sequence import Edge, MessageCounts, SequenceFrontier, SequenceTime
from timely.time.summary import Summary, minimal_summaries
from timely.time.times import END, FINITE, INF, Time, join, leq, less, maximal, meet, minimal, visible

__all__ = [
    "END",
    "FINITE",
    "INF",
    "Edge",
    "Frontier",
    "MaximalTimes",
    "MessageCounts",
    "SequenceFrontier",
    "SequenceTime",
    "Summary",
    "Time",
    "join",
    "leq",
    "less",
    "maximal",
    "meet",
    "minimal",
    "minimal_summaries",
    "visible",
]
