"""The supervisor of a job, `supervisor`; a lead decides for it (`monitored`, `together`), a `placement` starts its workers.

Enters: a program, the number of workers, perhaps a store. Leaves: the job's result.
"""
