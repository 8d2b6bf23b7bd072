"""Store of a job, opened and locked by its supervisor."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from monitor.coordination.records import OWNER
from recovery.store.identity import NAME, make_store_id
from recovery.store.interface import StoreError
from recovery.store.local import LocalStore
from recovery.store.reading import survey
from runtime.supervisor import starting
from runtime.supervisor.starting import JobStopped
from runtime.supervisor.stop import STOP_FILE

_OF_EACH = {NAME, STOP_FILE, ".lock"}
"""File names found in any store, or in one just made."""

ALONE = "spark-alone"
"""Name of the folder, in a store, of a program on Spark only."""


class JobStore:
    """Store in `folder`, opened or made, private and locked until `resources` close.

    `on_note` is called with what the user should know. `alone`: for a program that runs on Spark alone, and not on workers.

    Raises:
        StoreBusy: if another job uses the store; other StoreErrors if it is none, has a job of the other kind, or cannot be
            written.
    """

    def __init__(
        self, resources: ExitStack, folder: Path, workers: int, on_note: Callable[[str], None], alone: bool = False
    ) -> None:
        self.folder = folder
        store = resources.enter_context(LocalStore(folder))
        note = store.make_private()
        if note is not None:
            on_note(note)
        resources.enter_context(store.lock())
        self.id = make_store_id(store, secrets.token_bytes(16))
        if (folder / ALONE).exists() != alone and set(os.listdir(folder)) - _OF_EACH:
            kinds = ("Falkirk's workers, without --engine", "Spark alone, with --engine spark")
            raise StoreError(
                f"the store {folder} has a job that runs on {kinds[not alone]}: run it so, or choose another store"
            )
        surveys = [survey(store, owner, self.id) for owner in (OWNER, *(f"worker-{w:03d}" for w in range(workers)))]
        self._incarnation = max((found.newest.incarnation for found in surveys if found.newest is not None), default=0)
        self._stop_file = folder / STOP_FILE
        self._stop_file.unlink(missing_ok=True)
        resources.callback(self._stop_file.unlink, missing_ok=True)
        starting.begun()

    def incarnation(self) -> int:
        """Number for a new process, higher than any before."""
        self._incarnation += 1
        return self._incarnation

    def check_stop(self) -> None:
        """Raise JobStopped if a stop was requested."""
        if self._stop_file.exists():
            raise JobStopped("the job was asked to stop; run it again, and it goes on from where it is")


@contextmanager
def told(address: str, file: Path) -> Iterator[None]:
    """Context with a private file holding the address of the job's page.

    The address may have a token in it.
    """
    file.unlink(missing_ok=True)
    with suppress(OSError), open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(address)  # nothing but a look at the job needs it
    try:
        yield
    finally:
        with suppress(OSError):
            file.unlink()
