"""Supervisors: `supervisor` watches a job with a store; a `placement` starts and ends its workers. `local` has no store.

Enters: a program, a store, the number of workers. Leaves: the job's result.
"""
