"""Columns and types that verbs give, and arguments that name columns.

Enters: schemas, names, Polars expressions. Leaves: schemas, or errors with the user's line.
"""
