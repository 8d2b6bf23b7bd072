"""Operators on batches of columns.

Enters: batches and notifications at a time. Leaves: batches at this time or later ones.
"""
