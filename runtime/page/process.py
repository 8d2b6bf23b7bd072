"""Page process: `python -m runtime.page.process`, or `falkirk page`.

It isolates untrusted input from jobs: connections of browsers, their requests, and the cost of answering them. Nobody owns
it: jobs, their monitors and the process that started it may end, or be killed, and it goes on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from recovery.store.address import StoreAddress
from runtime.page.address import PageSocket
from runtime.page.followed import FollowedJob, JobAtRest
from runtime.page.launched import Launch
from runtime.page.server import serve

_POLITE = 10
"""Increment of the process's nice value: jobs come first."""


def run_page(
    stores: Sequence[StoreAddress],
    page: PageSocket,
    others: Callable[[], Sequence[JobAtRest]] = tuple,
    stays: bool = True,
) -> None:
    """Serve the page of jobs in `stores` and of `others` at rest, until interrupted.

    Unless it `stays`, it ends by itself: see `runtime.page.server`.
    """
    with suppress(OSError, AttributeError):  # not on all systems
        os.nice(_POLITE)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # woken, it interrupts nobody

    async def run() -> None:
        await serve([*map(FollowedJob, stores), *others()], page, stays)

    asyncio.run(run())


def main() -> int:
    """Entry point of a page started by `--ui`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    launch = msgspec.json.decode(sys.stdin.buffer.read(), type=Launch)
    page = PageSocket(socket.socket(fileno=launch.socket), "", launch.token, launch.url)
    run_page([launch.store], page, stays=False)
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
