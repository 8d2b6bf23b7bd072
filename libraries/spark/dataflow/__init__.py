"""Spark in a dataflow: regions, views, sources, sinks, tables and their operators.

Enters: streams of columns, and the user's functions and queries. Leaves: streams of columns; rows for Spark in
files of `files`, runs for `host`.
"""
