"""The phases of a job, as its monitor sees it."""

from __future__ import annotations

from enum import Enum


class JobPhase(Enum):
    """The phase of a job."""

    ASSEMBLING = "assembling"
    """After the death of a monitor: which workers are still there?"""
    GATHERING = "gathering"
    """The living pause, drain their links and report their memory; the dead are replaced, and the new processes report what
    their stores have."""
    DECIDING = "deciding"
    """The fixed point is solved; the decision is on its way to the journal."""
    RESTORING = "restoring"
    """The decision is sent: it is binding."""
    RUNNING = "running"
    """Checkpoints are taken, low-watermarks rise."""
    CLOSING = "closing"
    """Every worker is done for good; the journal hears of it."""
    OVER = "over"
    """Finished, or failed."""
