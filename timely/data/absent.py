"""Marker for a missing value."""

from __future__ import annotations

from enum import Enum
from typing import Any


class _Absent(Enum):
    """Singleton compared with `is`, also after a copy to another process."""

    ABSENT = "absent"


ABSENT: Any = _Absent.ABSENT
"""Marks a missing value in places with None as a legal value."""
