"""A process without a file descriptor left."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def few_descriptors() -> Iterator[Callable[[], None]]:
    """No more descriptors can be opened, until the end of the block or until what it gives is called."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    fillers: list[int] = []
    with suppress(OSError):
        while True:  # the gaps below
            fillers.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def give_back() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        while fillers:
            os.close(fillers.pop())

    try:
        yield give_back
    finally:
        give_back()
