"""Store in a folder of a local (or mounted) file system.

A blob is written to a temporary file, synced, linked to its name, which fails if the name is taken, and the folder is
synced. Whoever sees the name sees the whole blob; whatever happens before the link leaves nothing but a temporary file.

The folder is kept open: if it is removed or replaced under a running job, that is noticed, and never papered over with a
new one.

What a job keeps is its user's alone: folders that are made here can be opened by nobody else, nor files, whatever the umask.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import NoReturn

from recovery.store.interface import (
    AlreadyThere,
    Buffer,
    NotThere,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreGone,
    StoreUnwritable,
    check_name,
)
from recovery.store.memory import aligned_memory
from recovery.store.segments import as_bytes
from timely.io.descriptors import with_descriptors

_TEMPORARY = ".writing-"
_LOCK = ".lock"
_PRIVATE = 0o700
_PRIVATE_FILE = 0o600
_MOST_PARTS = 512  # of one system call; POSIX allows 1,024 on the systems that matter


class LocalStore:
    """`OpenStore` in `folder`, created if missing (its parent must exist).

    Any number of processes may use one folder, and threads one store. `lock` keeps other *jobs* away.

    Raises:
        StoreUnwritable: if the folder cannot be made or opened, or is not a folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        if "\0" in os.fspath(folder):
            raise StoreUnwritable(f"{os.fspath(folder)!r} is no name for a folder: give another store")
        self.folder = Path(folder).absolute()
        self._fds: dict[str, int] = {}
        self._serial = count()
        if self.folder.exists() and not self.folder.is_dir():
            raise StoreUnwritable(f"{self.folder} is a file; a store needs a folder")
        if not self.folder.parent.exists():
            raise StoreUnwritable(
                f"there is no folder {self.folder.parent} to make the store in: make it, or choose another"
            )
        try:
            created = not self.folder.exists()
            if created:
                with suppress(FileExistsError):
                    self.folder.mkdir(_PRIVATE)
            self._fds[""] = _open_folder(self.folder)
            if created:
                _sync_path(self.folder.parent)
        except OSError as error:
            self._fail(error, "opening the store")

    def close(self) -> None:
        """Close the folder; the store cannot be used afterwards."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    def __enter__(self) -> LocalStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Store

    def put(self, name: str, parts: Sequence[Buffer]) -> None:
        """Write a blob, durably, if there is none of this name.

        See `Store.put`.
        """
        below, leaf = self._split(name)
        try:
            with_descriptors(lambda: self._put(below, leaf, parts))
        except FileExistsError:
            raise AlreadyThere(name) from None
        except OSError as error:
            self._fail(error, f"writing {name}")

    def get(self, name: str) -> memoryview:
        """All bytes of a blob.

        See `Store.get`.

        They are read rather than mapped: a disk that fails under a mapping kills the process instead of raising an error.
        """
        self._split(name)
        try:
            return with_descriptors(lambda: _read(self.folder / name))
        except (FileNotFoundError, NotADirectoryError):
            self._check_there()
            raise NotThere(name, str(self.folder)) from None
        except OSError as error:
            self._fail(error, f"reading {name}")

    def names(self, prefix: str) -> list[str]:
        """Names beginning with `prefix`, sorted."""
        return sorted(name for name, _ in self._walk(prefix))

    def delete(self, name: str) -> None:
        """Remove a blob, if it is there.

        This is not synced: a blob that comes back after a power cut is garbage, and is removed again.
        """
        self._split(name)
        try:
            os.unlink(self.folder / name)
        except (FileNotFoundError, NotADirectoryError):
            self._check_there()
        except OSError as error:
            self._fail(error, f"deleting {name}")

    def size(self, prefix: str = "") -> int:
        """Bytes of all blobs with names beginning with `prefix`."""
        total = 0
        for _, entry in self._walk(prefix):
            with suppress(FileNotFoundError):  # deleted meanwhile
                total += entry.stat().st_size
        return total

    # What a folder has beyond that

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the store for this job while inside, and remove leftovers of dead writers.

        One process of a job does so, before the others start; those do not lock. The lock ends with the process, however
        it ends (but not before the processes that it forked).

        Raises:
            StoreBusy: if another job has it.
        """
        try:
            fd = os.open(
                _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _PRIVATE_FILE, dir_fd=self._folder("")
            )
        except OSError as error:
            self._fail(error, "locking the store")
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._busy(os.pread(fd, 1000, 0).decode(errors="replace")) from None
            except OSError as error:
                self._fail(error, "locking the store")
            try:
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
                self.remove_leftovers()
            except OSError as error:
                self._fail(error, "locking the store")
            yield
        finally:
            os.close(fd)

    def last_user(self) -> tuple[int, str] | None:
        """Last holder of the lock: process and host; None before any.

        Nothing is locked for that: a job may be about to. See `OpenStore.last_user`.
        """
        try:
            pid, host = (self.folder / _LOCK).read_text().split()
            return int(pid), host
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StoreError(f"{self.folder / _LOCK} does not say who uses the store: {error}") from error

    def make_private(self) -> str | None:
        """Close the folder to other users; return a warning for the user, or None.

        Others could read the data, or keep the lock.
        """
        here = os.fstat(self._fds[""])
        mine = os.getuid()
        if here.st_uid not in (mine, 0):
            return (
                f"the folder of the store {self.folder} is another user's (number {here.st_uid}), who can read and change "
                "all of it; choose a folder of your own"
            )
        if not here.st_mode & 0o077:
            return None
        try:
            os.fchmod(self._fds[""], here.st_mode & 0o700)
        except OSError as error:
            return (
                f"other users can open the store {self.folder} (its mode is {here.st_mode & 0o777:o}), and that cannot be "
                f"changed: {error.strerror}; chmod 700 it, or choose a folder of your own"
            )
        if not self.names(""):
            return None  # it was just made, perhaps with mkdir: nobody can have looked
        mode = f"{here.st_mode & 0o777:o}"
        return f"other users could open the store {self.folder} (its mode was {mode}); it is closed to them now"

    def remove_leftovers(self) -> None:
        """Remove temporary files of dead writers.

        A living writer gets a StoreError.
        """
        for path in self._files():
            if path.name.startswith(_TEMPORARY):
                with suppress(FileNotFoundError):
                    path.unlink()

    # Inside

    def _split(self, name: str) -> tuple[str, str]:
        check_name(name)
        below, _, leaf = name.rpartition("/")
        return below, leaf

    def _put(self, below: str, leaf: str, parts: Sequence[Buffer]) -> None:
        fd = self._folder(below)
        temporary = f"{_TEMPORARY}{os.getpid()}-{next(self._serial)}-{leaf}"
        try:
            _write(temporary, fd, parts)
            _link(temporary, leaf, fd)
        finally:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=fd)
        _sync(fd)

    def _folder(self, below: str) -> int:
        """Open descriptor of an inner folder, created if new to this store."""
        self._check_there()
        fd = self._fds.get(below)
        if fd is None:
            parent, _, leaf = below.rpartition("/")
            above = self._folder(parent)
            with suppress(FileExistsError):
                os.mkdir(leaf, _PRIVATE, dir_fd=above)
            _sync(above)  # also if another process made it: that one may not have come to it yet
            fd = self._fds.setdefault(below, _open_folder(self.folder / below))
        elif below and not _is_open_at(fd, self.folder / below):
            raise StoreGone(f"{self.folder / below} was removed or replaced while the job was running; {_AGAIN}")
        return fd

    def _check_there(self) -> None:
        if "" not in self._fds:
            raise StoreError(f"the store {self.folder} was closed")
        if not _is_open_at(self._fds[""], self.folder):
            raise StoreGone(f"the store {self.folder} was removed or replaced while the job was running; {_AGAIN}")

    def _files(self) -> Iterator[Path]:
        self._check_there()
        for folder, _, leaves in os.walk(self.folder):
            for leaf in leaves:
                yield Path(folder, leaf)

    def _walk(self, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Blobs with names beginning with `prefix`.

        Only folders that can hold such blobs are listed.
        """
        self._check_there()
        folders = [""]
        while folders:
            below = folders.pop()
            try:
                with os.scandir(self.folder / below) as entries:
                    found = list(entries)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._fail(error, f"listing {self.folder / below}")
            for entry in found:
                name = f"{below}{entry.name}"
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    inner = f"{name}/"
                    if inner.startswith(prefix) or prefix.startswith(inner):
                        folders.append(inner)
                elif name.startswith(prefix):
                    yield name, entry

    def _busy(self, holder: str) -> StoreBusy:
        pid, _, host = holder.strip().partition(" ")
        if not pid.isdigit():
            return StoreBusy(
                f"another job is using the store {self.folder}; wait for its end, or choose another store", None
            )
        return StoreBusy(
            f"the job of process {pid} on {host} is using the store {self.folder}; "
            "wait for its end (or stop it, with its workers), or choose another store",
            int(pid),
        )

    def _fail(self, error: OSError, doing: str) -> NoReturn:
        """Raise the store's error for an OSError."""
        what = f"{doing} in {self.folder} failed: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StoreFull(f"{what}; make room ({_free(self.folder)}), then run the job again: it resumes") from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR):
            raise StoreUnwritable(
                f"{what}; give this user the right to write there, or choose another store"
            ) from error
        if self._fds:
            self._check_there()
        if error.errno == errno.ENOENT:
            raise StoreError(
                f"{what}; its folder is missing, or another process that took over removed the unfinished file"
            ) from error
        raise StoreError(f"{what}; check the disk, then run the job again: it resumes") from error


_AGAIN = "bring it back and run the job again, or start anew with an empty store"


def _open_folder(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _is_open_at(fd: int, path: Path) -> bool:
    """True if `path` still leads to the open folder."""
    try:
        there = os.stat(path)
    except OSError:
        return False
    mine = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def _read(path: Path) -> memoryview:
    with open(path, "rb", buffering=0) as file:
        memory = aligned_memory(os.fstat(file.fileno()).st_size)
        done = 0
        while read := file.readinto(memory[done:]):
            done += read
        return memory[:done].toreadonly()


def _write(name: str, folder: int, parts: Sequence[Buffer]) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE_FILE, dir_fd=folder)
    try:
        waiting = [view for part in parts if len(view := as_bytes(part))]
        first = 0
        while first < len(waiting):
            written = os.writev(fd, waiting[first : first + _MOST_PARTS])
            while first < len(waiting) and written >= len(waiting[first]):
                written -= len(waiting[first])
                first += 1
            if written:
                waiting[first] = waiting[first][written:]
        _sync(fd)
    finally:
        os.close(fd)


def _link(temporary: str, leaf: str, folder: int) -> None:
    try:
        os.link(temporary, leaf, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno == errno.EPERM and not _may_create(folder):
            raise StoreUnwritable(
                "nothing can be added to the folder of the store any more (Operation not permitted): it may have been made "
                "immutable (lsattr -d shows that, chattr -i ends it), or choose another store"
            ) from error
        if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise StoreUnwritable(
                f"the file system of the store has no hard links ({error.strerror}), which falkirk needs to write a file "
                "only if it is not there; choose a folder on another file system"
            ) from error
        raise


def _may_create(folder: int) -> bool:
    """True if a file can be created in a folder."""
    name = f"{_TEMPORARY}{os.getpid()}-probe"
    try:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=folder))
        os.unlink(name, dir_fd=folder)
    except OSError:
        return False
    return True


def _sync(fd: int) -> None:
    full = getattr(fcntl, "F_FULLFSYNC", None)  # where fsync leaves data in the cache of the disk (macOS)
    if full is not None:
        fcntl.fcntl(fd, full)
    else:
        os.fsync(fd)


def _sync_path(path: Path) -> None:
    fd = _open_folder(path)
    try:
        _sync(fd)
    finally:
        os.close(fd)


def _free(path: Path) -> str:
    try:
        room = os.statvfs(path)
    except OSError:
        return "how much is free cannot be told"
    return f"{room.f_bavail * room.f_frsize:,} bytes are free"
