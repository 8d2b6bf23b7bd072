"""Progress tracking: which times may still arrive where.

Enters: changes of pointstamp counts, own and of other workers. Leaves: frontiers. Pure.
"""
