"""The store of a worker's driver, or of the monitor's: a thread that writes, and a pipe that wakes whoever waits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from recovery.store.interface import Buffer, Store
from runtime.store_writer import StoreWriter


class ThreadedStore:
    """See `runtime.recovery_driver.StoreClient`. A blob that cannot be deleted is left: whoever takes over finds it."""

    def __init__(self, store: Store) -> None:
        self._reading, self._writing = os.pipe()
        for end in (self._reading, self._writing):
            os.set_blocking(end, False)
        self._closed = False
        self._woken = False
        self._putting: set[str] = set()
        self.writer = StoreWriter(store, self._wake)

    def put(self, name: str, parts: Sequence[Buffer]) -> None:
        """Begin to write a blob."""
        self._putting.add(name)
        self.writer.put(name, parts)

    def delete(self, name: str) -> None:
        """Begin to remove a blob."""
        self.writer.delete(name)

    def take_done(self) -> list[tuple[str, Exception | None]]:
        """The puts that have ended since the last call, in order."""
        if not self._woken:
            return []
        self._woken = False
        with suppress(BlockingIOError):
            os.read(self._reading, 4096)
        over = [(name, error) for name, error in self.writer.take_done() if name in self._putting]
        self._putting.difference_update(name for name, _ in over)
        return over

    def files(self) -> list[int]:
        """The file descriptors to wait for."""
        return [self._reading]

    def close(self, timeout: float | None = None) -> None:
        """Finish what was begun."""
        if not self._closed:
            self._closed = True
            if self.writer.close(timeout):
                os.close(self._reading)
                os.close(self._writing)

    def _wake(self) -> None:
        with suppress(OSError):
            os.write(self._writing, b"!")
        self._woken = True  # after that: a byte that is not taken for want of this is found again by who waits for it
