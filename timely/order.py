"""Times, frontiers and path summaries: the small algebra that progress tracking and rollback share.

- `timely.times`: the product order, antichains, `INF`.
- `timely.frontier`: downward-closed sets, by what they leave out (`Frontier`) or reach (`MaximalTimes`).
- `timely.summary`: what a path does to times (`Summary`); its edge projection and its inverse.
- `timely.sequence`: the other domain, per-edge counts of messages (`SequenceFrontier`).

Import the names from here.
"""

from timely.frontier import Frontier, MaximalTimes
from timely.sequence import Edge, MessageCounts, SequenceFrontier, SequenceTime
from timely.summary import Summary, minimal_summaries
from timely.times import END, FINITE, INF, Time, join, leq, less, maximal, meet, minimal, visible

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
