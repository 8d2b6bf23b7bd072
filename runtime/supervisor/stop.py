"""Stop request for a running job: a file beside its store."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from recovery.store.address import StoreAddress, Where
from recovery.store.identity import store_id
from recovery.store.interface import NoStore, StoreBusy
from runtime.folders.store_folder import StoreFolder
from runtime.supervisor.starting import starts
from runtime.supervisor.store import SAVEPOINT
from timely.errors import FalkirkError

_LOOK_SECONDS = 0.05
_GRACE_SECONDS = 15.0


def stop_job(store: Where, seconds: float = 60.0, savepoint: bool = False) -> bool:
    """Stop the job of a store, running or starting; False if there is none.

    Waits until the job has stopped. With `savepoint` it stops once all that its sources have read is complete, saved and
    published.

    Raises FalkirkError if it has not stopped after `seconds`, or if the store cannot be opened. A job without its savepoint
    by then goes on.
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
        folder = StoreFolder(address)
        asked, answer = folder.stop_request, folder.stop_answer
        answer.unlink(missing_ok=True)
        if savepoint:
            deadline += _GRACE_SECONDS  # the job has the seconds, and says why it needs more
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
            with suppress(FileNotFoundError):
                why = answer.read_text()
                asked.unlink(missing_ok=True)
                answer.unlink(missing_ok=True)
                raise FalkirkError(f"{why}. The job goes on; without --savepoint it stops at once")
            if not savepoint:
                asked.touch(0o600)  # again: a job takes away what it finds as it begins
            elif not asked.exists():
                _write(asked, f"{SAVEPOINT}{seconds}")
            time.sleep(_LOOK_SECONDS)


def _write(file: Path, text: str) -> None:
    """Write a private file, whole or not at all."""
    new = file.with_name(f"{file.name}-new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)
    new.rename(file)
