"""Spark errors."""

from __future__ import annotations

from timely.errors import FalkirkError


class SparkError(FalkirkError):
    """Permanent failure of Spark, or of a request to it."""


class SparkLost(FalkirkError):
    """Transient failure of Spark: a dead process, an aborted job, a time-out."""
