"""A file of a table, as a run reads it."""

from __future__ import annotations

from typing import NamedTuple


class PinnedFile(NamedTuple):
    """A file of a table, as it was when it was listed."""

    base: str
    """Base folder of partition columns: `name=value` folders lie below it."""
    path: str
    size: int
    """In bytes."""
    modified: int
    """In nanoseconds."""
