"""Client process of a worker: runs of regions and streaming queries on a Spark.

Enters: runs and streaming queries, as messages of `protocol`. Leaves: files, small results, and why an attempt failed.
"""
