"""Python's search for garbage in cycles, which looks at records that wait for the end of their epoch and are none."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SELDOM = 10_000
"""Objects that hold others, and are not freed again, before Python looks which of them are garbage. Records that are kept until
their epoch is complete are not: by Python's own 700 each was looked at twice before it went."""

_OF_PYTHON = gc.get_threshold()


@contextmanager
def sought_seldom() -> Iterator[None]:
    """While inside, garbage is sought as seldom as in worker processes, unless the caller has said how often."""
    if gc.get_threshold() != _OF_PYTHON:
        yield
        return
    gc.set_threshold(max(SELDOM, _OF_PYTHON[0]), *_OF_PYTHON[1:])
    try:
        yield
    finally:
        gc.set_threshold(*_OF_PYTHON)
