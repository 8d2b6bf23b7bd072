"""Retries of work for want of a free file descriptor."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TypeVar

Done = TypeVar("Done")

PATIENCE_SECONDS, _PAUSE_SECONDS = 30.0, 0.05


def with_descriptors(work: Callable[[], Done]) -> Done:
    """Run `work`, retrying for up to 30 seconds while no descriptor is free.

    Callers may hold them all, at a socket of this process: those are disconnected soon.

    Strangers may hold them all, at one of its sockets: those are hung up on soon. `work` must change nothing before it fails.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return work()
        except Exception as error:
            if not none_left(error) or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)


def none_left(error: BaseException | None) -> bool:
    """True if the error, or one of its causes, is descriptor exhaustion."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return True
        error = error.__cause__
    return False
