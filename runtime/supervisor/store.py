"""Store of a job, opened and locked by its supervisor."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from monitor.coordination.records import OWNER
from recovery.store.address import StoreAddress
from recovery.store.identity import NAME, make_store_id
from recovery.store.interface import StoreError
from recovery.store.reading import survey
from runtime.folders.store_folder import StoreFolder
from runtime.supervisor import starting
from runtime.supervisor.starting import JobStopped

SAVEPOINT = "savepoint "
"""Begin of a stop request with a savepoint; its seconds follow."""


class JobStore:
    """Store at `address`, opened or made, private and locked until `resources` close.

    `on_note` is called with what the user should know. `spark_only`: for a program that runs on Spark alone.

    Raises:
        StoreBusy: if another job uses the store; other StoreErrors if it is none, has a job of the other kind, or cannot be
            written.
    """

    def __init__(
        self,
        resources: ExitStack,
        address: StoreAddress,
        on_note: Callable[[str], None],
        spark_only: bool = False,
    ) -> None:
        self.address, self.folder = address, StoreFolder(address)
        self.blobs = store = resources.enter_context(address.open(make=True))
        """The store, opened and locked."""
        self.layout = 0
        """Number of the layout of the workers' journals."""
        note = store.make_private()
        if note is not None:
            on_note(note)
        resources.enter_context(store.lock())
        self.id = make_store_id(store, secrets.token_bytes(16))
        self.folder.make()
        was_alone = self.folder.spark_mark.exists()
        if was_alone != spark_only and (was_alone or set(store.names("")) - {NAME}):
            kinds = ("Falkirk's workers, without --engine", "Spark alone, with --engine spark")
            raise StoreError(
                f"the store {address} has a job that runs on {kinds[not spark_only]}: run it so, or choose another store"
            )
        owners = {name.partition("/")[0] for name in store.names("worker-")}
        surveys = [survey(store, owner, self.id) for owner in (OWNER, *sorted(owners))]
        self._incarnation = max((found.newest.incarnation for found in surveys if found.newest is not None), default=0)
        self._stop_request = self.folder.stop_request
        self._stop_request.unlink(missing_ok=True)
        resources.callback(self._stop_request.unlink, missing_ok=True)
        starting.begun()

    def incarnation(self) -> int:
        """Number for a new process, higher than any before."""
        self._incarnation += 1
        return self._incarnation

    def check_stop(self, savepoints: bool = True) -> float | None:
        """Seconds for a requested savepoint; without `savepoints` that is a plain stop.

        Raises JobStopped if a stop was requested without one.
        """
        try:
            asked = self._stop_request.read_text()
        except FileNotFoundError:
            return None
        with suppress(ValueError):
            if savepoints:
                return max(0.0, float(asked.removeprefix(SAVEPOINT)))
        raise JobStopped("the job was asked to stop; run it again, and it goes on from where it is")

    def refuse_stop(self, why: str) -> None:
        """Answer a request for a savepoint with the reason for none."""
        self.folder.stop_answer.write_text(why)
        self._stop_request.unlink(missing_ok=True)


@contextmanager
def address_file(address: str, file: Path) -> Iterator[None]:
    """Context with a private file holding the address at which a job answers."""
    file.unlink(missing_ok=True)
    with suppress(OSError), open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(address)  # nothing but a look at the job needs it
    try:
        yield
    finally:
        with suppress(OSError):
            file.unlink()
