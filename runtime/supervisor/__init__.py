"""Supervisor of a job: starts its processes and sees it through.

`supervisor` is the core; a lead decides for it (`monitored`, `together`), a `placement` starts its workers. Enters: a
program, the number of workers, perhaps a store. Leaves: the job's result.
"""
