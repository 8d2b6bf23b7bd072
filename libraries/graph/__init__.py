"""Incremental graph algorithms on collections of edges.

>>> import falkirk
>>> from falkirk import differential, graph
>>> flow = falkirk.Dataflow("parts")
>>> parts = graph.components(differential.input_of(flow, "edges")).capture("parts")
"""

from __future__ import annotations

from libraries.graph.communities import label_propagation
from libraries.graph.components import components, odd_components, strong_components
from libraries.graph.density import k_core, triangles
from libraries.graph.ranks import pagerank
from libraries.graph.walks import distances, reach, shortest_paths

__all__ = [
    "components",
    "distances",
    "k_core",
    "label_propagation",
    "odd_components",
    "pagerank",
    "reach",
    "shortest_paths",
    "strong_components",
    "triangles",
]
