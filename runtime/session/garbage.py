"""Frequency of Python's garbage collection during jobs.

Records that wait for the end of their epoch are no garbage, and would be scanned in vain.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = 10_000
"""Net number of new container objects between garbage collections.

Records kept until their epoch is complete are no garbage: with Python's own 700 each was scanned twice before it
went.
"""

_OF_PYTHON = gc.get_threshold()


@contextmanager
def sought_seldom() -> Iterator[None]:
    """Context with rare garbage collection, unless the caller has set a threshold."""
    if gc.get_threshold() != _OF_PYTHON:
        yield
        return
    gc.set_threshold(max(SELDOM, _OF_PYTHON[0]), *_OF_PYTHON[1:])
    try:
        yield
    finally:
        gc.set_threshold(*_OF_PYTHON)
