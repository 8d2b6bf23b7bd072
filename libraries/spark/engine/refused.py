"""The refusal of what has no counterpart in Spark."""

from __future__ import annotations


class Refused(Exception):
    """Something that Spark cannot do so that the answer is the same in all cases. The text names it."""
