"""Graph algorithms on collections of edges, kept up to date as edges come and go."""

from __future__ import annotations

from libraries.graph.components import components

__all__ = ["components"]
