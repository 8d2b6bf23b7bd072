"""Folders of a job: temporary, of operators' jobs, and beside a store.

Enters: an owner, or a store's address. Leaves: paths, removed when their owner ends.
"""
