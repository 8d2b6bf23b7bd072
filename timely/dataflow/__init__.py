"""Dataflow programs: streams and their verbs, logical graph, and execution plan.

Enters: a user's calls. Leaves: a `Graph`, validated, and its `Plan`. Pure.
"""
