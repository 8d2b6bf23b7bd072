"""Coordinator: leads rollback rounds, chooses cuts, and keeps low-watermarks.

Enters: messages of workers, results of writes, time. Leaves: effects for its driver. Pure.
"""
