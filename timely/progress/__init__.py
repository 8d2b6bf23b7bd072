"""Progress tracking: the times still possible at each point of a dataflow.

Enters: changes of pointstamp counts, own and of other workers. Leaves: frontiers. Pure.
"""
