"""Workspace: one folder for the files of operators' jobs, shared by all workers."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from runtime.folders.scratch import Scratch
from timely.errors import FalkirkError

VARIABLE = "FALKIRK_FILES"
"""Environment variable with the parent folder of temporary workspaces.

By default the system's temporary one.
"""

_LIVING = "%living"
"""Name of the folder for files needed only while the job runs.

No name that a job gives is quoted as this.
"""


class Workspace:
    """Folder for the files of a job.

    Args:
        path: the folder; None for a temporary one, made when it is first asked for and removed by `close`, or with this.
        durable: whether it outlives the job's processes, because it belongs to a store.
        refused: why there is none.
        note: told what the user should know of a job, from any thread; by default it is printed on standard error.
    """

    def __init__(
        self,
        path: Path | None = None,
        durable: bool = False,
        refused: str | None = None,
        note: Callable[[str], None] | None = None,
    ) -> None:
        self._path = path
        self._remove: weakref.finalize[..., Workspace] | None = None
        self._refused = refused
        self._making = threading.Lock()  # jobs ask from threads of their own
        self.durable = durable
        self.note = note or (lambda text: print(f"note: {text}", file=sys.stderr))

    @property
    def path(self) -> Path:
        """Path of the folder; it is made if it is missing.

        Raises:
            FalkirkError: if the job has none, or it cannot be made.
        """
        if self._refused is not None:
            raise FalkirkError(self._refused)
        try:
            with self._making:
                if self._path is None:
                    scratch = Scratch("files", os.environ.get(VARIABLE))
                    self._path = scratch.path
                    self._remove = weakref.finalize(self, scratch.close)
            self._path.mkdir(0o700, exist_ok=True)
        except OSError as error:
            where = self._path or os.environ.get(VARIABLE) or tempfile.gettempdir()
            raise FalkirkError(
                f"no folder for files could be made in {where}: {error.strerror}; make room, or name another in {VARIABLE}"
            ) from error
        return self._path

    def folder(self, name: str, living: bool = False) -> Path:
        """Subfolder `name`, made if missing; it may have parts, as in "a/b".

        See `JobContext` for `living`.
        """
        folder = (self.path / _LIVING if living else self.path).joinpath(*map(_quoted, name.split("/")))
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def begin(self) -> None:
        """Remove files of earlier runs needed only while the job ran.

        The job is started, perhaps not for the first time: none of its processes lives.
        """
        if self._path is not None:
            shutil.rmtree(self._path / _LIVING, ignore_errors=True)

    def close(self) -> None:
        """Remove the folder if it is a temporary one."""
        if self._remove is not None:
            self._remove()
            self._path = self._remove = None


def _quoted(part: str) -> str:
    """Quote `part` as a folder name: unique, and without a way out of the folder."""
    return quote(part, safe=" ") if part.strip(".") else "%" + part.replace(".", "%2E")


class RunningJob:
    """Context of a running job: see `timely.operators.base.JobContext`.

    Read by the worker's thread, written by the job's.
    """

    def __init__(self, workspace: Workspace, operator: str, epoch: int, began: float) -> None:
        self._workspace = workspace
        self.operator = operator
        self.epoch = epoch
        self.began = began
        self.last_progress: tuple[str, int, int] | None = None
        """Last progress report."""
        self.stopped = False

    @property
    def durable(self) -> bool:
        """True if the files in `folder` outlive the processes of the job."""
        return self._workspace.durable

    def folder(self, name: str, living: bool = False) -> Path:
        """Folder for files, the same for all workers."""
        return self._workspace.folder(name, living)

    def report(self, what: str, done: int = 0, total: int = 0) -> None:
        """Report the progress of the job."""
        self.last_progress = what, done, total

    def note(self, text: str) -> None:
        """Show the user a note, once."""
        self._workspace.note(f"{self.operator}: {text}")
