"""Operators: what they are (`base`), the built-in ones, and how batches find their worker (`channels`).

Enters: batches and notifications at a time. Leaves: batches at this time or later ones. Pure.
"""
