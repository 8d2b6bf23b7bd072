"""Page process of a job with `--ui`.

It is started with the job, and restarted while the job runs, but not ended with it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import msgspec

from recovery.store.address import StoreAddress
from runtime.folders.store_folder import StoreFolder
from runtime.page.address import PageSocket

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 60.0
"""Seconds between the end of a page and the next start: first, and at most.

The pause doubles each time.
"""
_LONG_LIFE = 60.0

_started: list[subprocess.Popen[bytes]] = []
"""Pages started by this process, to end with nobody."""


class Launch(msgspec.Struct, frozen=True):
    """Standard input of the process, in JSON: its socket, and the job to follow."""

    socket: int
    token: str
    url: str
    store: StoreAddress


class LaunchedPage:
    """Page process at the socket `page`, of the job of a store.

    `say` gets what the user should know.
    """

    def __init__(self, page: PageSocket, store: StoreAddress, say: Callable[[str], None]) -> None:
        self._page, self._store, self._say = page, store, say
        self._process: subprocess.Popen[bytes] | None = None
        self._pause, self._began, self._due = _FIRST_PAUSE, 0.0, 0.0
        self._note = _noted(StoreFolder(store), page.url)
        """Locked for as long as this or a page process has it open."""
        self.turn()

    @property
    def pid(self) -> int | None:
        """Process id, while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def turn(self) -> None:
        """Restart an ended page process, if its pause is over."""
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            self._process = None
            self._fail(f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}")
        elif time.monotonic() >= self._due:
            self._start()

    def close(self) -> None:
        """Leave the page running."""
        if self._note is not None:
            os.close(self._note)
            self._note = None

    def _start(self) -> None:
        self._began = time.monotonic()
        file = self._page.listener.fileno()
        launch = Launch(file, self._page.token, self._page.url, self._store)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "runtime.page.process"],
                pass_fds=[file, *(() if self._note is None else (self._note,))],
                stdin=subprocess.PIPE,  # not an argument: all users of the machine see those
                stdout=subprocess.DEVNULL,  # it outlives whoever waits for the end of this output
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            _started[:] = [each for each in _started if each.poll() is None] + [self._process]
            assert self._process.stdin is not None
            with self._process.stdin as given:
                given.write(msgspec.json.encode(launch))
        except OSError as error:
            self._fail(f"cannot be started: {error.strerror or error}")

    def _fail(self, how: str) -> None:
        """Note the end of the page process, and schedule its restart."""
        if time.monotonic() > self._began + _LONG_LIFE:
            self._pause = _FIRST_PAUSE
        self._due = time.monotonic() + self._pause
        self._say(f"the process of the page {how}; the job goes on, and the page is served again in {self._pause:g} s")
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


def _noted(folder: StoreFolder, url: str) -> int | None:
    """Locked file with the address of a page, beside the store.

    None if there is another page's, or none can be.
    """
    fd = None
    try:
        fd = os.open(folder.ui, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, url.encode(), 0)
    except OSError:
        if fd is not None:
            os.close(fd)
        return None
    return fd


def standing_page(folder: StoreFolder) -> str | None:
    """Address of a store's running page of `--ui`; None if there is none."""
    try:
        with open(folder.ui) as file:
            url = file.read()
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return url or None
    except (OSError, ValueError):
        pass
    return None
