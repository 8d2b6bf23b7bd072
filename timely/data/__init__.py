"""Batches, the messages that carry them, how they are encoded, routed and counted.

Enters: values of the user's, as records or columns. Leaves: bytes, shards, totals. Pure.
"""
