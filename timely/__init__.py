"""Timely dataflow: logical times, progress tracking, and the engine that runs a dataflow on one or many workers.

This package knows nothing of recovery, Spark or the web; `falkirk` is the front door for users.
"""
