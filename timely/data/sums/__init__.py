"""Exact sums of floats, rounded once.

`terms` and `split` are of arrays, `records` of values one by one.

Enters: floats in any order. Leaves: terms that add up without rounding, and the nearest float.
"""
