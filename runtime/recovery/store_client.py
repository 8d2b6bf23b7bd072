"""Stores in the processes of a job: opened again, and written by a thread.

A pipe wakes the driver: a worker's, or the monitor.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from recovery.store.address import StoreAddress
from recovery.store.identity import store_id
from recovery.store.interface import Buffer, NoStore, OpenStore, Store, StoreError, StoreGone

_AGAIN = "bring it back and run the job again"


def opened_again(address: StoreAddress, identity: bytes | None = None) -> tuple[OpenStore, bytes]:
    """Store of this job, opened again, and its id.

    Raises:
        StoreGone: if it is not there any more, or another is in its place (`identity` is given).
        StoreError: if it cannot be opened or read.
    """
    try:
        store = address.open()
    except NoStore:
        raise StoreGone(f"the store {address} is gone; {_AGAIN}") from None
    found = store_id(store)
    if found is None:
        raise StoreGone(f"the store {address} was emptied; {_AGAIN}")
    if identity is not None and found != identity:
        raise StoreGone(f"the store {address} was replaced by another one; {_AGAIN}")
    return store, found


class ThreadedStore:
    """`runtime.recovery.driver.StoreClient` with one thread and operations in order.

    An error ends nothing here: that of a put is handed back, and what comes next is tried all the same. A blob that cannot be
    deleted is left: whoever takes over finds it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reading, self._writing = os.pipe()
        for end in (self._reading, self._writing):
            os.set_blocking(end, False)
        self._changed = threading.Condition()
        self._waiting: deque[tuple[str, Sequence[Buffer] | None]] = deque()
        self._done: list[tuple[str, Exception | None]] = []
        self._closed = False
        self._woken = False
        self.spent = 0.0
        """Processor seconds of the thread so far."""
        self._thread = threading.Thread(target=self._run, name="falkirk-store", daemon=True)
        self._thread.start()

    def put(self, name: str, parts: Sequence[Buffer]) -> None:
        """Start writing a blob.

        Its buffers must not change until `take_done` hands back its name.
        """
        self._enqueue(name, parts)

    def delete(self, name: str) -> None:
        """Start deleting a blob."""
        self._enqueue(name, None)

    def take_done(self) -> list[tuple[str, Exception | None]]:
        """Puts finished since the last call, in order, each with its error or None.

        None: the blob is durable; else a `StoreError`.
        """
        if not self._woken:
            return []
        self._woken = False
        with suppress(BlockingIOError):
            os.read(self._reading, 4096)
        with self._changed:
            done, self._done = self._done, []
        return done

    def files(self) -> list[int]:
        """File descriptors to wait for."""
        return [self._reading]

    def close(self) -> None:
        """Finish pending operations, and end the thread."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify()
        self._thread.join()
        os.close(self._reading)
        os.close(self._writing)

    def _enqueue(self, name: str, parts: Sequence[Buffer] | None) -> None:
        with self._changed:
            if self._closed:
                raise StoreError(f"{name} cannot be written: the store was closed")
            self._waiting.append((name, parts))
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                name, parts = self._waiting.popleft()
            if parts is None:
                with suppress(Exception):
                    self._store.delete(name)
                continue
            error = self._put(name, parts)
            self.spent = time.thread_time()
            parts = None  # what was written is not kept alive while there is nothing to do
            with self._changed:
                self._done.append((name, error))
            self._woken = True  # before the write: who is woken by it would look in vain until this thread goes on
            with suppress(OSError):
                os.write(self._writing, b"!")
            self._woken = True  # after the write: a byte missed by `take_done` still wakes whoever waits

    def _put(self, name: str, parts: Sequence[Buffer]) -> StoreError | None:
        try:
            self._store.put(name, parts)
        except StoreError as error:
            return error
        except Exception as error:  # of a store that does not name its errors: the job must hear of it, not the thread
            failure = StoreError(f"{name}: the store failed with {type(error).__name__}: {error}")
            failure.__cause__ = error
            return failure
        return None
