"""The language of programs, the graph that they build, and the plan that a worker runs.

Enters: a user's calls. Leaves: a `Graph`, validated, and its `Plan`. Pure.
"""
