"""Errors of Spark, as told to the user."""

from __future__ import annotations

from timely.errors import FalkirkError


class SparkError(FalkirkError):
    """Spark, or what it was asked to do, has failed, and trying again would not help."""


class SparkLost(FalkirkError):
    """Spark has failed in a way that may pass: its process died, a job was aborted, nothing came back in time."""
