"""Memory and processor time of this process."""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
from functools import cache

from recovery.protocol import ProcessUse

_PAGE = os.sysconf("SC_PAGE_SIZE")


def process_use(began: float) -> ProcessUse:
    """Use of this process at this moment; `began` in seconds since 1970."""
    return ProcessUse(os.getpid(), _host(), resident(), round(time.process_time(), 2), round(began, 2))


@cache
def _host() -> str:
    return socket.gethostname()


def resident() -> int:
    """Resident bytes; the most there ever were, where the system has no /proc."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
