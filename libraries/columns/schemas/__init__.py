"""Inferred columns and types of verbs, and arguments with names of columns.

Enters: schemas, names, Polars expressions. Leaves: schemas, or errors with the user's line.
"""
