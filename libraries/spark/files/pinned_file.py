"""File of a table, as pinned for a run."""

from __future__ import annotations

from typing import NamedTuple


class PinnedFile(NamedTuple):
    """File of a table, with its state at the time of listing."""

    base: str
    """Base folder of partition columns: `name=value` folders lie below it."""
    path: str
    size: int
    """File size in bytes."""
    modified: int
    """Modification time in nanoseconds."""
