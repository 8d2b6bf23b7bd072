"""The value that stands where there is none."""

from __future__ import annotations

from enum import Enum
from typing import Any


class _Absent(Enum):
    """A marker that `is` itself also for a function that has travelled to another process, with a copy of what it names."""

    ABSENT = "absent"


ABSENT: Any = _Absent.ABSENT
"""Stands where there is no value, and where None would be taken for one."""
