"""The errors of recovery. Each says what happened, where, and what to do about it."""

from __future__ import annotations

from timely.errors import FalkirkError


class RecoveryError(FalkirkError):
    """Root of what goes wrong while state is persisted, or a job is brought back."""


class ReportError(RecoveryError):
    """A processor reported something that no processor may report: it went back, or is not one of those known."""


class NoSolutionError(RecoveryError):
    """No consistent choice of rollback frontiers keeps what was promised to be kept."""
