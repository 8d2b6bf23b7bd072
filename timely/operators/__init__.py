"""Operators: base class (`base`), built-in operators, and routing (`channels`).

Enters: batches and notifications at a time. Leaves: batches at this time or later ones. Pure.
"""
