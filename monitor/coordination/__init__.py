"""The coordinator: it leads rounds of rollback, chooses cuts, and keeps the low-watermarks.

Enters: messages of workers, results of writes, time. Leaves: effects for its driver. Pure.
"""
