"""The completed cut of a group: of processors that are checkpointed together."""

from __future__ import annotations

import networkx as nx

from recovery.layout import Layout
from timely.dataflow.plan import Plan
from timely.time import Summary

_GROUP = -1


class GroupProgress:
    """Group `number` of a layout, on one worker.

    Attributes:
        depth: the coordinates of its cuts.
        places: whatever comes from elsewhere leaves one of these first; its time after the summary (None: as it is, for what
            matters) is that at which it comes to a processor of the group.
        near: the processors whose waiting work can lead to the group, each with how many coordinates of its time can be relied
            on: all in the group's own loop, the epoch elsewhere. Empty where the group is cut between epochs only.
    """

    def __init__(self, plan: Plan, layout: Layout, number: int) -> None:
        members = layout.members(number)
        self.depth = layout.groups[number].depth
        places: dict[tuple[int, Summary | None], None] = {}
        for p in members:
            processor = plan.processors[p]
            for place, summaries in plan.arrivals[processor.nodes[0].index].items():
                for summary in summaries:
                    places[place, summary if self.depth > 1 else None] = None
            if processor.place is not None:
                places[processor.place, None] = None
        self.places = tuple(places)
        self.near: dict[int, int] = {}
        if self.depth > 1:
            edges: nx.DiGraph[int] = nx.DiGraph((edge.source, edge.target) for edge in layout.edges)
            edges.add_edges_from((p, _GROUP) for p in members)
            self.near.update(dict.fromkeys(nx.ancestors(edges, _GROUP), 1))
            self.near.update((p, min(self.depth, layout.processors[p].depth)) for p in members)
