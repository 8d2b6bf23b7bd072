"""Verbs of streams of columns.

Enters: a stream, Polars expressions, aggregates. Leaves: a stream; nodes and schemas in the graph.
"""

from libraries.columns.verbs import changes

__all__ = ["changes"]
"""Loaded with the package, as columns give changes by a name that it fills in."""
