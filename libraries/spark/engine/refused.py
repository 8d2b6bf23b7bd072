"""Refusal of operations without an equivalent in Spark."""

from __future__ import annotations


class Refused(Exception):
    """Operation without an exact equivalent in Spark; the text names it."""
