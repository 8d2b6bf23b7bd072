"""Temporary folders that go with the process that made them, however that ends.

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
"""Empty folders without an owner are left from then on: who is ending, as Spark's Java is, may make some once more."""

_LONGEST = 60
"""Bytes: the system allows 104 to 108 for the path of a socket, and the names in front of it take the rest."""


class Scratch:
    """A new folder that only this user can open, for as long as this process lives or until `close`.

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
        """Remove the folder with all that is in it. May be called again."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


_job: Path | None = None


def join_job(private: str) -> None:
    """This process belongs to a job whose supervisor has such a folder."""
    global _job
    _job = Path(private) if private else None


def job_folder() -> Path | None:
    """The folder of the supervisor of this process's job: there, and its lock held, as long as the supervisor lives."""
    return _job


def for_sockets() -> str:
    """The parent of folders for sockets: the system's temporary one, or /tmp where its path is too long for them."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) <= _LONGEST else "/tmp"


def sweep(where: Path) -> list[Path]:
    """Remove the folders in `where` whose owners are gone; which these were. Others' are left alone, and what is no folder."""
    swept = []
    with suppress(OSError), os.scandir(where) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False) and _is_left(entry.path):
                swept.append(Path(entry.path))
    return swept


def _own(folder: Path) -> int | None:
    """The lock on a new folder; None if somebody who sweeps was faster."""
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
    """True if nobody held it, and it was removed."""
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
    """Remove a folder in which there is nothing but folders; True if it was one."""
    tree = list(os.walk(folder, topdown=False))
    if any(files for _, _, files in tree):
        return False
    for each, _, _ in tree:
        os.rmdir(each)
    return True
