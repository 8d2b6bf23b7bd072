"""Processes to run Spark for a worker: a daemon with Java, a client, messages.

The daemon is the *keeper*; the client process is its *child*.

Enters: runs of regions, streaming queries, as messages of `protocol`. Leaves: files, small results, and why a try failed.
"""
