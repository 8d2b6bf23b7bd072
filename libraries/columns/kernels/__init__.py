"""Vectorised kernels: key indexes, grouping, totals and joined rows.

Enters: columns. Leaves: dense ids, totals, places of rows.
"""
