"""Sources of a worker: reading, limits, positions, and input that is read again.

`driver` reads the partitions of a source, each by a `reader`. Enters: chunks of partitions, positions to go back to. Leaves:
batches for the worker, positions at the ends of epochs.
"""
