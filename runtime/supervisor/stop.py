"""Stop request for a running job: a file in its store, found by its supervisor."""

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


def stop_job(folder: str | os.PathLike[str], seconds: float = 60.0) -> bool:
    """Stop the job of a store, running or starting; False if there is none.

    Waits until the job has stopped.

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
