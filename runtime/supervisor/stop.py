"""Stop request for a running job: a file beside its store."""

from __future__ import annotations

import time

from recovery.store.address import StoreAddress, Where
from recovery.store.identity import store_id
from recovery.store.interface import NoStore, StoreBusy
from runtime.folders.store_folder import StoreFolder
from runtime.supervisor.starting import starts
from timely.errors import FalkirkError

_LOOK_SECONDS = 0.05


def stop_job(store: Where, seconds: float = 60.0) -> bool:
    """Stop the job of a store, running or starting; False if there is none.

    Waits until the job has stopped.

    Raises FalkirkError if it has not stopped after `seconds`, or if the store cannot be opened.
    """
    address = StoreAddress.of(store)
    deadline = time.monotonic() + seconds
    while starts(address) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    try:
        opened = address.open()
    except NoStore:  # it never began
        return False
    with opened:
        store_id(opened)  # of a folder with other files nothing is touched
        asked = StoreFolder(address).stop_request
        there = False
        while True:
            try:
                with opened.lock():
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
