"""Verbs of streams of columns.

Enters: a stream, Polars expressions, aggregates. Leaves: a stream; nodes and schemas in the graph.
"""
