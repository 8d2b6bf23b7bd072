"""Batches, messages, keys, routing, codec and column kernels.

Enters: values of the user's, as records or columns. Leaves: bytes, shards, totals. Pure.
"""
