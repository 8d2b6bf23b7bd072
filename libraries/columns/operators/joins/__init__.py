"""Joins: on equal keys, of near epochs or event times, and of the nearest row.

Enters: batches of two streams, exchanged by key. Leaves: joined rows, or changes of them.
"""
