"""Exact sums of floats, rounded once: of arrays (`terms`, `split`) and of records (`records`).

Enters: floats in any order. Leaves: terms that add up without rounding, and the nearest float.
"""
