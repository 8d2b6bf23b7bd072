"""Files of jobs beside a store, on this host, in `StoreAddress.local`.

Beside the store's own blobs: a lock or segments are not here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from recovery.store import StoreAddress


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """Folder of the store at `address` on this host, and its files by name."""

    address: StoreAddress

    @property
    def path(self) -> Path:
        """The folder; it is there if the store is in a folder, or after `make`."""
        return self.address.local

    def make(self) -> None:
        """Make the folder if it is missing, private to this user. Raises OSError."""
        self.path.mkdir(0o700, parents=True, exist_ok=True)

    @property
    def stop_request(self) -> Path:
        """Stop request to the running job."""
        return self.path / ".stop"

    @property
    def stop_answer(self) -> Path:
        """Reason for a missing savepoint, left for `falkirk stop`."""
        return self.path / ".stop-answer"

    @property
    def page(self) -> Path:
        """File with the address of the running job's door for pages."""
        return self.path / ".page"

    @property
    def ui(self) -> Path:
        """File with the address of the page of `--ui`, token included."""
        return self.path / ".ui"

    @property
    def monitor(self) -> Path:
        """Socket of a standalone monitor."""
        return self.path / ".monitor"

    @property
    def files(self) -> Path:
        """Folder for files of operators' jobs (`runtime.folders.workspace`)."""
        return self.path / "files"

    @property
    def history(self) -> Path:
        """Folder of the job's history (`runtime.page.recorder`)."""
        return self.path / ".history"

    @property
    def logs(self) -> Path:
        """Folder of the output of processes (`runtime.page.logs`)."""
        return self.path / ".logs"

    @property
    def spark_mark(self) -> Path:
        """Folder of a program on Spark only."""
        return self.path / "spark-alone"

    def is_of(self, other: StoreAddress) -> bool:
        """True if the store at `other` is this one, perhaps by another path."""
        try:
            return self.address == other or os.path.samefile(self.path, other.local)
        except OSError:
            return False
