"""Temporary folders, removed after the end of their process however it ends.

A process that is killed cannot remove its folder. So each folder holds a file that its owner keeps locked, and the system
lets go of a lock when its process ends: whoever makes the next folder sweeps those of the same user that nobody holds.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PREFIX = "falkirk-"
OWNER = ".owner"
_TRIES = 10

_MADE_AGAIN_SECONDS = 3600.0
"""Minimum age, in seconds, of removable empty folders without an owner.

A process at its end, as Spark's Java, may make some once more.
"""

_LONGEST = 60
"""Maximum length, in bytes, of the parent path of a socket.

The system allows 104 to 108 for the path of a socket, and the names in front of it take the rest.
"""


class Scratch:
    """New private folder, removed by `close` or after the end of this process.

    Args:
        kind: a part of its name.
        within: the folder to make it in; None: the system's temporary one.

    Raises:
        OSError: if it cannot be made.
    """

    def __init__(self, kind: str, within: str | os.PathLike[str] | None = None) -> None:
        where = Path(within or tempfile.gettempdir())
        sweep(where)
        for _ in range(_TRIES):
            self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-", dir=where))
            self._lock: int | None = _own(self.path)
            if self._lock is not None:
                return
        raise OSError(f"no folder could be kept in {where}: another process removes them")

    def close(self) -> None:
        """Remove the folder and its content; may be called again."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


_job: Path | None = None


def join_job(private: str) -> None:
    """Set the private folder of this process's supervisor."""
    global _job
    _job = Path(private) if private else None


def job_folder() -> Path | None:
    """Private folder of this job's supervisor; None outside of jobs.

    It is there, and its lock held, as long as the supervisor lives.
    """
    return _job


def for_sockets() -> str:
    """Parent of socket folders: the temporary folder, or /tmp if its path is too long."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= _LONGEST else "/tmp"


def sweep(where: Path) -> list[Path]:
    """Remove the folders of ended processes in `where`, and return them.

    Those of other users are left, and so is anything but a folder.
    """
    swept = []
    with suppress(OSError), os.scandir(where) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False) and _is_left(entry.path):
                swept.append(Path(entry.path))
    return swept


def _own(folder: Path) -> int | None:
    """Lock a new folder; None if another process was faster to remove it."""
    lock = os.open(folder / OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except OSError:  # there are no locks here: nobody can sweep either
        return lock
    with suppress(OSError):
        if os.path.samestat(os.stat(folder / OWNER), os.fstat(lock)):
            return lock
    os.close(lock)
    return None


def _is_left(folder: str) -> bool:
    """Remove a folder if its owner has ended; True if it was removed."""
    try:
        here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        about = os.fstat(here)
        if about.st_uid != os.getuid():
            return False
        try:
            lock = os.open(OWNER, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)
        except FileNotFoundError:
            return time.time() - about.st_mtime > _MADE_AGAIN_SECONDS and _remove_folders(folder)
        try:
            mine = os.fstat(lock)
            if not stat.S_ISREG(mine.st_mode) or mine.st_uid != os.getuid():
                return False
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held until all is removed: nobody else is at it
            shutil.rmtree(folder, ignore_errors=True)
            return True
        finally:
            os.close(lock)
    except OSError:  # it is held, or is none of these
        return False
    finally:
        os.close(here)


def _remove_folders(folder: str) -> bool:
    """Remove a folder with nothing but folders in it; False if it has files."""
    tree = list(os.walk(folder, topdown=False))
    if any(files for _, _, files in tree):
        return False
    for each, _, _ in tree:
        os.rmdir(each)
    return True
