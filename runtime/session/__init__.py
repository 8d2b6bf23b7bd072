"""One worker with its driver, in this thread; statistics and result of a job.

Enters: a dataflow, its options, a link. Leaves: the worker's effects, carried out; captures, statistics, holders of a frontier.
"""
