"""Asking a running job to stop, from another process: a file in its store, which its supervisor looks for."""

from __future__ import annotations

import os
import time

from recovery.store.identity import store_id
from recovery.store.interface import StoreBusy
from recovery.store.local import LocalStore
from runtime.supervisor.starting import starts
from timely.errors import FalkirkError

STOP_FILE = ".stop"
_LOOK_SECONDS = 0.05


class JobStopped(FalkirkError):
    """Somebody asked the job to stop, and it has: run it again, and it goes on."""


def stop_job(folder: str | os.PathLike[str], seconds: float = 60.0) -> bool:
    """Ask the job that uses a store, or is about to, to stop, and wait until it has; False if there is none.

    Raises FalkirkError if it has not stopped after `seconds`, or if the folder is no store.
    """
    deadline = time.monotonic() + seconds
    while starts(folder) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    if not os.path.isdir(folder):  # it never began
        return False
    with LocalStore(folder) as store:
        store_id(store)  # of a folder with other files nothing is touched
        asked = store.folder / STOP_FILE
        there = False
        while True:
            try:
                with store.lock():
                    asked.unlink(missing_ok=True)
                return there
            except StoreBusy as busy:
                if time.monotonic() >= deadline:
                    raise FalkirkError(
                        f"the job was asked to stop {seconds:.0f} s ago, and has not; end process {busy.pid} to stop it at once"
                    ) from None
            there = True
            asked.touch(0o600)  # again: a job takes away what it finds as it begins
            time.sleep(_LOOK_SECONDS)
