"""Errors of recovery: event, place and remedy."""

from __future__ import annotations

from timely.errors import FalkirkError


class RecoveryError(FalkirkError):
    """Root of errors in persisting state or restoring a job."""


class ReportError(RecoveryError):
    """Invalid report of a processor: it went back, or the processor is unknown."""


class NoSolutionError(RecoveryError):
    """No consistent choice of rollback frontiers keeps what was promised."""
