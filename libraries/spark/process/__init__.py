"""Processes that run Spark for a worker: a keeper that has its Java, a child that speaks to it, and what the two are told.

Enters: runs of regions, streaming queries, as messages of `protocol`. Leaves: files, small results, and why a try failed.
"""
